"""Grading by a benchmark's own grader: foreign code, run in a process of its own, never in ours.

`grade_foreign` reads `grader.json` in a task's private folder and asks `foreign_worker.py`, a program that loads
the grader and answers with one line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from wmrl_cli.benchmarks.submissions import (
    BYTES_BASE,
    BYTES_PER_ROW,
    Graded,
    Refusal,
    Refused,
    align,
    parse_submission,
)
from wmrl_cli.errors import TableError, UnavailableError
from wmrl_cli.maths.outcomes import Status, leaderboard_position
from wmrl_cli.task import Task

GRADER_SECONDS = 600.0
REASON_CHARACTERS = 300


def grade_foreign(task: Task, submission: bytes) -> Graded:
    """Grade with the benchmark's own grader. Raises TableError or UnavailableError where the grader itself fails."""
    try:
        grader = json.loads((task.private_path / "grader.json").read_text())
    except (OSError, ValueError) as error:
        raise TableError(
            f"task `{task.task_id}` has no metric `{task.metric}` of ours and no readable `grader.json`",
            "prepare it again",
        ) from error
    try:
        if len(submission) > BYTES_BASE + BYTES_PER_ROW * max(task.contract.rows, 10_000):
            raise Refused(Refusal.UNREADABLE, f"`{task.contract.file}` is too large: {len(submission):,} bytes")
        if grader["kind"] == "dsbench":  # its graders compare row by row and check nothing
            submission = _in_order(task, submission, task.private_path / grader["answers"])
        raw = _run(task, grader, submission)
        if not math.isfinite(raw):  # MLE-bench would round a NaN and call it valid
            raise Refused(Refusal.NOT_FINITE, f"the metric {task.metric} of these predictions is not finite")
    except Refused as refused:
        return Graded(status=Status.BAD_SUBMISSION, reason=refused.reason, refusal=refused.refusal)
    q = leaderboard_position(raw, task.boards, higher_is_better=task.higher_is_better)
    return Graded(status=Status.VALID, raw_metric=raw, q=q)


def describe_metric(module: Path) -> tuple[str, bool]:
    """Name and direction of the metric class in an MLE-Dojo `metric.py`. Raises UnavailableError."""
    answer = _call({"kind": "mle-dojo", "script": str(module), "describe": "yes"})
    return str(answer["name"]), bool(answer["higher_is_better"])


def _in_order(task: Task, submission: bytes, answers: Path) -> bytes:
    """The submission with its rows in the order of the answers, where these have ids."""
    frame = parse_submission(task.contract, submission)
    truth = pd.read_csv(answers, dtype=str, keep_default_na=False)
    if task.contract.id_column in truth.columns:
        frame = align(task.contract, frame, truth)
    return frame.to_csv(index=False).encode()


def _run(task: Task, grader: dict[str, Any], submission: bytes) -> float:
    with tempfile.TemporaryDirectory(prefix="wmrl-grade-") as scratch:
        path = Path(scratch) / task.contract.file
        path.write_bytes(submission)
        local: dict[str, Any] = {
            name: str(task.private_path / grader[name]) for name in ("answers", "script") if name in grader
        }
        answer = _call({**grader, **local, "submission": str(path), "scratch": scratch, "task_id": task.task_id})
    if "invalid" in answer:
        raise Refused(Refusal.GRADER, str(answer["invalid"])[:REASON_CHARACTERS])
    return float(answer["score"])


def _call(question: dict[str, Any]) -> dict[str, Any]:
    """Ask the grader's process. Raises UnavailableError where it does not answer."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("foreign_worker.py"))]
    paths = [question.get("python_path", ""), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        done = subprocess.run(
            command, input=json.dumps(question), capture_output=True, text=True, timeout=GRADER_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"the grader of `{_who(question)}` took longer than {GRADER_SECONDS:g} s") from error
    lines = done.stdout.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        tail = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise UnavailableError(f"the grader of `{_who(question)}` failed: {tail[0]}") from error
    if "broken" in answer:
        raise UnavailableError(f"the grader of `{_who(question)}` cannot be loaded: {answer['broken']}")
    if "missing" in answer:
        raise UnavailableError(
            f"the grader of `{_who(question)}` needs `{answer['missing']}`",
            f"pip install {answer['missing']}, or give the benchmark's repository with `--repo`",
        )
    return answer


def _who(question: dict[str, Any]) -> str:
    return str(question.get("task_id", question.get("script", "")))
