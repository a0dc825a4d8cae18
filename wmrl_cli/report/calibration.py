"""The calibration report: one self-contained HTML page, each figure with what it shows for these data."""

from __future__ import annotations

import numpy as np

from wmrl_cli.maths.analysis import Analysis
from wmrl_cli.maths.diagnosis import LabelRow
from wmrl_cli.maths.verdict import interval, percent
from wmrl_cli.report.calibration_text import STUDY_COLUMNS, measure_rows, online_words, study_rows
from wmrl_cli.report.svg import (
    Bars,
    Line,
    Points,
    Section,
    bar_chart,
    figure,
    line_chart,
    page,
    paragraph,
    scatter_chart,
    table,
)

UNIT = (-0.02, 1.02)
MOST_BARS = 20


def calibration_page(analysis: Analysis, *, title: str) -> str:
    """The whole report as HTML."""
    sections = [_verdict(analysis), _map(analysis), _measures(analysis)]
    sections += [_statuses(analysis)] if analysis.diagnosis.statuses else []
    sections += [_by(kind, rows) for kind, rows in analysis.diagnosis.by.items() if kind != "window" and len(rows) > 1]
    sections += [_online(analysis)]
    sections += [_comparison(analysis)] if analysis.comparison else []
    sections += [_study(analysis)] if analysis.study else []
    sections += [_mean(analysis), _made(analysis)]
    lead = f"{analysis.log.pairs:,} pairs of a predicted and a real score: {analysis.verdict.use}."
    return page(title, sections, lead=lead)


def _verdict(analysis: Analysis) -> Section:
    verdict = analysis.verdict
    body = [paragraph(f"Verdict: {verdict.use}.", kind="lead")]
    body += [paragraph(_sentence(reason)) for reason in verdict.reasons]
    body += [paragraph(_sentence(warning), kind="warning") for warning in verdict.warnings]
    return Section(heading="How far the predicted score may be trusted", body=body)


def _map(analysis: Analysis) -> Section:
    found, score_map = analysis.diagnosis, analysis.score_map
    knots, values = [0.0, *score_map.knots.tolist(), 1.0], [score_map.low, *score_map.values.tolist(), score_map.high]
    chart = line_chart(
        [
            Line(x=knots, y=values, name="the map"),
            Line(x=found.curve_raw.score.tolist(), y=found.curve_raw.real.tolist(), name="mean real"),
        ],
        title="The map from predicted to real scores",
        description="Predicted score across, calibrated score up; the dotted line changes nothing.",
        x_label="predicted score",
        y_label="real score",
        x_range=UNIT,
        y_range=UNIT,
        diagonal=True,
    )
    words = (
        f"The map has {score_map.knots.size} knots and gives scores between {score_map.low:.2f} and "
        f"{score_map.high:.2f}; a predicted 0.5 becomes {float(score_map(0.5)):.2f}."
    )
    curves = [
        Points(x=curve.score.tolist(), y=curve.real.tolist(), sizes=curve.counts.tolist(), name=name)
        for name, curve in (("before", found.curve_raw), ("after, out of fold", found.curve_map))
    ]
    reliability = scatter_chart(
        curves,
        title="Reliability",
        description="Mean score across, mean real score up, by bins of the score; the area of a point is its pairs.",
        x_label="score",
        y_label="mean real score",
        x_range=UNIT,
        y_range=UNIT,
        diagonal=True,
    )
    before, after = found.curve_raw.calibration_error, found.curve_map.calibration_error
    said = (
        "Points on the dotted line are right on average. "
        f"The calibration error is {before:.3f} before and {after:.3f} after the map."
    )
    counts = [
        [name, float(score), float(real), int(count)]
        for name, curve in (("before", found.curve_raw), ("after", found.curve_map))
        for score, real, count in zip(curve.score, curve.real, curve.counts, strict=True)
    ]
    columns = ["", "mean score", "mean real score", "pairs"]
    return Section(heading="The map", body=[figure(chart, words), figure(reliability, said), table(columns, counts)])


def _measures(analysis: Analysis) -> Section:
    of = analysis.diagnosis.overall
    body = [
        table(["held-out groups, 95 % intervals that draw groups", "before the map", "after"], measure_rows(analysis))
    ]
    if np.isfinite(of["left"].estimate):
        left, bent = of["left"], of["bent"]
        body.append(
            paragraph(
                f"Of the squared residual inside groups {percent(left)} stays after the map: noise, and error that no "
                f"non-decreasing map repairs. {percent(of['wrong'])} of the pairs are ordered wrongly. A curve that "
                f"may also fall would leave {percent(bent)} of what the map leaves."
            )
        )
    return Section(heading="Bias, noise and order", body=body)


