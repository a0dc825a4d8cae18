"""A calibration on one screen: the verdict, the numbers behind it, what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType

from wmrl_cli import console
from wmrl_cli.maths.analysis import Analysis
from wmrl_cli.maths.verdict import interval, percent

MOST_TASKS = 8  # lines of a table by label


def render(analysis: Analysis, written: Mapping[str, str]) -> RenderableType:
    """The verdict in words, then a table of the measures before and after the map, then statuses and files."""
    parts: list[RenderableType] = [_verdict(analysis), "", _measures(analysis)]
    if analysis.diagnosis.statuses:
        parts += ["", _statuses(analysis)]
    if analysis.config.by != "none" and analysis.label_maps is not None:
        parts += ["", _labels(analysis)]
    if analysis.comparison is not None:
        parts += ["", _comparison(analysis)]
    if analysis.study is not None:
        parts += ["", _study(analysis)]
    parts += ["", *_notes(analysis)]
    parts += [f"{name}: {path}" for name, path in written.items()]
    return Group(*parts)


def _verdict(analysis: Analysis) -> str:
    verdict = analysis.verdict
    lines = [f"verdict: {verdict.use}", *(f"  because {reason}" for reason in verdict.reasons)]
    return "\n".join([*lines, *(f"  but {warning}" for warning in verdict.warnings)])


def measure_rows(analysis: Analysis) -> list[list[Any]]:
    """Name, before, after of each measure; held-out groups, 95 % intervals that draw groups."""
    found = analysis.diagnosis
    of = found.overall
    rows: list[list[Any]] = [
        ["bias (mean of predicted - real)", interval(of["bias_raw"]), interval(of["bias_map"])],
        ["error (root mean square)", interval(of["error_raw"]), interval(of["error_map"])],
        ["noise inside groups (root mean square)", interval(of["noise_raw"]), interval(of["noise_map"])],
        ["eta^2 (noise over real variance)", interval(of["eta2_raw"]), interval(of["eta2_map"])],
        ["pairs in the right order", percent(of["accuracy_raw"]), percent(of["accuracy_map"])],
        ["rank correlation inside groups", interval(of["rank_raw"]), interval(of["rank_map"])],
        ["calibration error", f"{found.curve_raw.calibration_error:.3g}", f"{found.curve_map.calibration_error:.3g}"],
        ["dead groups", found.ties_raw.dead, found.ties_map.dead],
        ["tied pairs", found.ties_raw.tied, found.ties_map.tied],
    ]
    if not analysis.log.has_groups:  # nothing is known inside groups
        rows = [*rows[:2], rows[6]]
    return rows


def _measures(analysis: Analysis) -> RenderableType:
    groups = f", {analysis.log.groups:,} groups" if analysis.log.has_groups else ", no groups"
    return console.table(
        [f"{analysis.fitted_pairs:,} pairs{groups}", "before the map", "after"], measure_rows(analysis)
    )


def _statuses(analysis: Analysis) -> RenderableType:
    rows = [
        [row.status or "(none)", row.real, row.predicted, row.both, row.missed, row.invented]
        for row in analysis.diagnosis.statuses
    ]
    return console.table(["status", "really", "predicted", "both", "missed share", "invented share"], rows)


def _labels(analysis: Analysis) -> RenderableType:
    maps = analysis.label_maps
    fits = sorted(maps.fits, key=lambda fit: -fit.pairs)[:MOST_TASKS] if maps else []
    rows = [[fit.name, fit.pairs, fit.share, fit.residual_global, fit.residual_own] for fit in fits]
    kind = analysis.config.by
    columns = [kind, "pairs", "share of its own map", "squared residual, global", "with its share"]
    return console.table(columns, rows, title=f"maps by {kind}, {len(maps.own) if maps else 0} of their own")


def _comparison(analysis: Analysis) -> RenderableType:
    rows = [
        [row.name, interval(row.noise), interval(row.error), percent(row.accuracy), row.dead, row.tied]
        for row in analysis.comparison or []
    ]
    return console.table(["map", "noise inside groups", "error", "right order", "dead groups", "tied pairs"], rows)


def study_rows(analysis: Analysis) -> list[list[Any]]:
    """One row a fraction of the study."""
    return [
        [
            f"{row.fraction:g}",
            f"{row.anchor_groups:.0f}",
            interval(row.noise),
            interval(row.rank),
            f"{row.rho:.2f} ({row.rho_low:.2f}-{row.rho_high:.2f})",
            row.rho_error,
            row.flattened.estimate,
            row.fitted,
            row.seconds,
        ]
        for row in analysis.study or []
    ]


STUDY_COLUMNS = (
    "fraction",
    "anchors",
    "noise of the others",
    "rank correlation",
    "rho",
    "error of rho",
    "flattened",
    "fitted",
    "seconds executed",
)


def _study(analysis: Analysis) -> RenderableType:
    return console.table(list(STUDY_COLUMNS), study_rows(analysis), title="anchor fraction of the log's groups")


def online_words(analysis: Analysis) -> str:
    """Where the replay ends, in one sentence."""
    calibrator = analysis.prequential.calibrator
    if calibrator.eta2_cal is None:
        return f"online: {calibrator.note or f'the identity until {calibrator.config.min_pairs} pairs are in'}, rho 1"
    return (
        f"online: map version {calibrator.map.version}, eta^2 {calibrator.eta2:.3g} "
        f"(end of warm-up {calibrator.eta2_cal:.3g}), rho {calibrator.rho:.2f}"
    )


def _notes(analysis: Analysis) -> list[str]:
    notes = [online_words(analysis)]
    mean = analysis.diagnosis.mean_real
    if mean.powered.clusters and mean.powered.estimate == mean.powered.estimate:
        notes.append(
            f"mean real score: {interval(mean.anchors)} from anchors alone, {interval(mean.powered)} with "
            f"{analysis.log.simulated.size:,} simulated ones, as if {mean.effective:,.0f} had been executed"
        )
    notes += [f"left out: {count:,} rows with {reason}" for reason, count in analysis.log.dropped.items()]
    return notes
