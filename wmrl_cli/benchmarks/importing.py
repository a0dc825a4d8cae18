"""Benchmarks that others prepared on local disk become tasks: what all importers share.

Nothing is downloaded, and public data stay where they are. What grading needs (answers, the benchmark's own
grader) is copied into a private folder of ours, apart from what a sandbox mounts. A task that cannot be
imported is a `Failure`, and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Protocol

import pandas as pd

from wmrl_cli.benchmarks.inventory import take_inventory
from wmrl_cli.benchmarks.offline_specs import tasks_folder
from wmrl_cli.benchmarks.suites import check_board, folder_digest
from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.names import unknown_name
from wmrl_cli.task import HELD_OUT, TRAIN, Contract, DataFile, Leaderboard, Task

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
GRADER = "grader.json"  # in a task's private folder: which grader, and its files


class Trouble(StrEnum):
    """Why a task could not be imported."""

    NOT_PREPARED = "not_prepared"  # its data are not there
    NO_PREPARER = "no_preparer"  # and the benchmark cannot make them: its preparer is an empty stub
    NO_DESCRIPTION = "no_description"
    NO_SAMPLE = "no_sample_submission"
    NO_ANSWERS = "no_answers"
    ANSWERS_EXPOSED = "answers_exposed"  # inside the public folder
    NO_GRADER = "no_grader"
    NO_LEADERBOARD = "no_leaderboard"
    BAD_LEADERBOARD = "bad_leaderboard"  # empty, not finite, or its ends contradict the metric
    LFS_POINTER = "lfs_pointer"  # the file is the stand-in that Git LFS leaves
    KNOWN_ISSUE = "known_issue"  # left out on request


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A task that could not be imported: what kind of trouble, in words, and what to do."""

    task_id: str
    trouble: Trouble
    reason: str
    hint: str | None = None


class CannotImport(Exception):
    """Inside an importer: this one task cannot be imported."""

    def __init__(self, trouble: Trouble, reason: str, hint: str | None = None) -> None:
        super().__init__(trouble, reason, hint)
        self.trouble, self.reason, self.hint = trouble, reason, hint


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """Where a suite is read from and written to."""

    suite: str
    source: Path  # prepared data
    repository: Path  # the benchmark's repository: graders, leaderboards
    out: Path  # folder of tasks.parquet
    skip_known_issues: bool = False


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What an importer found out about one task; `build` does the rest."""

    task_id: str
    category: str
    metric: str
    higher_is_better: bool
    description: str
    public: Path
    answers: Path
    sample: Path
    boards: tuple[Leaderboard, ...]
    grader: dict[str, str]
    grader_files: tuple[Path, ...] = ()
    split: str = TRAIN
    known_issues: tuple[str, ...] = ()


class Importer(Protocol):
    """One benchmark's layout on disk."""

    @property
    def layout(self) -> str:
        """A sentence on what `--from` and `--repo` must hold."""
        ...

    def names(self, source: Path, repository: Path) -> list[str]:
        """The tasks that are there, in order."""
        ...

    def draft(self, name: str, request: ImportRequest) -> Draft:
        """Read one task. Raises CannotImport."""
        ...


def import_suite(
    importer: Importer, request: ImportRequest, names: Iterable[str] | None
) -> tuple[list[Task], list[Failure]]:
    """Import the named tasks, or all that are there. Raises ConfigError for a name that is not there."""
    found = importer.names(request.source, request.repository)
    wanted = found if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in found:
            raise ConfigError(*unknown_name("task", name, found))
    tasks, failures = [], []
    for name in wanted:
        try:
            tasks.append(build(importer.draft(name, request), request))
        except CannotImport as failed:
            failures.append(Failure(task_id=name, trouble=failed.trouble, reason=failed.reason, hint=failed.hint))
    return tasks, failures


def build(draft: Draft, request: ImportRequest) -> Task:
    """Check a draft, write its private folder and return the task. Raises CannotImport."""
    _check_boards(draft)
    answers = read_file(draft.answers, Trouble.NO_ANSWERS, "answers")
    _check_hidden(draft, answers)
    contract, columns_issue = _contract(draft)
    inventory = take_inventory(draft.public)
    known = (
        *draft.known_issues,
        *columns_issue,
        *_leaks(draft.task_id, inventory),
        *_contamination(draft.task_id, request.suite),
    )
    if known and request.skip_known_issues:
        raise CannotImport(Trouble.KNOWN_ISSUE, known[0], "leave `--skip-known-issues` out to keep the task")
    private = request.out / request.suite / draft.task_id / "private"
    _write_private(private, draft)
    task = Task(
        task_id=draft.task_id,
        suite=request.suite,
        split=draft.split,
        category=draft.category,
        metric=draft.metric,
        higher_is_better=draft.higher_is_better,
        description=draft.description,
        inventory=inventory,
        contract=contract,
        public_dir=os.path.relpath(draft.public.resolve(), request.out.resolve()),
        private_dir=private.relative_to(request.out).as_posix(),
        leaderboards=draft.boards,
        known_issues=known,
        root=request.out,
    )
    return replace(task, digest=folder_digest(task.public_path, task.private_path))