def _statuses(analysis: Analysis) -> Section:
    found = analysis.diagnosis
    body = []
    if found.confusion is not None:
        names = [name or "(none)" for name in found.confusion.names]
        rows = [[f"predicted {name}", *map(int, row)] for name, row in zip(names, found.confusion.counts, strict=True)]
        body.append(table(["", *(f"really {name}" for name in names)], rows, shade=True))
    seen = [row for row in found.statuses if row.missed is not None]
    if seen:
        chart = bar_chart(
            [row.status or "(none)" for row in seen],
            [Bars(values=[float(row.missed or 0.0) for row in seen])],
            title="Missed statuses",
            description="Share of each real status that was predicted as another one.",
            x_label="share that was predicted as something else",
            x_range=(0.0, 1.0),
        )
        worst = max(seen, key=lambda row: (row.missed or 0.0, row.real))
        words = f"Most often missed: `{worst.status}`, in {worst.missed:.0%} of its {worst.real:,} cases."
        body.append(figure(chart, words))
    body += [
        paragraph(
            f"`{spot.status}` is a blind spot: {percent(spot.accuracy)} of the order with such trajectories is right, "
            f"{percent(spot.accuracy_others)} without.",
            kind="warning",
        )
        for spot in found.blind
    ]
    return Section(heading="Which failures it sees", body=body)


def _by(kind: str, rows: list[LabelRow]) -> Section:
    shown = sorted(rows, key=lambda row: -row.pairs)[:MOST_BARS]
    bars = [
        Bars(
            values=[getattr(row, f"bias_{score}").estimate for row in shown],
            low=[getattr(row, f"bias_{score}").low for row in shown],
            high=[getattr(row, f"bias_{score}").high for row in shown],
            name=name,
        )
        for score, name in (("raw", "before"), ("map", "after the map"))
    ]
    chart = bar_chart(
        [row.name or "(none)" for row in shown],
        bars,
        title=f"Bias by {kind}",
        description=f"Mean of predicted minus real score for each {kind}, with intervals.",
        x_label="mean of predicted minus real score",
    )
    worst = max(shown, key=lambda row: abs(row.bias_map.estimate))
    words = f"The largest bias after the map is {interval(worst.bias_map)}, for `{worst.name}` ({worst.pairs:,} pairs)."
    lines = [
        [row.name or "(none)", row.pairs, interval(row.noise_raw), interval(row.noise_map), percent(row.accuracy)]
        for row in shown
    ]
    columns = [kind, "pairs", "noise inside groups", "after the map", "right order"]
    heading = {"status": "By true status", "task": "By task", "category": "By category"}[kind]
    return Section(heading=heading, body=[figure(chart, words), table(columns, lines)])


def _online(analysis: Analysis) -> Section:
    steps = analysis.prequential.steps
    body = [paragraph(_sentence(online_words(analysis)))]
    if steps["step"].size > 1:
        x = list(steps["step"])
        noise = line_chart(
            [Line(x=x, y=_smooth(steps[f"residual_{name}"]), name=label) for name, label in _RESIDUALS],
            title="Residual inside groups, step by step",
            description="Root mean squared error inside groups, judged by the map in force before each step.",
            x_label="step",
            y_label="residual (reward)",
        )
        last = [_smooth(steps[f"residual_{name}"])[-1] for name, _ in _RESIDUALS]
        said = (
            f"Smoothed over about {_width(len(x))} steps; at the end {last[0]:.3f} before "
            f"and {last[1]:.3f} after the map."
        )
        rho = line_chart(
            [Line(x=x, y=list(steps["rho"]), step=True)],
            title="How many times noisier a simulated group is",
            description="The variance ratio rho in force at each step.",
            x_label="step",
            y_label="rho",
        )
        body += [figure(noise, said), figure(rho, _rho_words(steps["rho"]))]
    windows = analysis.diagnosis.by.get("window")
    if windows:
        body.append(_drift(windows))
    return Section(heading="As training would have seen it", body=body)


_RESIDUALS = (("raw", "before the map"), ("calibrated", "after the map in force"))


def _rho_words(rho: np.ndarray) -> str:
    warm = (
        f"rho is 1 until step {int(np.argmax(rho > 1))} of the log"
        if (rho > 1).any()
        else "rho stays 1 over the whole log"
    )
    return f"{_sentence(warm)[:-1]}; it ends at {rho[-1]:.2f}: an executed group weighs that many simulated ones."


def _drift(windows: list[LabelRow]) -> str:
    bars = [
        Bars(
            values=[row.bias_raw.estimate for row in windows],
            low=[row.bias_raw.low for row in windows],
            high=[row.bias_raw.high for row in windows],
        )
    ]
    chart = bar_chart(
        [f"steps {row.name}" for row in windows],
        bars,
        title="Bias over time",
        description="Mean of predicted minus real score in stretches of the log, with intervals.",
        x_label="mean of predicted minus real score",
    )
    first, last = windows[0].bias_raw, windows[-1].bias_raw
    return figure(chart, f"The raw bias is {interval(first)} in the first stretch and {interval(last)} in the last.")


