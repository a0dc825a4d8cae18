"""wmrl report: a run folder as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_cli import console
from wmrl_cli.cli import options

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder that `wmrl train -o` wrote.")]
Page = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Page to write [default: RUN/report.html].")
]
Figures = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Write each figure there as SVG too [default: none].")
]


def report(
    run: Run, output: Page = None, figures: Figures = None, as_json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Turn a run folder into one HTML page with figures

    Reward by source, pairs and map, residuals, weights, cost by stage, and before and after where
    RUN/evaluation/ holds both. A run that is still training can be looked at too. The page needs no network.

    Example:

        wmrl report runs/first
    """
    from wmrl_cli.report.run import write_report

    console.emit(write_report(run, output, figures), as_json=as_json)
