"""The training loop: the same stages, called in memory, step after step."""
