"""The options that several commands share, spelt the same everywhere.

An option that a config file can set is `None` unless given, so that the precedence default < file < flag holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_cli import console
from wmrl_cli.errors import ConfigError


def _quiet(value: bool) -> bool:
    console.settings.quiet = value
    return value


def _fraction(value: float | None) -> float | None:
    if value is not None and not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"a fraction lies in [0, 1]: got `{value}`", "0.1 means that one group in ten is really executed"
        )
    return value


def parse_shard(text: str | None) -> tuple[int, int]:
    """`i/n` as (i, n), 0 <= i < n; (0, 1) where it was not given. Raises ConfigError."""
    if text is None:
        return 0, 1
    first, slash, second = text.partition("/")
    if not (slash and first.isdigit() and second.isdigit() and int(first) < int(second)):
        raise ConfigError(f"`--shard {text}` is not `i/n` with 0 <= i < n", "the first of four shards is `--shard 0/4`")
    return int(first), int(second)


# Files
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Table to write.")]
OutputFolder = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="WMRL_CONFIG",
        help="TOML file with settings; flags win over it [default: none].",
    ),
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        "--tasks", metavar="FILE", envvar="WMRL_TASKS", help="Table of tasks that `wmrl prepare-tasks` wrote."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a target that another configuration wrote [default: refuse].")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done and do nothing [default: do it].")]

# Output for people and programs
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout [default: a table].")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=_quiet, help="No progress and no notes on stderr [default: show them]."),
]

# What is computed
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="N", help="Seed of all random draws, a whole number [default: 0]."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Take only the first N [default: all].")]
BatchRows = Annotated[
    int | None,
    typer.Option("--batch-rows", min=1, metavar="N", help="Rows in a part, the unit of resuming [default: 64]."),
]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="I/N", help="Do only the I-th of N equal shares, from 0 [default: 0/1, everything]."
    ),
]
AnchorFrac = Annotated[
    float | None,
    typer.Option(
        "--anchor-frac",
        callback=_fraction,
        metavar="F",
        help="Share of groups that is really executed, 0 to 1 [default: 0.1].",
    ),
]

# Effects
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", envvar="WMRL_MODEL", help="Model name, local folder or run folder [default: tiny]."
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="Inference engine: transformers | http [default: transformers]."),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", envvar="WMRL_URL", help="Server for `--engine http` [default: none]."),
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="auto | cpu | cuda | cuda:N [default: auto].")
]
Dtype = Annotated[
    str | None, typer.Option("--dtype", metavar="NAME", help="auto | float32 | bfloat16 [default: auto].")
]
SandboxName = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="NAME",
        envvar="WMRL_SANDBOX",
        help="Where scripts run: auto | docker | bubblewrap | unsafe-process [default: auto].",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", min=1, metavar="N", help="Scripts that run at once on this machine [default: 2]."),
]
WallLimit = Annotated[
    float | None,
    typer.Option(
        "--wall-limit",
        min=0.1,
        metavar="SECONDS",
        help="Wall-clock limit of one script, seconds [default: tiny 30, others 1200].",
    ),
]
