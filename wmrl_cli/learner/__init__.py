"""Torch: the loss and the learner."""
