"""A run folder as one HTML page that reads without network, code or the paper at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wmrl_cli.report import run_scores, run_training
from wmrl_cli.report.run_data import RunData, read_run
from wmrl_cli.report.run_parts import ends, mean, total
from wmrl_cli.report.svg import Section, page, paragraph, standalone, table
from wmrl_cli.tables import write_atomically


def write_report(folder: Path, output: Path | None = None, figures: Path | None = None) -> dict[str, Any]:
    """Write the report of the run in `folder` (default `folder/report.html`) and return its main numbers.

    With `figures` each figure is also written there as an SVG file.
    Raises ConfigError where there is no run, TableError where a table is bad, StageError where it cannot write.
    """
    run = read_run(folder)
    target = output or folder / "report.html"
    text = report_page(run)
    _write_text(target, text)
    if figures is not None:
        write_figures(text, figures)
    return {"report": str(target), **summary(run)}


def report_page(run: RunData) -> str:
    """The whole page."""
    return page(f"World Model RL: {run.folder.resolve().name}", list(_sections(run)), lead=_lead(run))


def write_figures(text: str, folder: Path) -> None:
    """Write each figure of the page `text` to `folder` as an SVG file named after its title."""
    for title, chart in re.findall(r"<h3>([^<]+)</h3><figure>(<svg.*?</svg>)", text, re.S):
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        _write_text(folder / f"{name}.svg", standalone(chart))


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda scratch: Path(scratch).write_text(text, encoding="utf-8"))


def summary(run: RunData) -> dict[str, Any]:
    """The run's main numbers, JSON-ready; null where a thing was not measured."""
    if_all, whole = run_training.all_executed_seconds(run), total(run.column("seconds_step"))
    return {
        "steps": run.steps,
        "anchor_share_asked": _last(run, "anchor_share_asked"),
        "anchor_share_realised": mean(run.column("anchor_share_realised")),
        "pairs": len(run.pairs),
        "scripts_executed": int(total(run.column("scripts_executed"))),
        "scripts_simulated": int(total(run.column("scripts_simulated"))),
        "lost_world_model": int(total(run.column("lost_world_model"))),
        "lost_sandbox": int(total(run.column("lost_sandbox"))),
        "map_version": _last(run, "map_version"),
        "eta2": _last(run, "eta2"),
        "rho": _last(run, "rho"),
        "seconds": whole,
        "seconds_if_all_executed": if_all if np.isfinite(if_all) else None,
        "speed_up": if_all / whole if np.isfinite(if_all) and whole > 0 and run.has_world_model else None,
    }


def _sections(run: RunData) -> Iterator[Section]:
    yield Section(heading="In short", body=[*_warnings(run), _facts(run)])
    for section in (
        run_scores.before_and_after(run),
        run_scores.reward_by_source(run),
        run_scores.pairs_and_map(run),
        run_scores.residuals(run),
        run_training.weights(run),
        run_training.dead_groups(run),
        run_scores.statuses(run),
        run_training.costs(run),
        run_training.health(run),
    ):
        if section is not None:
            yield section
    rows = [[name, str(value)] for name, value in _flat(run.config)]
    yield Section(heading="Configuration", body=[table(["key", "value"], rows)])


def _lead(run: RunData) -> str:
    config = run.config
    asked = int(config["steps"])
    state = f"{run.steps} steps" if run.steps >= asked else f"{run.steps} of {asked} steps so far"
    if config["anchors_only"]:
        how = f"only the executed groups, {config['anchor_frac']:.0%} of them, were trained on"
    elif not run.has_world_model:
        how = "every script was really executed"
    else:
        how = f"{config['anchor_frac']:.0%} of the groups were to be executed, the world model predicted the others"
    size = f"{config['groups_per_step']} groups of {config['group_size']}"
    return f"Model {config['model']}, {state} of {size}: {how}. wmrl {run.wmrl}."


def _facts(run: RunData) -> str:
    words = {
        "steps": "steps",
        "anchor_share_asked": "share of anchor groups asked for",
        "anchor_share_realised": "share realised",
        "pairs": "anchor pairs",
        "scripts_executed": "scripts really executed",
        "scripts_simulated": "scripts simulated",
        "map_version": "maps fitted before the last step",
        "eta2": "eta squared at the last step",
        "rho": "rho at the last step",
        "seconds": "seconds over all steps",
        "seconds_if_all_executed": "seconds had all been executed (estimate)",
        "speed_up": "speed-up (estimate)",
        "lost_world_model": "trajectories lost by the world model",
        "lost_sandbox": "trajectories lost by the sandbox",
    }
    numbers = summary(run)
    return table(["", "value"], [[label, numbers[name]] for name, label in words.items()])


def _warnings(run: RunData) -> Iterator[str]:
    """What a reader must know before believing the figures."""
    numbers = summary(run)
    lost = numbers["lost_world_model"] + numbers["lost_sandbox"]
    if lost:
        count = "1 trajectory was" if lost == 1 else f"{lost} trajectories were"
        yield paragraph(f"{count} lost: our failure, not a script's. No mean has them.", kind="warning")
    if run.note:
        yield paragraph(f"The calibrator says: {run.note}.", kind="warning")
    flattened = mean(run.column("flattened_groups"))
    if flattened is not None and flattened > 0.5:
        yield paragraph(
            f"The map makes {flattened:.0%} of the simulated groups flat: they teach nothing.", kind="warning"
        )
    difference = np.nanmax(np.append(run.column("sampler_logprob_diff_mean"), 0.0))
    if difference > 0.05:
        yield paragraph(
            f"Sampler and learner differ by up to {difference:.3f} nats a token: the gradient is off-policy.",
            kind="warning",
        )


def _last(run: RunData, name: str) -> float | None:
    value = ends(run.column(name))[1]
    return value if np.isfinite(value) else None


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