def read_file(path: Path, trouble: Trouble, what: str, hint: str | None = None) -> bytes:
    """A file's bytes. Raises CannotImport where it is missing, unreadable or the stand-in that Git LFS leaves."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CannotImport(trouble, f"its {what} `{path}` cannot be read: {error.strerror}", hint) from error
    if content.startswith(LFS_POINTER):
        raise CannotImport(
            Trouble.LFS_POINTER,
            f"its {what} `{path}` is a Git LFS pointer, not the file itself",
            f"run `git lfs pull` in `{path.parent}`",
        )
    return content


def read_board(path: Path, name: str, column: str | int) -> Leaderboard:
    """The scores of a leaderboard file, in its order. Raises CannotImport."""
    read_file(path, Trouble.NO_LEADERBOARD, "leaderboard")
    try:
        frame = pd.read_csv(path)
        values = frame.iloc[:, column] if isinstance(column, int) else frame[column]
        scores = tuple(values.astype(float).tolist())
    except (ValueError, KeyError, IndexError) as error:
        raise CannotImport(
            Trouble.BAD_LEADERBOARD, f"its leaderboard `{path}` has no column of scores: {error}"
        ) from error
    return Leaderboard(name=name, scores=scores)


def direction_of_ends(board: Leaderboard) -> bool | None:
    """Whether higher is better on a ranked board, from its ends; None where they are equal or it is empty."""
    if not board.scores or board.scores[0] == board.scores[-1]:
        return None
    return board.scores[0] > board.scores[-1]


def _check_boards(draft: Draft) -> None:
    if not draft.boards:
        raise CannotImport(Trouble.NO_LEADERBOARD, "it has no leaderboard")
    for board in draft.boards:
        try:
            check_board(draft.task_id, board.name, board.scores, higher_is_better=draft.higher_is_better, ranked=True)
        except TableError as error:
            raise CannotImport(Trouble.BAD_LEADERBOARD, error.message, error.hint) from error


def _check_hidden(draft: Draft, answers: bytes) -> None:
    """Refuse answers that a sandbox would see: the file itself, or a copy of it under another name."""
    if draft.answers.resolve().is_relative_to(draft.public.resolve()):
        raise CannotImport(
            Trouble.ANSWERS_EXPOSED, f"its answers `{draft.answers}` lie in the public folder", "move them out"
        )
    for path in draft.public.rglob("*"):
        if path.is_file() and path.stat().st_size == len(answers) and path.read_bytes() == answers:
            raise CannotImport(
                Trouble.ANSWERS_EXPOSED, f"the public file `{path}` is a copy of its answers", "remove it"
            )


def _contract(draft: Draft) -> tuple[Contract, tuple[str, ...]]:
    """The form of a submission, read from the sample; and what its columns lack, in words."""
    read_file(draft.sample, Trouble.NO_SAMPLE, "sample submission")
    if draft.sample.suffix != ".csv":
        return Contract(
            file=f"submission{draft.sample.suffix}", id_column="", target_columns=(), rows=0, prediction="label"
        ), ()
    try:
        sample = pd.read_csv(draft.sample)
    except ValueError as error:
        raise CannotImport(Trouble.NO_SAMPLE, f"its sample submission `{draft.sample}` is not CSV: {error}") from error
    columns = [str(column) for column in sample.columns]
    issue: tuple[str, ...] = ()
    if draft.answers.suffix == ".csv":
        answers = {str(column) for column in pd.read_csv(draft.answers, nrows=0).columns}
        if lacking := sorted(answers - set(columns) - {"Usage", "usage"}):
            issue = (f"the sample submission lacks columns of the answers: {', '.join(lacking)}",)
    numeric = all(pd.api.types.is_numeric_dtype(sample[column]) for column in sample.columns[1:])
    probability = any(word in draft.metric.lower() for word in ("auc", "logloss", "log_loss", "log-loss"))
    prediction = "probability" if numeric and probability else "number" if numeric else "label"
    return Contract(
        file="submission.csv",
        id_column=columns[0],
        target_columns=tuple(columns[1:]),
        rows=len(sample),
        prediction=prediction,
    ), issue


def _write_private(private: Path, draft: Draft) -> None:
    """The answers (mode 0600), the grader's files and `grader.json`, whole or absent."""
    shutil.rmtree(private, ignore_errors=True)
    private.mkdir(parents=True, mode=0o700)
    answers = private / f"answers{draft.answers.suffix}"
    answers.touch(mode=0o600)
    shutil.copyfile(draft.answers, answers)
    for path in draft.grader_files:
        shutil.copyfile(path, private / path.name)
    (private / GRADER).write_text(json.dumps({**draft.grader, "answers": answers.name}, indent=1, sort_keys=True))


@cache
def registry() -> dict[str, dict[str, str]]:
    """`tasks/benchmarks.toml`: the paper's split and categories, and the known issues of other benchmarks' tasks."""
    tables: dict[str, dict[str, str]] = tomllib.loads((tasks_folder() / "benchmarks.toml").read_text())
    return tables


def paper_split() -> dict[str, tuple[str, str]]:
    """Split and category of the 59 MLE-Dojo tasks of the paper, by task id."""
    return {
        name: (split, category)
        for split in (TRAIN, HELD_OUT)
        for category, names in registry()[split].items()
        for name in names.split()
    }


def _leaks(task_id: str, inventory: Sequence[DataFile]) -> tuple[str, ...]:
    """Known issues of this task, and public columns that are known to give answers away."""
    issues = [registry()["known_issues"][task_id]] if task_id in registry()["known_issues"] else []
    for file in inventory:
        for column in file.columns:
            if column.name in registry()["leaking_columns"]:
                issues.append(
                    f"leak: `{file.path}` has the column `{column.name}`: {registry()['leaking_columns'][column.name]}"
                )
    return tuple(issues)


def _contamination(task_id: str, suite: str) -> tuple[str, ...]:
    """Said of a task of another suite that is a training task of MLE-Dojo in the paper."""
    if suite != "mle-dojo" and paper_split().get(task_id, ("", ""))[0] == TRAIN:
        return ("contamination: a training task of mle-dojo, so no evaluation of a model trained on those",)
    return ()


def file_md5(path: Path) -> str:
    """MD5 of a file, as MLE-bench's checksums have it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
