"""The map stages on their own: open what a stage needs, and run it over a file in resumable parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from wmrl_cli import runner
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.config import load_config
from wmrl_cli.engines.models import resolve_model
from wmrl_cli.errors import ConfigError
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.opening import (
    EngineConfig,
    model_of_run,
    open_environment,
    open_policy,
    open_world_model,
    sandbox_config,
    split_of,
)
from wmrl_cli.sandbox.cache import ResultCache
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.stages.evaluate import Evaluate, EvaluateConfig
from wmrl_cli.stages.execute import Execute, ExecuteConfig, choose_rows, estimate, read_scripts
from wmrl_cli.stages.simulate import Score, Simulate, SimulateConfig
from wmrl_cli.tables import EVALUATION, SCORES, TASKS, TRAJECTORIES, check_kind, read_table, rows_to_table
from wmrl_cli.task import Task

Flags = Mapping[str, Any]
Shard = tuple[int, int]  # (i, n): every n-th row from the i-th
WHOLE: Shard = (0, 1)


@dataclass(frozen=True)
class Job:
    """Work that is planned but not begun; `open` makes the stage, and is only called where parts are missing."""

    plan: runner.Plan
    open: Callable[[], runner.Stage]

    @property
    def total(self) -> int:
        return self.plan.rows

    def run(self) -> Iterator[int]:
        """Do it, yielding the rows done so far."""
        if self.plan.finished:
            yield self.plan.rows
            return
        yield from runner.run(self.plan, self.open())


def simulate_job(
    tasks_file: Path,
    output: Path,
    scores: Path | None,
    *,
    model: str,
    split: str,
    flags: Flags,
    where: EngineConfig,
    shard: Shard,
    force: bool,
) -> Job:
    """Let the agent play each task, and the world model answer and score; a part is a task."""
    config = load_config(SimulateConfig, **flags)
    tasks = split_of(load_tasks(tasks_file), split, tasks_file)
    tasks = [tasks[index] for index in _share(len(tasks), shard, "tasks")]
    targets = {output: TRAJECTORIES, **({scores: SCORES} if scores else {})}
    plan = runner.plan(
        _as_table(tasks),
        targets,
        stage="simulate",
        config={**asdict(config), **_model_identity(model)},
        batch_rows=1,
        force=force,
    )

    def open_stage() -> runner.Stage:
        policy = open_policy(model, where)
        world_model = open_world_model(policy, RewardLadder())
        return Simulate(
            config, tasks, policy.engine, policy.pack, world_model, installed_packages(), with_scores=scores is not None
        )

    return Job(plan, open_stage)


def score_job(
    tasks_file: Path,
    trajectories: Path,
    scores: Path,
    *,
    model: str,
    where: EngineConfig,
    shard: Shard,
    batch_rows: int,
    force: bool,
) -> Job:
    """Let the world model score scripts that are already written; a part is `batch_rows` turns."""
    tasks = load_tasks(tasks_file)
    rows: Path | pa.Table = trajectories
    if shard != WHOLE:
        table = read_table(TRAJECTORIES, trajectories)
        rows = table.take(_share(table.num_rows, shard, "turns"))
    plan = runner.plan(
        rows,
        {scores: SCORES},
        stage="score",
        config={**_model_identity(model), "tasks": {task.task_id: task.digest for task in tasks}},
        reads=TRAJECTORIES,
        batch_rows=batch_rows,
        force=force,
    )
    return Job(plan, lambda: Score(tasks, open_world_model(open_policy(model, where), RewardLadder())))


def _share(rows: int, shard: Shard, what: str) -> list[int]:
    """The rows of one shard. Raises ConfigError where none is left for it."""
    first, every = shard
    share = list(range(first, rows, every))
    if not share:
        raise ConfigError(f"shard `{first}/{every}` has nothing to do: there are {rows} {what}", "use fewer shards")
    return share


def tasks_beside(trajectories: Path, tasks_file: Path | None) -> Path:
    """The task table that was named, else the one that lies beside the trajectories.

    Raises ConfigError where there is none, TableError where the trajectories themselves are not there.
    """
    check_kind(TRAJECTORIES, trajectories)
    if tasks_file is not None:
        return tasks_file
    places = [trajectories.with_name("tasks.parquet"), trajectories.parent / "data" / "tasks.parquet"]
    for place in places:
        if place.exists():
            return place
    raise ConfigError(
        f"`{places[0]}` does not exist, so the trajectories' tasks are not known", "name their table with --tasks"
    )


def execute_job(
    trajectories: Path,
    tasks_file: Path,
    output: Path,
    config: ExecuteConfig,
    *,
    keep_going: bool,
    batch_rows: int,
    force: bool,
) -> Job:
    """Run the scripts of drawn groups for real; a part is `batch_rows` turns."""
    tasks = load_tasks(tasks_file)
    chosen = choose_rows(read_scripts(trajectories, tasks), config)
    identity = asdict(config)
    del identity["sandbox"]["slots"], identity["cache"], identity["verify_cache"]
    identity |= {
        "trajectories": runner.file_digest(trajectories),
        "task_digests": {task.task_id: task.digest for task in tasks},
    }
    plan = runner.plan(chosen, {output: SCORES}, stage="execute", config=identity, batch_rows=batch_rows, force=force)

    def open_stage() -> runner.Stage:
        cache = ResultCache(config.cache, verify=config.verify_cache) if config.cache else None
        environment = open_environment(config.sandbox, config.reward, cache)
        return Execute(tasks, environment, None if keep_going else environment.sandbox.preflight)

    return Job(plan, open_stage)


def describe_execution(job: Job, config: ExecuteConfig) -> dict[str, Any]:
    """What a planned execution would do, for `--dry-run`: its time is judged by the parts that an earlier run wrote."""
    plan = job.plan
    written = [plan.part(index, SCORES) for index in range(plan.parts) if plan.done(index)]
    walls = [
        wall for part in written for wall in read_table(SCORES, part).column("wall_s").to_pylist() if wall is not None
    ]
    left = 0 if plan.finished else plan.rows - plan.rows_done
    return {
        "scripts": plan.rows,
        "left": left,
        **estimate(left, walls, slots=config.sandbox.slots, wall_limit_s=config.sandbox.wall_s),
        **asdict(config.sandbox),
    }


def evaluate_job(
    tasks_file: Path,
    output: Path,
    *,
    model: str,
    split: str,
    flags: Flags,
    sandbox: Flags,
    where: EngineConfig,
    force: bool,
) -> Job:
    """Let a policy play each task, really executed; a part is a task."""
    config = load_config(EvaluateConfig, policy=model, **flags)
    tasks = split_of(load_tasks(tasks_file), split, tasks_file)
    spec = resolve_model(model_of_run(model))
    execution = sandbox_config(spec.preset, sandbox)
    identity = {**asdict(config), **_model_identity(model), "sandbox": {**asdict(execution), "slots": None}}
    plan = runner.plan(
        _as_table(tasks), {output: EVALUATION}, stage="evaluate", config=identity, batch_rows=1, force=force
    )

    def open_stage() -> runner.Stage:
        environment = open_environment(execution, RewardLadder())
        policy = open_policy(model, where, execution)
        packages = environment.sandbox.packages
        return Evaluate(config, tasks, policy.engine, policy.pack, environment, packages)

    return Job(plan, open_stage)


def _as_table(tasks: list[Task]) -> pa.Table:
    return rows_to_table(TASKS, [task.to_row() for task in tasks])


def _model_identity(model: str) -> dict[str, Any]:
    """What decides a model's answers: its name, and its files' sizes and times where it is a local folder."""
    location = resolve_model(model_of_run(model)).location
    folder = Path(location)
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    return {
        "model": str(location),
        "model_files": [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files],
    }