def _comparison(analysis: Analysis) -> Section:
    rows = analysis.comparison or []
    chart = bar_chart(
        [row.name for row in rows],
        [
            Bars(
                values=[row.noise.estimate for row in rows],
                low=[row.noise.low for row in rows],
                high=[row.noise.high for row in rows],
            )
        ],
        title="Kinds of map on the same held-out groups",
        description="Root mean squared error inside held-out groups for each kind of map.",
        x_label="noise inside held-out groups (reward)",
    )
    kept = [row for row in rows if np.isfinite(row.noise.estimate)]
    words = "Without groups, only the errors over all pairs can be compared."
    if kept:
        best = min(kept, key=lambda row: row.noise.estimate)
        words = f"The least noise inside held-out groups has `{best.name}`: {interval(best.noise)}."
    lines = [[r.name, interval(r.noise), interval(r.error), percent(r.accuracy), r.dead, r.tied] for r in rows]
    columns = ["map", "noise inside groups", "error", "right order", "dead groups", "tied pairs"]
    return Section(heading="Kinds of map", body=[figure(chart, words), table(columns, lines)])


def _study(analysis: Analysis) -> Section:
    rows = analysis.study or []
    x = [row.fraction for row in rows]
    chart = line_chart(
        [
            Line(
                x=x,
                y=[row.noise.estimate for row in rows],
                low=[row.noise.low for row in rows],
                high=[row.noise.high for row in rows],
                name="after the map in force",
                markers=True,
            ),
            Line(x=x, y=[row.noise_raw.estimate for row in rows], name="raw", markers=True),
        ],
        title="Noise of the simulated groups against the anchor fraction",
        description="Root mean squared error inside groups that were not anchors, over the fraction of anchors.",
        x_label="anchor fraction of the log's groups",
        y_label="noise inside groups (reward)",
        x_log=True,
    )
    judged = [row for row in rows if np.isfinite(row.noise.estimate)]
    words = "No fraction leaves groups to judge."
    if judged:
        best = min(judged, key=lambda row: row.noise.estimate)
        enough = next(row for row in judged if row.noise.estimate <= 1.05 * best.noise.estimate)
        words = (
            f"The least noise is {interval(best.noise)}, at {best.fraction:g}; from {enough.fraction:g} on "
            f"({enough.anchor_groups:.0f} anchor groups) it is within 5 % of that."
        )
    body = [figure(chart, words), table(list(STUDY_COLUMNS), study_rows(analysis))]
    note = (
        "Groups that are drawn as anchors feed the online calibrator; the others play the simulated ones, and their "
        f"real scores judge the map in force. Each fraction is drawn {analysis.config.repeats} times. A fraction here "
        "is one of the log's executed groups."
    )
    return Section(heading="How many real runs are enough", body=[*body, paragraph(note)])


def _mean(analysis: Analysis) -> Section:
    mean = analysis.diagnosis.mean_real
    if not np.isfinite(mean.powered.estimate):
        words = (
            f"From the executed trajectories alone: {interval(mean.anchors)}. The log holds no simulated groups that "
            "could make this interval narrower."
        )
    else:
        words = (
            f"From {mean.anchors.rows:,} executed trajectories alone: {interval(mean.anchors)}. With the predictions "
            f"of {analysis.log.simulated.size:,} simulated ones: {interval(mean.powered)}, as narrow as "
            f"{mean.effective:,.0f} executions would give ({mean.effective / mean.anchors.rows:.1f} times as many)."
        )
    return Section(heading="Mean real score", body=[paragraph(words)])


def _made(analysis: Analysis) -> Section:
    config = analysis.config
    window = "all pairs" if config.window is None else f"the newest {config.window:,} pairs"
    lines = [
        f"The map is {config.method}, fitted on {window}; scores are judged out of fold, whole groups held out.",
        f"Intervals are {config.level:.0%} and draw whole groups {config.draws:,} times, seed {config.seed}.",
    ]
    lines += [f"{count:,} rows were left out: {reason}." for reason, count in analysis.log.dropped.items()]
    return Section(heading="How this was made", body=[paragraph(line) for line in lines])


def _width(steps: int) -> int:
    return max(1, steps // 15)


def _smooth(values: np.ndarray) -> list[float]:
    """A trailing mean over known values, about a fifteenth of the log wide."""
    width = _width(values.size)
    known = np.isfinite(values)
    total = np.cumsum(np.where(known, values, 0.0))
    count = np.cumsum(known)
    total[width:], count[width:] = total[width:] - total[:-width].copy(), count[width:] - count[:-width].copy()
    return [float(t / c) if c else float("nan") for t, c in zip(total, count, strict=True)]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
