"""MLE-Dojo, prepared by its own scripts: `<root>/<task>/data/{public,private}` and the repository's metric classes."""

from __future__ import annotations

import ast
from pathlib import Path

from wmrl_cli.benchmarks.foreign import describe_metric
from wmrl_cli.benchmarks.importing import (
    CannotImport,
    Draft,
    ImportRequest,
    Trouble,
    paper_split,
    read_board,
    read_file,
)
from wmrl_cli.errors import UnavailableError
from wmrl_cli.task import TRAIN, Leaderboard

COMPETITIONS = Path("mledojo") / "competitions"


class MleDojo:
    """Two boards a task (public and private), position as MLE-Dojo computes it, direction from the metric class."""

    layout = (
        "`--from` holds `<task>/data/public` and `<task>/data/private`, "
        "`--repo` the repository with `mledojo/competitions`"
    )

    def names(self, source: Path, repository: Path) -> list[str]:
        """Tasks with a data folder, or with an entry in the repository and a folder in `source`."""
        folders = sorted(path.name for path in source.iterdir() if path.is_dir())
        known = repository / COMPETITIONS
        return [name for name in folders if (source / name / "data").is_dir() or (known / name).is_dir()]

    def draft(self, name: str, request: ImportRequest) -> Draft:
        data, entry = request.source / name / "data", request.repository / COMPETITIONS / name
        public, private = data / "public", data / "private"
        if not public.is_dir() or not private.is_dir():
            raise _not_prepared(name, data, entry)
        metric = entry / "utils" / "metric.py"
        read_file(metric, Trouble.NO_GRADER, "metric", self.layout)
        try:
            class_name, higher_is_better = describe_metric(metric)
        except UnavailableError as error:
            raise CannotImport(Trouble.NO_GRADER, error.message, error.hint) from error
        description = read_file(public / "description.txt", Trouble.NO_DESCRIPTION, "description")
        split, category = paper_split().get(name, (TRAIN, "tabular"))
        return Draft(
            task_id=name,
            category=category,
            split=split,
            metric=f"mle-dojo:{class_name}",
            higher_is_better=higher_is_better,
            description=description.decode("utf-8", "replace"),
            public=public,
            answers=private / "test_answer.csv",
            sample=public / "sample_submission.csv",
            boards=dojo_boards(private if (private / "private_leaderboard.csv").exists() else entry / "info"),
            grader={"kind": "mle-dojo", "script": metric.name},
            grader_files=(metric,),
        )


def dojo_boards(folder: Path) -> tuple[Leaderboard, ...]:
    """The private and the public board of a task; scores stand in the second column. Raises CannotImport."""
    return tuple(read_board(folder / f"{name}_leaderboard.csv", name, 1) for name in ("private", "public"))


def _not_prepared(name: str, data: Path, entry: Path) -> CannotImport:
    preparer = entry / "utils" / "prepare.py"
    if preparer.exists() and is_stub(preparer.read_text(errors="replace")):
        return CannotImport(
            Trouble.NO_PREPARER,
            f"its data are not in `{data}`, and MLE-Dojo ships no preparer for `{name}`: `{preparer}` is an empty stub",
            "prepare it by hand, or leave it out",
        )
    return CannotImport(
        Trouble.NOT_PREPARED,
        f"its data are not in `{data}`",
        "run MLE-Dojo's own `prepare/mle.py`: wmrl never downloads from Kaggle",
    )


def is_stub(source: str) -> bool:
    """Whether a preparer does nothing: no function with a statement beyond a docstring, `pass`, a print or a raise."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return not any(_does_something(statement) for function in functions for statement in function.body)


def _does_something(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Raise() | ast.Expr(value=ast.Constant()):
            return False
        case ast.Return(value=None | ast.Constant()):
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return False
    return True
