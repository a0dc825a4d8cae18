"""A training run from its options to its result: resolve, prepare, train, export."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.config import read_toml
from wmrl_cli.engines.models import resolve_model
from wmrl_cli.launch import this_rank
from wmrl_cli.opening import split_of
from wmrl_cli.task import TRAIN, Task
from wmrl_cli.training.config import TrainConfig, train_config
from wmrl_cli.training.run_folder import RunFolder

Advance = Callable[[int, str], None]


def resolve(file: Path | None, flags: Mapping[str, Any]) -> TrainConfig:
    """The run's configuration. The model decides the preset, so it is looked up first."""
    model = flags.get("model") or (read_toml(file).get("model") if file else None) or TrainConfig.model
    return train_config(resolve_model(str(model)).preset, file, flags)


def describe(config: TrainConfig) -> dict[str, Any]:
    """What the run would do, for `--dry-run`."""
    trajectories = config.steps * config.groups_per_step * config.group_size
    return {
        **asdict(config),
        "identity": config.identity,
        "trajectories": trajectories,
        "trajectories_executed": round(trajectories * config.anchor_frac),
    }


def in_job() -> AbstractContextManager[None]:
    """This process's life as one of the ranks that `torchrun` started; nothing without it. See `ranks.job`."""
    if this_rank().world == 1:
        return nullcontext()
    from wmrl_cli.learner import ranks

    return ranks.job()


def train_run(config: TrainConfig, tasks_file: Path | None, output: Path, advance: Advance) -> dict[str, Any]:
    """Train in `output` and leave `output/model`. Returns the run's summary, on the first rank of a job.

    Calls `advance` after each step.
    """
    from wmrl_cli.learner import ranks
    from wmrl_cli.training.loop import run_steps
    from wmrl_cli.training.start import open_training

    with RunFolder(output, config, writes=ranks.is_first()) as run:
        if ranks.is_first():
            prepare_tasks(tasks_file, output)
        ranks.gather("prepared")
        tasks = training_tasks(tasks_file, output)
        run.check_tasks(tasks)
        effects, learner = open_training(config)
        gc.collect()  # an interrupt that comes while some library's garbage is destroyed would be lost in there
        for row in run_steps(config, tasks, effects, learner, run):
            advance(int(row["step"]) + 1, _words(row))
        if effects.world_model is not None:
            effects.world_model.check_frozen()
        learner.export(output / "model")
        return summarise_run(run.metrics(), output) if run.writes else {}


def prepare_tasks(tasks_file: Path | None, output: Path) -> None:
    """Prepare the offline suite below the run folder, where no tasks are named and none are there yet."""
    from wmrl_cli.benchmarks.offline import prepare_offline

    if tasks_file is None and not _own_tasks(output).exists():
        prepare_offline(_own_tasks(output).parent)


def training_tasks(tasks_file: Path | None, output: Path) -> list[Task]:
    """The tasks to train on: those of `tasks_file`, else those that `prepare_tasks` made."""
    source = tasks_file or _own_tasks(output)
    return split_of(load_tasks(source), TRAIN, source)


def _own_tasks(output: Path) -> Path:
    return output / "data" / "tasks.parquet"


def summarise_run(metrics: pa.Table, output: Path) -> dict[str, Any]:
    """The run in a few numbers; `speed_up` compares with executing every script on the same slots."""
    columns = {name: np.array(metrics.column(name).to_pylist(), dtype=float) for name in metrics.schema.names}
    stages = ("generate", "simulate", "execute", "wait", "train", "step")
    seconds = {name: float(np.nansum(columns[f"seconds_{name}"])) for name in stages}
    return {
        "run": str(output),
        "model": str(output / "model"),
        "steps": metrics.num_rows,
        "trajectories": int(columns["trajectories"].sum()),
        "scripts_executed": int(columns["scripts_executed"].sum()),
        "anchor_share_realised": _mean(columns["anchors"]) / max(1.0, _mean(columns["groups"])),
        "pairs": int(np.nanmax(columns["pairs"], initial=0)),
        "map_version": int(columns["map_version"][-1]),
        "rho": float(columns["rho"][-1]),
        "reward_used_first_5": _mean(columns["reward_used"][:5]),
        "reward_used_last_5": _mean(columns["reward_used"][-5:]),
        "lost_world_model": int(np.nansum(columns["lost_world_model"])),
        "lost_sandbox": int(np.nansum(columns["lost_sandbox"])),
        **{f"seconds_{name}": value for name, value in seconds.items()},
        "speed_up": _mean(columns["speed_up"]),
    }


def _mean(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _words(row: Mapping[str, Any]) -> str:
    """A step in a few words for the progress line."""
    parts = [f"reward {row['reward_used']:.3f}" if row["reward_used"] is not None else "no group trained"]
    if row["reward_real"] is not None:
        parts.append(f"real {row['reward_real']:.3f}")
    parts += [f"rho {row['rho']:.2f}", f"pairs {int(row['pairs'] or 0)}"]
    return ", ".join(parts)
