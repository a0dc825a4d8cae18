"""The prepare stage: a suite's name and perhaps a folder on disk -> task folders and `tasks.parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from wmrl_cli.benchmarks import dsbench, mle_bench, mle_dojo, offline
from wmrl_cli.benchmarks.importing import Failure, Importer, ImportRequest, import_suite
from wmrl_cli.benchmarks.offline_specs import SUITE as OFFLINE
from wmrl_cli.benchmarks.offline_specs import load_specs
from wmrl_cli.errors import ConfigError, StageError
from wmrl_cli.names import unknown_name
from wmrl_cli.tables import TASKS, check_kind, provenance, rows_to_table, write_table
from wmrl_cli.task import Task

IMPORTERS: dict[str, Importer] = {
    "mle-dojo": mle_dojo.MleDojo(),
    "mle-bench": mle_bench.MleBench(),
    "dsbench": dsbench.DsBench(),
}
SUITES = (OFFLINE, *IMPORTERS)


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """What to prepare. `source` holds the data of an imported suite, `repository` its graders and leaderboards."""

    suite: str
    out: Path
    source: Path | None = None
    repository: Path | None = None  # null: look in `source`
    tasks: tuple[str, ...] | None = None  # null: all that are there
    skip_known_issues: bool = False
    force: bool = False  # replace the table of another suite


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The table that was written, and what could not be prepared and why."""

    table: pa.Table
    failures: tuple[Failure, ...] = field(default=())

    @property
    def known_issues(self) -> dict[str, list[str]]:
        """The known issues of the tasks that have some, by task id."""
        rows = self.table.select(["task_id", "known_issues"]).to_pylist()
        return {row["task_id"]: row["known_issues"] for row in rows if row["known_issues"]}


def prepare(config: PrepareConfig) -> Prepared:
    """Prepare a suite and write `out/tasks.parquet`. Raises ConfigError, UnavailableError or StageError.

    A task of an imported suite that cannot be prepared is a failure in the result, and the others go on;
    only when none is left is it an error.
    """
    check_suite(config)
    target = config.out / "tasks.parquet"
    if target.exists() and not config.force:
        found = check_kind(TASKS, target).get("config", {}).get("suite", "?")
        if found != config.suite:
            raise ConfigError(
                f"`{target}` holds the suite `{found}`, not `{config.suite}`",
                "give another folder with `-o`, or `--force` to replace the table",
            )
    if config.suite == OFFLINE:
        return Prepared(table=offline.prepare_offline(config.out, config.tasks))
    assert config.source is not None
    request = ImportRequest(
        suite=config.suite,
        source=config.source,
        repository=config.repository or config.source,
        out=config.out,
        skip_known_issues=config.skip_known_issues,
    )
    tasks, failures = import_suite(IMPORTERS[config.suite], request, config.tasks)
    if not tasks:
        first = f", the first one `{failures[0].task_id}`: {failures[0].reason}" if failures else ""
        raise StageError(
            f"no task of `{config.suite}` could be prepared from `{config.source}`, {len(failures)} failed{first}",
            failures[0].hint if failures else IMPORTERS[config.suite].layout,
        )
    return Prepared(table=_write(tasks, target, config), failures=tuple(failures))


def _write(tasks: Sequence[Task], target: Path, config: PrepareConfig) -> pa.Table:
    table = rows_to_table(TASKS, [task.to_row() for task in tasks])
    settings = {"suite": config.suite, "source": str(config.source), "tasks": [task.task_id for task in tasks]}
    write_table(TASKS, table, target, provenance=provenance("prepare-tasks", config=settings))
    return table


def check_suite(config: PrepareConfig) -> None:
    """Refuse an unknown suite, and a source folder that is missing, or given for the offline suite."""
    if config.suite not in SUITES:
        raise ConfigError(*unknown_name("suite", config.suite, SUITES))
    if config.suite == OFFLINE:
        if config.source is not None:
            raise ConfigError("the suite `offline` needs no `--from`", "its data come with installed packages")
        return
    if config.source is None:
        raise ConfigError(f"the suite `{config.suite}` needs `--from DIR`", IMPORTERS[config.suite].layout)
    for folder in (config.source, config.repository):
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"`{folder}` is not a folder", IMPORTERS[config.suite].layout)


def list_tasks(config: PrepareConfig) -> list[dict[str, str]]:
    """Names and what is known before preparing, for `--list`: nothing is written."""
    check_suite(config)
    if config.suite == OFFLINE:
        specs = load_specs().values()
        names = ("task_id", "split", "category", "metric", "title", "source", "licence")
        return [{name: str(getattr(spec, name)) for name in names} for spec in specs]
    assert config.source is not None
    return [
        {"task_id": name} for name in IMPORTERS[config.suite].names(config.source, config.repository or config.source)
    ]
