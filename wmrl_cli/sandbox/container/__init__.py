"""A fresh container for every script, on Docker Engine or Podman."""
