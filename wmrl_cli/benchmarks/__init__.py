"""Task sources, inventory, metrics, leaderboards and grading."""
