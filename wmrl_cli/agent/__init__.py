"""Reply parsing and token-in, token-out multi-turn episodes."""
