"""wmrl prepare-tasks: data, inventory, answers and leaderboards of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wmrl_cli import console
from wmrl_cli.cli import options
from wmrl_cli.errors import ConfigError, StageError

if TYPE_CHECKING:
    from wmrl_cli.stages.prepare import Prepared

Suite = Annotated[str, typer.Argument(metavar="SUITE", help="offline | mle-dojo | mle-bench | dsbench.")]
OutputFolder = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for tasks.parquet and the tasks' files.")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Folder with an imported suite's prepared data [default: none].",
    ),
]
Repository = Annotated[
    Path | None,
    typer.Option(
        "--repo",
        metavar="DIR",
        help="Its repository: graders, leaderboards [default: the folder of --from].",
    ),
]
Names = Annotated[str | None, typer.Option("--tasks", metavar="A,B", help="Only these tasks, by name [default: all].")]
ListOnly = Annotated[
    bool, typer.Option("--list", help="Say which tasks there are and write nothing [default: prepare].")
]
SkipIssues = Annotated[
    bool,
    typer.Option(
        "--skip-known-issues", help="Leave out tasks with known leaks and other issues [default: keep and say so]."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if any task failed [default: only if all did].")]


def prepare_tasks(
    suite: Suite,
    output: OutputFolder = None,
    source: Source = None,
    repository: Repository = None,
    tasks: Names = None,
    list_only: ListOnly = False,
    skip_known_issues: SkipIssues = False,
    strict: Strict = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Prepare a suite: data, inventory, answers, leaderboards

    `offline` needs no download. The other suites are read from where their own tools prepared them.

    Examples:

        wmrl prepare-tasks offline -o data/

        wmrl prepare-tasks mle-dojo --from prepared/ --repo MLE-Dojo/ -o data/
    """
    from wmrl_cli.stages.prepare import PrepareConfig, list_tasks, prepare

    config = PrepareConfig(
        suite=suite,
        out=output or Path(),
        source=source,
        repository=repository,
        tasks=None if tasks is None else tuple(name.strip() for name in tasks.split(",") if name.strip()),
        skip_known_issues=skip_known_issues,
        force=force,
    )
    if list_only:
        rows = list_tasks(config)
        console.emit({"suite": suite, "tasks": rows}, as_json=as_json, render=lambda: _listing(rows))
        return
    if output is None:
        raise ConfigError(
            "`wmrl prepare-tasks` needs `-o DIR`", f"`wmrl prepare-tasks {suite} -o data/` writes `data/tasks.parquet`"
        )
    prepared = prepare(config)
    for failure in prepared.failures:
        console.warn(f"`{failure.task_id}` is left out ({failure.trouble}): {failure.reason}")
    for task_id, issues in prepared.known_issues.items():
        for issue in issues:
            console.warn(f"`{task_id}`: {issue}")
    summary = _summary(prepared, output / "tasks.parquet")
    console.emit(summary, as_json=as_json, render=lambda: _overview(summary))
    if strict and prepared.failures:
        raise StageError(f"{len(prepared.failures)} tasks could not be prepared", prepared.failures[0].hint)


def _summary(prepared: Prepared, path: Path) -> dict[str, Any]:
    rows = prepared.table.to_pylist()
    return {
        "output": str(path),
        "tasks": [_task_line(row) for row in rows],
        "train": sum(row["split"] == "train" for row in rows),
        "held_out": sum(row["split"] == "held_out" for row in rows),
        "failures": [
            {"task_id": failure.task_id, "trouble": str(failure.trouble), "reason": failure.reason}
            for failure in prepared.failures
        ],
    }


def _task_line(row: dict[str, Any]) -> dict[str, Any]:
    """What a person wants to know of a task; rows and columns are those of its largest table that is not the sample."""
    tables = [file for file in row["inventory"] if file["kind"] == "csv" and "sample" not in file["path"]]
    largest = max(tables, key=lambda file: file["rows"], default=None)
    columns = largest["columns"] if largest else []
    return {
        "task_id": row["task_id"],
        "split": row["split"],
        "category": row["category"],
        "metric": row["metric"],
        "higher_is_better": row["higher_is_better"],
        "rows": largest["rows"] if largest else None,
        "columns": len(columns) if largest else None,
        "missing": sum(column["missing"] for column in columns) / len(columns) if columns else None,
        "test_rows": row["contract"]["rows"],
        "board": min((len(board["scores"]) for board in row["leaderboards"]), default=0),
        "known_issues": row["known_issues"],
    }


def _overview(summary: dict[str, Any]) -> Any:
    rows = [
        (
            line["task_id"],
            line["split"],
            line["category"],
            line["metric"] + (" ↑" if line["higher_is_better"] else " ↓"),
            line["rows"],
            line["test_rows"],
            line["columns"],
            None if line["missing"] is None else f"{line['missing']:.0%}",
            line["board"],
        )
        for line in summary["tasks"]
    ]
    heads = ("task", "split", "category", "metric", "rows", "test rows", "columns", "missing", "board")
    title = f"{summary['train']} training and {summary['held_out']} held-out tasks in {summary['output']}"
    return console.table(heads, rows, title=title)


def _listing(rows: list[dict[str, str]]) -> Any:
    names = [name for name in ("task_id", "split", "category", "metric", "title", "source") if rows and name in rows[0]]
    return console.table(names, [[row[name] for name in names] for row in rows])
