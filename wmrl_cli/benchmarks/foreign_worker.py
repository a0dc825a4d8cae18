"""The process of a benchmark's own grader: a question as JSON on stdin, one line of JSON as the answer.

Run by `foreign.py` as a program, never imported by it, and importing nothing of ours: answers are
`{"score": x}`, `{"invalid": why}` for what a script wrote, or `{"missing": package}`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any


def answer(question: dict[str, str]) -> dict[str, Any]:
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
    submission, answers = _load(question["submission"]), _load(question["answers"])
    metric.validate_submission(submission.copy(), answers.copy())
    return {"score": float(metric.evaluate(answers, submission))}


def _ask_mle_bench(question: dict[str, str]) -> dict[str, Any]:
    name, _, function = question["grade_fn"].partition(":")
    grade = getattr(importlib.import_module(name), function)
    return {"score": round(float(grade(_load(question["submission"]), _load(question["answers"]))), 5)}


def _load(path: str) -> Any:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    import pandas as pd

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
    print(json.dumps(answer(json.loads(sys.stdin.read()))))
