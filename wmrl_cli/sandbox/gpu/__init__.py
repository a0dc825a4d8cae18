"""GPUs for scripts: which there are, who may use which now."""
