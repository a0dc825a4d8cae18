"""DSBench's data modelling tasks, unzipped: `data/{task,data_resplit,answers}`, `evaluation/`, `save_performance/`.

DSBench has no leaderboards. The paper's percentiles need MLE-Dojo's for the same tasks, from the repository of that.
"""

from __future__ import annotations

import math
from pathlib import Path

from wmrl_cli.benchmarks.importing import CannotImport, Draft, ImportRequest, Trouble, direction_of_ends, read_file
from wmrl_cli.benchmarks.mle_dojo import COMPETITIONS, dojo_boards
from wmrl_cli.task import HELD_OUT


class DsBench:
    """All tasks are held out; the direction comes from the boards, and DSBench's own two results must agree."""

    layout = (
        "`--from` holds DSBench's unzipped `data_modeling` folder (`data/data_resplit`, `data/answers`, `data/task`, "
        "`evaluation`, `save_performance`), `--repo` the repository of MLE-Dojo, whose leaderboards it needs"
    )

    def names(self, source: Path, repository: Path) -> list[str]:
        folders = [source / "data" / "data_resplit", source / "data" / "answers"]
        return sorted(
            {path.name for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_dir()}
        )

    def draft(self, name: str, request: ImportRequest) -> Draft:
        data = request.source / "data"
        public, script = data / "data_resplit" / name, request.source / "evaluation" / f"{name}_eval.py"
        if not public.is_dir():
            raise CannotImport(
                Trouble.NOT_PREPARED, f"its data are not in `{public}`", "unzip DSBench's `data.zip` there"
            )
        read_file(script, Trouble.NO_GRADER, "grader", self.layout)
        description = read_file(data / "task" / f"{name}.txt", Trouble.NO_DESCRIPTION, "description")
        boards = dojo_boards(request.repository / COMPETITIONS / name / "info")
        ends = {direction_of_ends(board) for board in boards} - {None}
        if len(ends) != 1:
            raise CannotImport(
                Trouble.BAD_LEADERBOARD, "its leaderboards do not say which way is better, or contradict each other"
            )
        higher_is_better = bool(ends.pop())
        return Draft(
            task_id=name,
            category="tabular",
            split=HELD_OUT,
            metric=f"dsbench:{name}",
            higher_is_better=higher_is_better,
            description=description.decode("utf-8", "replace"),
            public=public,
            answers=data / "answers" / name / "test_answer.csv",
            sample=public / "sample_submission.csv",
            boards=boards,
            grader={"kind": "dsbench", "script": script.name},
            grader_files=(script,),
            known_issues=_reference_issues(request.source / "save_performance", name, higher_is_better),
        )


def _reference_issues(folder: Path, name: str, higher_is_better: bool) -> tuple[str, ...]:
    """What hinders DSBench's own relative gap (RPG), which needs a best and a baseline result; the percentile does not.

    Raises CannotImport where the two results contradict the boards' direction.
    """
    values, issues = {}, []
    for kind in ("GT", "baseline"):
        path = folder / kind / name / "result.txt"
        try:
            values[kind] = float(path.read_text())
        except (OSError, ValueError):
            issues.append(
                f"no relative performance gap: `{path}` is missing or no number (DSBench's `save_performance.zip`)"
            )
    if issues or not math.isfinite(values["GT"] - values["baseline"]) or values["GT"] == values["baseline"]:
        return tuple(issues)
    if (values["GT"] > values["baseline"]) != higher_is_better:
        raise CannotImport(
            Trouble.BAD_LEADERBOARD,
            f"DSBench's best result {values['GT']:g} and baseline {values['baseline']:g} contradict its leaderboards",
            "one of the two is wrong: the task cannot be graded until that is settled",
        )
    return ()
