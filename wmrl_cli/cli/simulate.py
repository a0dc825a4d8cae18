"""wmrl simulate: scripts by the agent, outcomes by the world model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_cli import console
from wmrl_cli.cli import options
from wmrl_cli.errors import ConfigError

TasksIn = Annotated[Path | None, typer.Argument(metavar="[TASKS]", help="Table of tasks to play.")]
Trajectories = Annotated[
    Path | None,
    typer.Option(
        "--trajectories", metavar="FILE", help="Score these logged scripts instead of writing new ones [default: none]."
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Trajectories to write.")]
Scores = Annotated[
    Path | None, typer.Option("--scores", metavar="FILE", help="The world model's scores to write [default: none].")
]
Split = Annotated[
    str, typer.Option("--split", metavar="NAME", help="Which tasks: train | held_out | all [default: train].")
]
GroupsPerTask = Annotated[
    int | None,
    typer.Option("--groups-per-task", min=1, metavar="N", help="Groups of trajectories a task [default: 1]."),
]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", min=1, metavar="N", help="Trajectories in a group [default: 8].")
]
Turns = Annotated[
    int | None,
    typer.Option("--turns", min=1, max=4, metavar="N", help="Turns of a trajectory [default: tiny 1, others 4]."),
]
NewTokens = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens", min=1, metavar="N", help="Longest reply of a turn, tokens [default: tiny's pack, 4096]."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", min=0.0, metavar="T", help="Sampling temperature, 0 is greedy [default: 1]."),
]


def simulate(
    tasks: TasksIn = None,
    trajectories: Trajectories = None,
    task_table: options.Tasks = None,
    output: Output = None,
    scores: Scores = None,
    model: options.Model = None,
    split: Split = "train",
    groups_per_task: GroupsPerTask = None,
    group_size: GroupSize = None,
    turns: Turns = None,
    max_new_tokens: NewTokens = None,
    temperature: Temperature = None,
    engine: options.EngineName = None,
    url: options.Url = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    shard: options.Shard = None,
    batch_rows: options.BatchRows = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write scripts and let the world model predict them

    With --trajectories nothing is written by the agent: the world model scores scripts that are there.
    Trajectories of our own table carry no data, so their task table is needed too (--tasks).

    Examples:

        wmrl simulate data/tasks.parquet --model tiny -o trajectories.parquet --scores wm.parquet

        wmrl simulate --trajectories trajectories.parquet --tasks data/tasks.parquet --scores wm.parquet

        wmrl simulate data/tasks.parquet --shard 0/4 -o trajectories-0.parquet --scores wm-0.parquet
    """
    from wmrl_cli import jobs
    from wmrl_cli.opening import EngineConfig
    from wmrl_cli.report.scores import summarise_scores

    where = EngineConfig(engine=engine or "transformers", device=device or "auto", dtype=dtype or "auto", url=url)
    table = tasks or task_table
    if table is None:
        raise ConfigError(
            "`wmrl simulate` needs a table of tasks",
            "`wmrl prepare-tasks offline -o data/` writes `data/tasks.parquet`",
        )
    if trajectories is not None:
        if scores is None or output is not None:
            raise ConfigError("with `--trajectories` the result goes to `--scores FILE`, and `-o` has no meaning")
        job = jobs.score_job(
            table,
            trajectories,
            scores,
            model=model or "tiny",
            where=where,
            shard=options.parse_shard(shard),
            batch_rows=batch_rows or 64,
            force=force,
        )
        unit = "turns"
    else:
        if output is None:
            raise ConfigError("`wmrl simulate` needs `-o FILE` for the trajectories")
        flags: dict[str, Any] = {
            "groups_per_task": groups_per_task,
            "group_size": group_size,
            "turns": turns,
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "seed": seed,
        }
        job = jobs.simulate_job(
            table,
            output,
            scores,
            model=model or "tiny",
            split=split,
            flags=flags,
            where=where,
            shard=options.parse_shard(shard),
            force=force,
        )
        unit = "tasks"
    with console.progress("simulate", total=job.total, unit=unit) as advance:
        for done in job.run():
            advance(done)
    console.emit(summarise_scores(output, scores), as_json=as_json)
