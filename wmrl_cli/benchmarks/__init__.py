"""Task sources, inventory, metrics, leaderboards and grading.

`suites.load_tasks` reads a `tasks.parquet`, `grading.grade` grades a submission, `offline.prepare_offline`
makes the offline suite.
"""

from wmrl_cli.benchmarks.suites import load_tasks

__all__ = ["load_tasks"]
