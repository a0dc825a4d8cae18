"""A small regression task on disk: two rows to predict, a leaderboard of two entries."""

from __future__ import annotations

from pathlib import Path

from wmrl_cli.benchmarks.suites import folder_digest
from wmrl_cli.tables import TASKS, provenance, rows_to_table, write_table
from wmrl_cli.task import Contract, Leaderboard, Task


def make_task(folder: Path, task_id: str = "pair") -> Task:
    """The task, its files below `folder`."""
    public, private = folder / task_id / "public", folder / task_id / "private"
    public.mkdir(parents=True, exist_ok=True)
    private.mkdir(parents=True, exist_ok=True)
    (public / "train.csv").write_text("x,y\n1,1\n2,2\n")
    (private / "answers.csv").write_text("id,y\n1,1\n2,2\n")
    return Task(
        task_id=task_id,
        suite="test",
        split="train",
        category="tabular",
        metric="rmse",
        higher_is_better=False,
        description="Predict y.",
        inventory=(),
        contract=Contract(file="submission.csv", id_column="id", target_columns=("y",), rows=2, prediction="number"),
        public_dir=f"{task_id}/public",
        private_dir=f"{task_id}/private",
        leaderboards=(Leaderboard(name="test", scores=(0.5, 1.0)),),
        digest=folder_digest(public, private),
        root=folder,
    )


def write_tasks(folder: Path, *tasks: Task) -> Path:
    """The tasks' table beside their folders."""
    path = folder / "tasks.parquet"
    write_table(TASKS, rows_to_table(TASKS, [task.to_row() for task in tasks]), path, provenance=provenance("test"))
    return path
