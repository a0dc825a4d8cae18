"""Grading by a benchmark's own grader: foreign code, run in a process of its own, never in ours.

`grade_foreign` reads `grader.json` in a task's private folder and calls this module as a program
(`python -m wmrl_cli.benchmarks.foreign`), which loads the grader, and answers with one line of JSON.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pandas as pd

from wmrl_cli.benchmarks.grading import (
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
    command = [sys.executable, "-m", "wmrl_cli.benchmarks.foreign"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sys.path[1:], question.get("python_path", "")]),
    }
    try:
        done = subprocess.run(
            command, input=json.dumps(question), capture_output=True, text=True, timeout=GRADER_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"the grader of `{question.get('task_id', '')}` took longer than {GRADER_SECONDS:g} s"
        ) from error
    lines = done.stdout.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        tail = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise UnavailableError(f"the grader of `{question.get('task_id', '')}` failed: {tail[0]}") from error
    if "missing" in answer:
        raise UnavailableError(
            f"the grader of `{question.get('task_id', question.get('script', ''))}` needs `{answer['missing']}`",
            f"pip install {answer['missing']}, or give the benchmark's repository with `--repo`",
        )
    return answer


# ---- the grader's own process ----


def _answer(question: dict[str, str]) -> dict[str, Any]:
    try:
        match question["kind"]:
            case "mle-dojo":
                return _ask_mle_dojo(question)
            case "mle-bench":
                return _ask_mle_bench(question)
            case _:
                return _ask_dsbench(question)
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    except Exception as error:  # the effect boundary: a foreign grader, fed with what a script wrote
        if any(kind.__name__ == "InvalidSubmissionError" for kind in type(error).__mro__):
            return {"invalid": str(error)}
        return {"invalid": f"the grader raised {type(error).__name__}: {error}"}


def _ask_mle_dojo(question: dict[str, str]) -> dict[str, Any]:
    """Load `metric.py` with a stand-in for the two names that it takes from its package."""
    base = types.ModuleType("mledojo.metrics.base")

    class CompetitionMetrics:
        def __init__(self, higher_is_better: bool = True) -> None:
            self.higher_is_better = higher_is_better

    class InvalidSubmissionError(Exception):
        pass

    base.__dict__.update(CompetitionMetrics=CompetitionMetrics, InvalidSubmissionError=InvalidSubmissionError)
    for name in ("mledojo", "mledojo.metrics"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["mledojo.metrics.base"] = base
    spec = importlib.util.spec_from_file_location("foreign_metric", question["script"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, CompetitionMetrics) and value is not CompetitionMetrics
    ]
    metric: Any = classes[-1]()
    if "describe" in question:
        return {"name": classes[-1].__name__, "higher_is_better": bool(metric.higher_is_better)}
    submission, answers = pd.read_csv(question["submission"]), pd.read_csv(question["answers"])
    metric.validate_submission(submission.copy(), answers.copy())
    return {"score": float(metric.evaluate(answers, submission))}


def _ask_mle_bench(question: dict[str, str]) -> dict[str, Any]:
    name, _, function = question["grade_fn"].partition(":")
    grade = getattr(importlib.import_module(name), function)
    return {"score": round(float(grade(_load(question["submission"]), _load(question["answers"]))), 5)}


def _load(path: str) -> Any:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    return pd.read_csv(path)


def _ask_dsbench(question: dict[str, str]) -> dict[str, Any]:
    """Call `<name>_eval.py` as the benchmark does, and read the number that it leaves in `result.txt`."""
    folder = Path(question["scratch"]) / question["task_id"]
    folder.mkdir()
    command = [sys.executable, question["script"], "--path", question["scratch"], "--name", question["task_id"]]
    command += ["--answer_file", question["answers"], "--predict_file", question["submission"]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return (
            {"missing": last.split("'")[1]}
            if last.startswith("ModuleNotFoundError")
            else {"invalid": f"the grader raised {last}"}
        )
    return {"score": float((folder / "result.txt").read_text())}


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.stdin.read()))))
