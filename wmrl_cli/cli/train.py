"""wmrl train: the whole of World Model RL with one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wmrl_cli import console
from wmrl_cli.cli import options

Steps = Annotated[
    int | None, typer.Option("--steps", min=1, metavar="N", help="Optimiser steps [default: tiny 30, others 100].")
]
Groups = Annotated[
    int | None, typer.Option("--groups-per-step", min=1, metavar="N", help="Groups (tasks) in a step [default: 8].")
]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", min=2, metavar="N", help="Trajectories in a group [default: 8].")
]
Turns = Annotated[
    int | None,
    typer.Option("--turns", min=1, max=4, metavar="N", help="Turns of a trajectory [default: tiny 1, others 4]."),
]
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", metavar="RATE", help="Constant learning rate [default: tiny 3e-4, others 1e-6]."),
]
Kl = Annotated[
    float | None,
    typer.Option("--kl", metavar="WEIGHT", help="Weight of the KL divergence from the start [default: 0.04]."),
]
MinAnchors = Annotated[
    int | None,
    typer.Option(
        "--min-anchors-per-step", min=0, metavar="N", help="Anchor groups that every step has at least [default: 0]."
    ),
]
Feedback = Annotated[
    str | None,
    typer.Option(
        "--anchor-feedback",
        metavar="WHO",
        help="Who answers an anchor's turns: executed | simulated [default: executed].",
    ),
]
NoDebias = Annotated[
    bool, typer.Option("--no-debias", help="Train on the world model's raw scores [default: isotonic map].")
]
NoDenoise = Annotated[bool, typer.Option("--no-denoise", help="Weigh both streams alike [default: inverse variance].")]
AnchorsOnly = Annotated[
    bool,
    typer.Option(
        "--anchors-only", help="Drop the simulated groups: GRPO at the same execution budget [default: keep them]."
    ),
]
WorldModelName = Annotated[
    str | None,
    typer.Option("--world-model", metavar="NAME", help="Model of the frozen world model [default: the agent's own]."),
]
WorldModelUrl = Annotated[
    str | None,
    typer.Option(
        "--world-model-url",
        metavar="URL",
        help="OpenAI-compatible server that serves the world model [default: this process].",
    ),
]
Every = Annotated[
    int | None,
    typer.Option("--checkpoint-every", min=1, metavar="N", help="Steps between checkpoints [default: 5]."),
]


def train(
    model: options.Model = None,
    anchor_frac: options.AnchorFrac = None,
    tasks: options.Tasks = None,
    output: options.OutputFolder = Path("runs/wmrl"),
    steps: Steps = None,
    groups_per_step: Groups = None,
    group_size: GroupSize = None,
    turns: Turns = None,
    learning_rate: LearningRate = None,
    kl: Kl = None,
    min_anchors_per_step: MinAnchors = None,
    anchor_feedback: Feedback = None,
    no_debias: NoDebias = False,
    no_denoise: NoDenoise = False,
    anchors_only: AnchorsOnly = False,
    world_model: WorldModelName = None,
    world_model_url: WorldModelUrl = None,
    sandbox: options.SandboxName = None,
    slots: options.Slots = None,
    wall_limit: options.WallLimit = None,
    device: options.Device = None,
    checkpoint_every: Every = None,
    seed: options.Seed = None,
    config: options.ConfigFile = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Post-train an agent on simulated and a few executed groups

    The run folder holds every step's tables, checkpoints, the trained model and calibration.json. The same
    command on the same folder goes on where it was stopped. Without --tasks the offline suite is prepared
    in the run folder. Started by `torchrun`, all its processes train together, one a GPU.

    Examples:

        wmrl train --model tiny --anchor-frac 0.1 -o runs/first

        wmrl train --model qwen3.5-4b --anchor-frac 0.1 --tasks data/tasks.parquet -o runs/4b

        torchrun --nproc-per-node gpu -m wmrl_cli train --model qwen3.5-9b --tasks data/tasks.parquet -o runs/9b
    """
    flags: dict[str, Any] = {
        "model": model,
        "anchor_frac": anchor_frac,
        "steps": steps,
        "groups_per_step": groups_per_step,
        "group_size": group_size,
        "rollout.turns": turns,
        "learner.learning_rate": learning_rate,
        "learner.kl": kl,
        "min_anchors_per_step": min_anchors_per_step,
        "anchor_feedback": anchor_feedback,
        "calibration.debias": False if no_debias else None,
        "calibration.denoise": False if no_denoise else None,
        "anchors_only": True if anchors_only else None,
        "world_model": world_model,
        "world_model_url": world_model_url,
        "sandbox.backend": sandbox,
        "sandbox.slots": slots,
        "sandbox.wall_s": wall_limit,
        "device": device,
        "checkpoint_every": checkpoint_every,
        "seed": seed,
    }
    from wmrl_cli.training.session import describe, in_job, resolve, train_run

    with in_job():
        settings = resolve(config, flags)
        if dry_run:
            console.emit(describe(settings), as_json=as_json)
            return
        with console.progress("train", total=settings.steps, unit="steps") as advance:
            result = train_run(settings, tasks, output, advance)
        console.emit(result, as_json=as_json)
