"""A suite on disk: content digests of task folders, and the reader of `tasks.parquet`."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pyarrow.parquet as pq

from wmrl_cli.errors import TableError
from wmrl_cli.tables import TASKS, read_table
from wmrl_cli.task import Task

WHOLE_FILE = 64 << 20  # bytes; of a larger file, evenly spaced blocks are read
BLOCK, BLOCKS = 64 << 10, 64
WHOLE_FILES = 2000  # of more files, the names and sizes of all count, and the contents of this many


def folder_digest(*folders: Path) -> str:
    """Sixteen hex digits over the names and contents of all files in the folders, in the order of their paths.

    A Parquet file counts by its columns and values, since its bytes depend on the library that wrote it.
    Very large data are sampled (see the constants), so that a change is found without reading all of it.
    """
    whole = hashlib.sha256()
    for folder in folders:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        every = max(1, -(-len(files) // WHOLE_FILES))
        for index, path in enumerate(files):
            size = "" if path.suffix == ".parquet" else path.stat().st_size
            whole.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
            if index % every == 0:
                _add_content(whole, path)
        whole.update(b"\1")
    return whole.hexdigest()[:16]


def _add_content(whole: hashlib._Hash, path: Path) -> None:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        whole.update(f"{file.schema_arrow.names} {file.metadata.num_rows}".encode())
        for batch in itertools.islice(file.iter_batches(batch_size=4096), BLOCKS):
            whole.update(repr(batch.to_pydict()).encode())
        return
    size = path.stat().st_size
    with path.open("rb") as opened:
        if size <= WHOLE_FILE:
            whole.update(opened.read())
            return
        for block in range(BLOCKS):
            opened.seek((size - BLOCK) * block // (BLOCKS - 1))
            whole.update(opened.read(BLOCK))


def load_tasks(path: Path, *, verify: bool = True) -> list[Task]:
    """The tasks of a `tasks.parquet`, in its order, with folders resolved beside it.

    Raises TableError where the table is wrong, a folder is gone, answers lie where a sandbox would see
    them, a leaderboard is empty or contradicts its metric, or (`verify`) files changed since preparation.
    """
    table = read_table(TASKS, path)
    tasks = [Task.from_row(row, path.parent) for row in table.to_pylist()]
    for task in tasks:
        check_task(task)
        if verify and folder_digest(task.public_path, task.private_path) != task.digest:
            raise TableError(
                f"the files of task `{task.task_id}` changed since it was prepared",
                f"run `wmrl prepare-tasks {task.suite} -o {path.parent}` again, or restore `{task.public_path}`",
            )
    return tasks


def check_task(task: Task) -> None:
    """Refuse a task that could not be graded, or whose answers a sandbox would see. Raises TableError."""
    for folder in (task.public_path, task.private_path):
        if not folder.is_dir():
            raise TableError(
                f"task `{task.task_id}` has no folder `{folder}`",
                f"keep `tasks.parquet` beside its folders, or run `wmrl prepare-tasks {task.suite}` again",
            )
    if task.private_path.resolve().is_relative_to(task.public_path.resolve()):
        raise TableError(
            f"the answers of task `{task.task_id}` lie inside its public folder `{task.public_path}`",
            "a sandbox would show them to the agent: move them out and prepare the task again",
        )
    for board in task.leaderboards:
        check_board(task.task_id, board.name, board.scores, higher_is_better=task.higher_is_better)
    if not task.leaderboards:
        raise TableError(f"task `{task.task_id}` has no leaderboard, so no position can be computed")


def check_board(
    task_id: str, name: str, scores: tuple[float, ...], *, higher_is_better: bool, ranked: bool = False
) -> None:
    """Refuse an empty board, and a ranked one (best first) whose ends contradict the metric. Raises TableError."""
    if not scores:
        raise TableError(f"leaderboard `{name}` of task `{task_id}` is empty")
    if not all(abs(score) < float("inf") for score in scores):
        raise TableError(f"leaderboard `{name}` of task `{task_id}` holds a score that is not finite")
    if ranked and scores[0] != scores[-1] and (scores[0] > scores[-1]) != higher_is_better:
        raise TableError(
            f"leaderboard `{name}` of task `{task_id}` goes from {scores[0]} to {scores[-1]}, "
            f"but its metric says that {'higher' if higher_is_better else 'lower'} is better",
            "one of the two is wrong: the task cannot be graded until that is settled",
        )
