"""wmrl evaluate: a policy's score by real execution."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_cli import console
from wmrl_cli.cli import options

Samples = Annotated[
    int | None,
    typer.Option("--samples", min=1, metavar="N", help="Trajectories a task [default: 8, the paper's avg@8]."),
]
Split = Annotated[
    str, typer.Option("--split", metavar="NAME", help="Which tasks: train | held_out | all [default: held_out].")
]
Turns = Annotated[
    int | None,
    typer.Option("--turns", min=1, max=4, metavar="N", help="Turns of a trajectory [default: tiny 1, others 4]."),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="FILE",
        help="Evaluation of another policy on the same tasks: print the difference [default: none].",
    ),
]


def evaluate(
    tasks: Annotated[
        Path,
        typer.Option(
            "--tasks", metavar="FILE", envvar="WMRL_TASKS", help="Table of tasks that `wmrl prepare-tasks` wrote."
        ),
    ],
    output: options.Output,
    model: options.Model = None,
    samples: Samples = None,
    split: Split = "held_out",
    turns: Turns = None,
    against: Against = None,
    engine: options.EngineName = None,
    url: options.Url = None,
    device: options.Device = None,
    sandbox: options.SandboxName = None,
    slots: options.Slots = None,
    wall_limit: options.WallLimit = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a policy on tasks by real execution

    Each task is played --samples times; scores are means with 95 % intervals from a bootstrap over tasks.
    The random draw depends on the seed and the task alone, so two policies are compared on one draw. An
    interrupted evaluation goes on with the same command.

    Examples:

        wmrl evaluate --model tiny --tasks data/tasks.parquet -o before.parquet

        wmrl evaluate --model runs/first --tasks data/tasks.parquet -o after.parquet --against before.parquet
    """
    from wmrl_cli import jobs
    from wmrl_cli.opening import EngineConfig
    from wmrl_cli.report.evaluation import read_result, render_result

    flags: dict[str, Any] = {"samples": samples, "turns": turns, "seed": seed}
    job = jobs.evaluate_job(
        tasks,
        output,
        model=model or "tiny",
        split=split,
        flags=flags,
        sandbox={"backend": sandbox, "slots": slots, "wall_s": wall_limit},
        where=EngineConfig(engine=engine or "transformers", device=device or "auto", url=url),
        force=force,
    )
    with console.progress("evaluate", total=job.total, unit="tasks") as advance:
        for done in job.run():
            advance(done)
    result = read_result(output, against)
    console.emit(result, as_json=as_json, render=lambda: render_result(result))
