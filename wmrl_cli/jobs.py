"""The map stages on their own: open what a stage needs, and run it over a file in resumable parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from wmrl_cli import runner
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.config import build_config
from wmrl_cli.engines.models import resolve_model
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.opening import EngineConfig, model_of_run, open_environment, open_policy, open_world_model, sandbox_config, split_of
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.stages.evaluate import Evaluate, EvaluateConfig
from wmrl_cli.stages.simulate import Score, Simulate, SimulateConfig
from wmrl_cli.tables import EVALUATION, SCORES, TASKS, TRAJECTORIES, rows_to_table
from wmrl_cli.task import Task

Flags = Mapping[str, Any]


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
    tasks_file: Path, output: Path, scores: Path | None, *, model: str, split: str, flags: Flags, where: EngineConfig, force: bool
) -> Job:
    """Let the agent play each task, and the world model answer and score; a part is a task."""
    config = build_config(SimulateConfig, _given(flags))
    tasks = split_of(load_tasks(tasks_file), split, tasks_file)
    targets = {output: TRAJECTORIES, **({scores: SCORES} if scores else {})}
    plan = runner.plan(
        _as_table(tasks), targets, stage="simulate", config={**asdict(config), **_model_identity(model)}, batch_rows=1, force=force
    )

    def open_stage() -> runner.Stage:
        policy = open_policy(model, where)
        world_model = open_world_model(policy, RewardLadder())
        return Simulate(config, tasks, policy.engine, policy.pack, world_model, installed_packages(), with_scores=scores is not None)

    return Job(plan, open_stage)


def score_job(tasks_file: Path, trajectories: Path, scores: Path, *, model: str, where: EngineConfig, batch_rows: int, force: bool) -> Job:
    """Let the world model score scripts that are already written."""
    tasks = load_tasks(tasks_file)
    plan = runner.plan(
        trajectories,
        {scores: SCORES},
        stage="score",
        config={**_model_identity(model), "tasks": {task.task_id: task.digest for task in tasks}},
        reads=TRAJECTORIES,
        batch_rows=batch_rows,
        force=force,
    )
    return Job(plan, lambda: Score(tasks, open_world_model(open_policy(model, where), RewardLadder())))


def evaluate_job(
    tasks_file: Path, output: Path, *, model: str, split: str, flags: Flags, sandbox: Flags, where: EngineConfig, force: bool
) -> Job:
    """Let a policy play each task, really executed; a part is a task."""
    config = build_config(EvaluateConfig, {"policy": model, **_given(flags)})
    tasks = split_of(load_tasks(tasks_file), split, tasks_file)
    spec = resolve_model(model_of_run(model))
    execution = sandbox_config(spec.preset, sandbox)
    identity = {**asdict(config), **_model_identity(model), "sandbox": {**asdict(execution), "slots": None}}
    plan = runner.plan(_as_table(tasks), {output: EVALUATION}, stage="evaluate", config=identity, batch_rows=1, force=force)

    def open_stage() -> runner.Stage:
        environment = open_environment(execution, RewardLadder())
        policy = open_policy(model, where)
        return Evaluate(config, tasks, policy.engine, policy.pack, environment, installed_packages())

    return Job(plan, open_stage)


def _as_table(tasks: list[Task]) -> pa.Table:
    return rows_to_table(TASKS, [task.to_row() for task in tasks])


def _given(flags: Flags) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _model_identity(model: str) -> dict[str, Any]:
    """What decides a model's answers: its name, and its files' sizes and times where it is a local folder."""
    location = resolve_model(model_of_run(model)).location
    folder = Path(location)
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    return {"model": str(location), "model_files": [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]}
