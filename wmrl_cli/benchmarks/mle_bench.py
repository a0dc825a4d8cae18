"""MLE-bench, prepared by its own tool: `<cache>/<task>/prepared/{public,private}` and the repository's graders."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from wmrl_cli.benchmarks.importing import (
    CannotImport,
    Draft,
    ImportRequest,
    Trouble,
    direction_of_ends,
    file_md5,
    paper_split,
    read_board,
    read_file,
)
from wmrl_cli.benchmarks.metrics import METRICS
from wmrl_cli.errors import UnavailableError
from wmrl_cli.task import HELD_OUT

COMPETITIONS = Path("mlebench") / "competitions"
CHECKSUM_BYTES = 256 * 2**20  # larger files are not compared with the recorded checksums
SAME_METRIC = {
    "auc-roc": "roc_auc",
    "auc": "roc_auc",
    "rmse": "rmse",
    "rmsle": "rmsle",
    "mae": "mae",
    "accuracy": "accuracy",
}


class MleBench:
    """One board a task; the direction comes from its ends, and a metric that we know must agree."""

    layout = (
        "`--from` holds `<task>/prepared/public` and `private`, `--repo` the repository with `mlebench/competitions`"
    )

    def names(self, source: Path, repository: Path) -> list[str]:
        return sorted(
            path.name
            for path in source.iterdir()
            if (path / "prepared").is_dir() or (repository / COMPETITIONS / path.name).is_dir()
        )

    def draft(self, name: str, request: ImportRequest) -> Draft:
        prepared, entry = request.source / name / "prepared", request.repository / COMPETITIONS / name
        public = prepared / "public"
        if not public.is_dir() or not (prepared / "private").is_dir():
            raise CannotImport(
                Trouble.NOT_PREPARED,
                f"its data are not in `{prepared}`",
                "run `mlebench prepare`: wmrl never downloads from Kaggle",
            )
        config = _yaml(
            read_file(entry / "config.yaml", Trouble.NO_GRADER, "configuration", self.layout), entry / "config.yaml"
        )
        try:
            answers, sample = config["dataset"]["answers"], config["dataset"]["sample_submission"]
            grader_name, grade_fn = str(config["grader"]["name"]), str(config["grader"]["grade_fn"])
        except (KeyError, TypeError) as error:
            raise CannotImport(Trouble.NO_GRADER, f"its `{entry / 'config.yaml'}` has no {error}") from error
        board = read_board(entry / "leaderboard.csv", "leaderboard", "score")
        own = public / "description.md"
        description = read_file(
            own if own.exists() else entry / "description.md", Trouble.NO_DESCRIPTION, "description"
        )
        return Draft(
            task_id=name,
            category=paper_split().get(name, ("", "tabular"))[1],
            split=HELD_OUT,
            metric=f"mle-bench:{grader_name}",
            higher_is_better=_direction(board.scores, direction_of_ends(board), grader_name),
            description=description.decode("utf-8", "replace"),
            public=public,
            answers=request.source / answers,
            sample=request.source / sample,
            boards=(board,),
            grader={"kind": "mle-bench", "grade_fn": grade_fn, "python_path": str(request.repository.resolve())},
            known_issues=_checksum_issues(entry / "checksums.yaml", prepared),
        )


def _direction(scores: tuple[float, ...], ends: bool | None, grader: str) -> bool:
    """Whether higher is better. Raises CannotImport where nothing says so, or where two facts contradict each other."""
    known = METRICS.get(SAME_METRIC.get(grader, grader))
    if ends is None and known is None:
        raise CannotImport(
            Trouble.BAD_LEADERBOARD,
            f"its leaderboard has {len(scores)} entries whose ends do not differ, so which way is better is not known",
        )
    if ends is not None and known is not None and known.higher_is_better != ends:
        raise CannotImport(
            Trouble.BAD_LEADERBOARD,
            f"its leaderboard goes from {scores[0]} to {scores[-1]}, which contradicts its metric `{grader}`",
            "one of the two is wrong: the task cannot be graded until that is settled",
        )
    return known.higher_is_better if known is not None else bool(ends)


def _checksum_issues(path: Path, prepared: Path) -> tuple[str, ...]:
    """Files that differ from the recorded checksums. Not Parquet: its bytes depend on the library that wrote it."""
    if not path.exists():
        return ()
    recorded = _yaml(path.read_bytes(), path)
    issues = []
    for part in ("public", "private"):
        for name, checksum in _flat(recorded.get(part) or {}):
            file = prepared / part / name
            if file.suffix == ".parquet" or not file.is_file() or file.stat().st_size > CHECKSUM_BYTES:
                continue
            if file_md5(file) != checksum:
                issues.append(f"`{part}/{name}` differs from the file that MLE-bench recorded")
    return tuple(issues)


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs = []
    for name, value in tree.items():
        pairs += _flat(value, f"{prefix}{name}/") if isinstance(value, dict) else [(prefix + str(name), str(value))]
    return pairs


def _yaml(content: bytes, path: Path) -> dict[str, Any]:
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "reading MLE-bench needs the package `yaml`, which is not installed", "pip install pyyaml"
        ) from error
    try:
        loaded = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise CannotImport(Trouble.NO_GRADER, f"its `{path}` is not YAML") from error
    return loaded if isinstance(loaded, dict) else {}
