"""wmrl execute: scripts run in a sandbox, their submissions graded outside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_cli import console
from wmrl_cli.cli import options

Trajectories = Annotated[
    Path, typer.Argument(metavar="TRAJECTORIES", help="Table of trajectories whose scripts are executed.")
]
CpuLimit = Annotated[
    float | None,
    typer.Option(
        "--cpu-limit", min=0.1, metavar="SECONDS", help="Processor time of one script, seconds [default: none]."
    ),
]
Memory = Annotated[
    float | None, typer.Option("--memory", min=0.05, metavar="GIB", help="Memory of one script, GiB [default: 2].")
]
MinPerStep = Annotated[
    int | None,
    typer.Option("--min-per-step", min=0, metavar="N", help="Executed groups that a step has at least [default: 0]."),
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Folder of results to use again [default: run everything]."),
]
VerifyCache = Annotated[
    int | None,
    typer.Option(
        "--verify-cache", min=0, metavar="N", help="Cached scripts to run again, counting changes [default: 0]."
    ),
]
BatchRows = Annotated[
    int,
    typer.Option(
        "--batch-rows", min=1, metavar="N", show_default=False, help="Scripts in a part, resumed as one [default: 16]."
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", help="Write lost rows even if the sandbox stopped working [default: stop, exit code 4]."
    ),
]


def execute(
    trajectories: Trajectories,
    output: options.Output,
    tasks: options.Tasks = None,
    anchor_frac: options.AnchorFrac = None,
    min_per_step: MinPerStep = None,
    shard: options.Shard = None,
    limit: options.Limit = None,
    sandbox: options.SandboxName = None,
    slots: options.Slots = None,
    wall_limit: options.WallLimit = None,
    cpu_limit: CpuLimit = None,
    memory: Memory = None,
    cache: Cache = None,
    verify_cache: VerifyCache = None,
    config: options.ConfigFile = None,
    batch_rows: BatchRows = 16,
    seed: options.Seed = None,
    dry_run: options.DryRun = False,
    keep_going: KeepGoing = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run scripts in a sandbox and grade what they submit

    Whole groups are drawn at random by seed and step, so that every shard and every resumed run draws the
    same. Without --tasks the task table is looked for beside the trajectories. A run that our side lost is a
    row without reward. An interrupted run goes on with the same command.

    Examples:

        wmrl execute trajectories.parquet --tasks data/tasks.parquet --anchor-frac 0.1 -o real.parquet

        wmrl execute trajectories.parquet --tasks data/tasks.parquet --anchor-frac 1 --shard 0/4 -o real-0.parquet
    """
    from wmrl_cli import jobs
    from wmrl_cli.config import load_config
    from wmrl_cli.stages.execute import ExecuteConfig, totals
    from wmrl_cli.tables import SCORES, read_table

    flags: dict[str, Any] = {
        "anchor_frac": anchor_frac,
        "min_per_step": min_per_step,
        "shard": options.parse_shard(shard) if shard else None,
        "limit": limit,
        "seed": seed,
        "cache": cache,
        "verify_cache": verify_cache,
        "sandbox.backend": sandbox,
        "sandbox.slots": slots,
        "sandbox.wall_s": wall_limit,
        "sandbox.cpu_s": cpu_limit,
        "sandbox.memory_gib": memory,
    }
    settings = load_config(ExecuteConfig, config, **flags)
    job = jobs.execute_job(
        trajectories,
        jobs.tasks_beside(trajectories, tasks),
        output,
        settings,
        keep_going=keep_going,
        batch_rows=batch_rows,
        force=force,
    )
    if dry_run:
        console.emit(jobs.describe_execution(job, settings), as_json=as_json)
        return
    with console.progress("execute", total=job.total, unit="scripts") as advance:
        for done in job.run():
            advance(done)
    console.emit({"scores": str(output), **totals(read_table(SCORES, output))}, as_json=as_json)
