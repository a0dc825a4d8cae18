"""The `wmrl` command: a list of subcommands, each imported only when it is called."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from wmrl_cli import __version__

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@dataclass(frozen=True)
class Entry:
    """Where a subcommand's function lives, and its line in the overview (the function's first docstring line)."""

    target: str  # module:function
    summary: str


COMMANDS = {
    "prepare-tasks": Entry(
        "wmrl_cli.cli.prepare_tasks:prepare_tasks", "Prepare a suite: data, inventory, answers, leaderboards"
    ),
    "simulate": Entry("wmrl_cli.cli.simulate:simulate", "Write scripts and let the world model predict them"),
    "execute": Entry("wmrl_cli.cli.execute:execute", "Run scripts in a sandbox and grade what they submit"),
    "calibrate": Entry(
        "wmrl_cli.cli.calibrate:calibrate", "Fit the map from predicted to real scores on pairs of both"
    ),
    "train": Entry("wmrl_cli.cli.train:train", "Post-train an agent on simulated and a few executed groups"),
    "evaluate": Entry("wmrl_cli.cli.evaluate:evaluate", "Measure a policy on tasks by real execution"),
    "report": Entry("wmrl_cli.cli.report:report", "Turn a run folder into one HTML page with figures"),
    "doctor": Entry("wmrl_cli.cli.doctor:doctor", "Say what this machine can run and what is missing"),
}


class LazyGroup(TyperGroup):
    """Knows its subcommands by name and summary, and imports one only to run it or to show its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=entry.summary, rich_markup_mode=None)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)  # in the order of the pipeline

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else command, rest


def load(name: str) -> Any:
    """The Typer command called `name`, its module now imported."""
    module, _, function = COMMANDS[name].target.partition(":")
    callback = getattr(importlib.import_module(module), function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, context_settings=SETTINGS, help=keep_examples(inspect.getdoc(callback) or ""))(callback)
    command = typer.main.get_command(single)
    command.name = name
    return command


def keep_examples(text: str) -> str:
    """The docstring with its indented paragraphs marked, so that the help does not wrap them."""
    return re.sub(r"(?m)(\A|\n\n)(?=    )", r"\1" + "\b\n", text)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"wmrl {__version__}")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, context_settings=SETTINGS, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def overview(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """World Model RL: post-train research agents without executing every script

    The stages talk through Parquet files, so each runs on its own; `wmrl train` calls them all.

    Example:

        wmrl train --model tiny --anchor-frac 0.1 -o runs/first
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def root() -> Any:
    """The whole command, ready to be run or documented."""
    command = typer.main.get_command(app)
    command.help = keep_examples(inspect.getdoc(overview) or "")
    return command
