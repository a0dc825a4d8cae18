"""The process of a benchmark's own grader: a question as JSON on stdin, one line of JSON as the answer.

Run by `foreign.py` as a program, never imported by it, and importing nothing of ours: answers are
`{"score": x}`, `{"invalid": why}` for what a script wrote, `{"missing": package}` or `{"broken": why}` for the
grader itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

Score = Callable[[dict[str, str]], float]


def answer(question: dict[str, str]) -> dict[str, Any]:
    """Load the grader, then grade: a failure while loading is the grader's, a later one the submission's."""
    loaders: dict[str, Callable[[dict[str, str]], Score]] = {"mle-dojo": _mle_dojo, "mle-bench": _mle_bench}
    try:
        if "describe" in question:
            metric = _dojo_metric(question["script"])
            return {"name": type(metric).__name__, "higher_is_better": bool(metric.higher_is_better)}
        score = loaders.get(question["kind"], _dsbench)(question)
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    except Exception as error:  # the effect boundary: foreign code
        return {"broken": f"{type(error).__name__}: {error}"}
    try:
        return {"score": score(question)}
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    except Exception as error:  # the effect boundary: a foreign grader, fed with what a script wrote
        if any(kind.__name__ == "InvalidSubmissionError" for kind in type(error).__mro__):
            return {"invalid": str(error)}
        return {"invalid": f"the grader raised {type(error).__name__}: {error}"}


def _mle_dojo(question: dict[str, str]) -> Score:
    metric = _dojo_metric(question["script"])

    def score(asked: dict[str, str]) -> float:
        submission, answers = _read(asked["submission"]), _read(asked["answers"])
        metric.validate_submission(submission.copy(), answers.copy())
        return float(metric.evaluate(answers, submission))

    return score


def _dojo_metric(path: str) -> Any:
    """An instance of the metric class of a `metric.py`, with a stand-in for the two names it takes from its package."""
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
    spec = importlib.util.spec_from_file_location("foreign_metric", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, CompetitionMetrics) and value is not CompetitionMetrics
    ]
    if not classes:
        raise ValueError("it has no subclass of CompetitionMetrics")
    return classes[-1]()


def _mle_bench(question: dict[str, str]) -> Score:
    name, _, function = question["grade_fn"].partition(":")
    grade = getattr(importlib.import_module(name), function)
    return lambda asked: round(float(grade(_read(asked["submission"]), _read(asked["answers"]))), 5)


def _read(path: str) -> Any:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    import pandas as pd

    return pd.read_csv(path)


def _dsbench(question: dict[str, str]) -> Score:
    """Call `<name>_eval.py` as the benchmark does, and read the number that it leaves in `result.txt`."""
    folder = Path(question["scratch"]) / question["task_id"]
    folder.mkdir()
    command = [sys.executable, question["script"], "--path", question["scratch"], "--name", question["task_id"]]
    command += ["--answer_file", question["answers"], "--predict_file", question["submission"]]

    def score(asked: dict[str, str]) -> float:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            if last.startswith("ModuleNotFoundError"):
                raise ModuleNotFoundError(last, name=last.split("'")[1])
            raise ValueError(last)
        return float((folder / "result.txt").read_text())

    return score


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.stdin.read()))))
