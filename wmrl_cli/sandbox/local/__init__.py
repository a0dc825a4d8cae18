"""Scripts as processes of this machine: in bubblewrap, or with no isolation at all."""
