"""wmrl calibrate: the map from predicted to real scores, and how far it may be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmrl_cli import console
from wmrl_cli.cli import options


def _column(option: str, what: str, default: str) -> typer.models.OptionInfo:
    return typer.Option(option, metavar="COLUMN", help=f"{what} [default: {default}].")


Logs = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILES", help="Score tables, anchor pairs, or Parquet, CSV or JSON Lines with pairs; - reads stdin."
    ),
]
Pairs = Annotated[
    list[Path] | None,
    typer.Option("--pairs", metavar="FILE", help="A file of pairs, the same as naming it [default: none]."),
]
Target = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="calibration.json to write, or the table with --apply [default: none]."
    ),
]
Predicted = Annotated[str | None, _column("--predicted", "Predicted scores", "predicted")]
Real = Annotated[str | None, _column("--real", "Real scores; empty where not executed", "real")]
Group = Annotated[str | None, _column("--group", "Group (one prompt's trajectories)", "group_id if there")]
TaskColumn = Annotated[str | None, _column("--task", "Task", "task_id if there")]
CategoryColumn = Annotated[str | None, _column("--category", "Category of the task", "category if there")]
Step = Annotated[str | None, _column("--step", "Training step, whole numbers", "step if there, else row order")]
StatusPredicted = Annotated[str | None, _column("--status-predicted", "Predicted status", "status_predicted if there")]
StatusReal = Annotated[str | None, _column("--status-real", "Real status", "status_real if there")]
Seconds = Annotated[str | None, _column("--seconds", "Seconds that the real run took", "seconds if there")]
Range = Annotated[
    tuple[float, float] | None,
    typer.Option("--range", metavar="LOW HIGH", help="Scale of both scores, never guessed [default: 0 1]."),
]
Method = Annotated[
    str | None, typer.Option("--method", metavar="NAME", help="Map: isotonic | centred | identity [default: isotonic].")
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", help="Own maps where they help held-out groups: none | task | category [default: none]."
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window", min=2, metavar="N", help="Newest pairs a fit sees [default: all for the map, 5000 online]."
    ),
]
MinPairs = Annotated[
    int | None,
    typer.Option("--min-pairs", min=2, metavar="N", help="Pairs before the first online fit [default: 200]."),
]
RefitEvery = Annotated[
    int | None, typer.Option("--refit-every", min=1, metavar="N", help="New pairs between online fits [default: 64].")
]
Online = Annotated[
    Path | None,
    typer.Option(
        "--online",
        metavar="FILE",
        help="Write the pairs as training would have seen them, step by step [default: none].",
    ),
]
OnlineSteps = Annotated[
    Path | None,
    typer.Option("--online-steps", metavar="FILE", help="Write the replay's metrics, a row a step [default: none]."),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write one self-contained HTML page [default: none].")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Judge all kinds of map on the same held-out groups [default: do not].")
]
Study = Annotated[
    str | None,
    typer.Option(
        "--study", metavar="F,F,...", help="Anchor fractions to try on the log, each in (0, 1] [default: none]."
    ),
]
Apply = Annotated[
    Path | None,
    typer.Option("--apply", metavar="TABLE", help="Write TABLE with calibrated scores to -o [default: none]."),
]
Map = Annotated[
    Path | None,
    typer.Option("--map", metavar="FILE", help="calibration.json for --apply instead of a log [default: none]."),
]


def calibrate(
    logs: Logs = None,
    output: Target = None,
    pairs: Pairs = None,
    report: Report = None,
    apply: Apply = None,
    map_file: Map = None,
    online: Online = None,
    online_steps: OnlineSteps = None,
    compare: Compare = False,
    study: Study = None,
    method: Method = None,
    by: By = None,
    predicted: Predicted = None,
    real: Real = None,
    group: Group = None,
    task: TaskColumn = None,
    category: CategoryColumn = None,
    step: Step = None,
    status_predicted: StatusPredicted = None,
    status_real: StatusReal = None,
    seconds: Seconds = None,
    scale: Range = None,
    tasks: options.Tasks = None,
    window: Window = None,
    min_pairs: MinPairs = None,
    refit_every: RefitEvery = None,
    limit: options.Limit = None,
    config: options.ConfigFile = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit the map from predicted to real scores on pairs of both

    Reads our score or anchor-pair tables, or the logs of any other RL stack, and says whether the predicted
    score is usable as it is, after the map, only as a ranking, or not at all.

    Examples:

        wmrl calibrate wm.parquet real.parquet -o calibration.json --report report.html

        wmrl calibrate --pairs log.csv --predicted judge --real reward --group prompt_id -o calibration.json

        wmrl calibrate runs/first/anchor_pairs.parquet --study 0.01,0.02,0.05,0.1,0.2,0.5

        wmrl calibrate --map calibration.json --apply wm.parquet -o calibrated.parquet
    """
    from wmrl_cli.config import load_config
    from wmrl_cli.maths.analysis import CalibrateConfig
    from wmrl_cli.report.calibration import calibration_page
    from wmrl_cli.report.calibration_text import render
    from wmrl_cli.stages.calibrate.command import Outputs, Request, run

    flags = {
        "method": method,
        "by": by,
        "window": window,
        "min_pairs": min_pairs,
        "refit_every": refit_every,
        "seed": seed,
    }
    columns = {"predicted": predicted, "real": real, "group": group, "task": task, "category": category, "step": step}
    columns |= {"status_predicted": status_predicted, "status_real": status_real, "seconds": seconds}
    request = Request(
        logs=[*(logs or []), *(pairs or [])],
        columns=columns,
        scale=scale or (0.0, 1.0),
        limit=limit,
        tasks=tasks,
        compare=compare,
        study=study,
        map_file=map_file,
        outputs=Outputs(main=output, report=report, apply=apply, online=online, online_steps=online_steps),
        config=load_config(CalibrateConfig, config, **flags),
    )
    if study:
        with console.progress("study", total=request.replays, unit="replays") as advance:
            done = run(request, page=calibration_page, advance=advance)
    else:
        done = run(request, page=calibration_page)
    found = done.analysis
    console.emit(done.result(), as_json=as_json, render=None if found is None else lambda: render(found, done.written))
