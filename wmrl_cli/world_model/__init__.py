"""The eight experts and how their verdicts become a status, a score and an observation."""
