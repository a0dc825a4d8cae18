"""Figures and the HTML report from a run's tables."""
