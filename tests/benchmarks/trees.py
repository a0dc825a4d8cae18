"""Small trees in the layouts of MLE-Dojo, MLE-bench and DSBench, with data and graders of our own."""

from __future__ import annotations

from pathlib import Path

ROWS = 6
TRUTH = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]

DOJO_METRIC = """
from mledojo.metrics.base import CompetitionMetrics, InvalidSubmissionError


class {name}(CompetitionMetrics):
    def __init__(self, value="y", higher_is_better={higher}):
        super().__init__(higher_is_better)
        self.value = value

    def evaluate(self, y_true, y_pred):
        both = y_true.merge(y_pred, on="id", suffixes=("_t", "_p"))
        return float((both["y_t"] - both["y_p"]).abs().mean())

    def validate_submission(self, submission, ground_truth):
        if "y" not in submission:
            raise InvalidSubmissionError("no column y")
        return "fine"
"""

BENCH_GRADE = """
from mlebench.errors import InvalidSubmissionError


def grade(submission, answers):
    if list(submission.columns) != ["id", "y"]:
        raise InvalidSubmissionError("columns must be id and y")
    joined = answers.merge(submission, on="id")
    return float((joined["y_x"] - joined["y_y"]).abs().mean())
"""

DSBENCH_EVAL = """
import argparse, os
import pandas as pd

parser = argparse.ArgumentParser()
for name in ("--path", "--name", "--answer_file", "--predict_file"):
    parser.add_argument(name, required=True)
args = parser.parse_args()
truth, guess = pd.read_csv(args.answer_file), pd.read_csv(args.predict_file)
with open(os.path.join(args.path, args.name, "result.txt"), "w") as file:
    file.write(str((truth["y"] - guess["y"]).abs().mean()))
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def csv(columns: str, *values: list[float]) -> str:
    rows = [",".join(map(str, row)) for row in zip(range(1, ROWS + 1), *values, strict=True)]
    return "\n".join([columns, *rows]) + "\n"


def public_files(folder: Path, sample: str = "id,y") -> None:
    blanks = [[0.0] * ROWS] * sample.count(",")
    write(folder / "sample_submission.csv", csv(sample, *blanks))
    write(folder / "train.csv", csv("id,x,y", TRUTH, TRUTH))
    write(folder / "test.csv", csv("id,x", TRUTH))


def board(*scores: float, columns: str = "rank,score") -> str:
    return "\n".join([columns, *(f"{rank},{score}" for rank, score in enumerate(scores, 1))]) + "\n"


def dojo_task(
    source: Path, repo: Path, name: str, *, higher: bool = False, ends: tuple[float, ...] = (0.1, 1.0, 9.0)
) -> None:
    """One prepared MLE-Dojo task: mean absolute error, lower is better, three entries on each board."""
    data, entry = source / name / "data", repo / "mledojo" / "competitions" / name
    public_files(data / "public")
    write(data / "public" / "description.txt", f"Predict y of {name}.")
    write(data / "private" / "test_answer.csv", csv("id,y", TRUTH))
    for kind in ("public", "private"):
        write(data / "private" / f"{kind}_leaderboard.csv", board(*ends))
        write(entry / "info" / f"{kind}_leaderboard.csv", board(*ends))
    class_name = "".join(word.title() for word in name.split("-")) + "Metrics"
    write(entry / "utils" / "metric.py", DOJO_METRIC.format(name=class_name, higher=higher))


def bench_task(
    source: Path, repo: Path, name: str, *, grader: str = "mae", ends: tuple[float, ...] = (0.1, 1.0, 9.0)
) -> None:
    """One prepared MLE-bench task; its answers are called test.csv, as its configuration says."""
    prepared, entry = source / name / "prepared", repo / "mlebench" / "competitions" / name
    public_files(prepared / "public")
    write(prepared / "private" / "test.csv", csv("id,y", TRUTH))
    write(repo / "mlebench" / "__init__.py", "")
    write(repo / "mlebench" / "errors.py", "class InvalidSubmissionError(Exception):\n    pass\n")
    write(repo / "mlebench" / "competitions" / "__init__.py", "")
    write(entry / "grade.py", BENCH_GRADE)
    write(entry / "description.md", f"Predict y of {name}.")
    write(entry / "leaderboard.csv", board(*ends, columns="teamId,score"))
    config = f"""
id: {name}
dataset:
  answers: {name}/prepared/private/test.csv
  sample_submission: {name}/prepared/public/sample_submission.csv
grader:
  name: {grader}
  grade_fn: mlebench.competitions.{name}.grade:grade
"""
    write(entry / "config.yaml", config)


def dsbench_task(source: Path, dojo: Path, name: str, *, ends: tuple[float, ...] = (0.1, 1.0, 9.0)) -> None:
    """One DSBench task, and the MLE-Dojo leaderboards that it is placed on."""
    public_files(source / "data" / "data_resplit" / name)
    write(source / "data" / "task" / f"{name}.txt", f"Predict y of {name}.")
    write(source / "data" / "answers" / name / "test_answer.csv", csv("id,y", TRUTH))
    write(source / "evaluation" / f"{name}_eval.py", DSBENCH_EVAL)
    for kind, value in (("GT", 0.1), ("baseline", 5.0)):
        write(source / "save_performance" / kind / name / "result.txt", str(value))
    for kind in ("public", "private"):
        write(dojo / "mledojo" / "competitions" / name / "info" / f"{kind}_leaderboard.csv", board(*ends))
