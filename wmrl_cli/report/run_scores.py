"""Sections of a run's report on scores: before and after, by source, pairs and map, residuals, statuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from wmrl_cli.environment import SANDBOX, WORLD_MODEL
from wmrl_cli.maths.fusion import group_residual
from wmrl_cli.maths.intervals import clustered_mean
from wmrl_cli.report.run_data import RunData
from wmrl_cli.report.run_parts import SMOOTH, Floats, curve, moved, rolling, steps_words, titled, with_interval
from wmrl_cli.report.svg import Bars, Points, Section, bar_chart, line_chart, paragraph, scatter_chart, table
from wmrl_cli.stages.evaluate import MEASURES, compare, summarise


def before_and_after(run: RunData) -> Section | None:
    """The policy on held-out tasks before and after training, with intervals clustered by task."""
    if run.before is None or run.after is None:
        return None
    old, new, gain = summarise(run.before), summarise(run.after), compare(run.after, run.before)
    names = {
        "reward": "reward, 0 to 1",
        "valid": "valid share, 0 to 1",
        "percentile": "leaderboard percentile, 0 to 100",
    }
    rows = [[names[m], *(with_interval(part) for part in (old.overall[m], new.overall[m], gain[m]))] for m in MEASURES]
    change = gain["reward"]
    certain = change.low > 0 or change.high < 0
    verdict = (
        f"The mean reward {moved(change.estimate)} by {abs(change.estimate):.3f}, and the interval of that difference"
    )
    verdict += f" {'excludes' if certain else 'includes'} zero" + ("." if certain else ": these data do not decide.")
    lost = old.lost + new.lost
    lost_words = f" {lost} trajectories were lost and are in no mean." if lost else ""
    tasks, before, after = _by_task(run.before, run.after)
    ups = sum(b > a for a, b in zip(before, after, strict=True))
    chart = bar_chart(
        tasks,
        [Bars(values=before, name="before"), Bars(values=after, name="after")],
        title="Mean reward of each task before and after training",
        description=f"Two bars for each of {len(tasks)} tasks",
        x_label="mean reward of the really executed scripts, 0 to 1",
        x_range=(0.0, 1.0),
    )
    return Section(
        heading="Before and after, by real execution",
        body=[
            paragraph(
                f"{old.trajectories} and {new.trajectories} trajectories on {len(tasks)} tasks. {verdict}{lost_words}"
            ),
            table(["mean [95 % interval, clustered by task]", "before", "after", "difference"], rows),
            titled("Reward by task", chart, f"Reward by task: {ups} of {len(tasks)} tasks are higher after training."),
        ],
    )


def _by_task(before: Any, after: Any) -> tuple[list[str], list[float], list[float]]:
    means = [
        part.select(["task_id", "reward"]).to_pandas().dropna().groupby("task_id")["reward"].mean()
        for part in (before, after)
    ]
    tasks = [str(name) for name in means[0].index if name in means[1].index]
    return tasks, [float(means[0][task]) for task in tasks], [float(means[1][task]) for task in tasks]


def reward_by_source(run: RunData) -> Section:
    """Mean reward of each step as the world model, the map and the sandbox see it."""
    steps = run.column("step")
    sources = (
        ("reward_real", "real (anchors)"),
        ("reward_raw", "predicted"),
        ("reward_calibrated", "calibrated"),
    )
    lines = [
        curve(steps, rolling(run.column(column)), name=name, markers=column == "reward_real")
        for column, name in sources
        if np.isfinite(run.column(column)).any()
    ]
    chart = line_chart(
        lines,
        title="Reward by source",
        description="Mean reward of each step by who gave it",
        x_label="step",
        y_label=f"mean reward (mean over {SMOOTH} steps)",
    )
    return Section(heading="Reward by source", body=[titled("Mean reward of each step", chart, _reward_words(run))])


def _reward_words(run: RunData) -> str:
    parts = []
    for scorer, name in ((SANDBOX, "Real reward"), (WORLD_MODEL, "Predicted reward")):
        rewards = run.rewards(scorer)
        third = max(1, run.steps // 3)
        first, last = rewards[rewards["step"] < third], rewards[rewards["step"] >= run.steps - third]
        if first.empty or last.empty:
            continue
        old, new = (clustered_mean(part["reward"], part["group_id"]) for part in (first, last))
        parts.append(
            f"{name} {moved(new.estimate - old.estimate)} from {with_interval(old)} in the first {steps_words(third)}"
            f" to {with_interval(new)} in the last {third} (95 % intervals clustered by group)."
        )
    return " ".join(parts) or "No step has scores from both its beginning and its end yet."


def pairs_and_map(run: RunData) -> Section | None:
    """What was predicted, what happened, and the map between the two."""
    if run.pairs.empty:
        return None
    predicted, real = (run.pairs[name].to_numpy(dtype=np.float64) for name in ("predicted", "real"))
    centres, means, low, high = _binned(predicted, real)
    lines = [curve(centres, means, low=low, high=high, name="mean real reward of the pairs", markers=True)]
    if run.score_map is not None and not run.score_map.is_identity:
        lines.append(curve(run.score_map.knots, run.score_map.values, name=f"map, version {run.score_map.version}"))
    chart = line_chart(
        lines,
        title="Predicted and real reward of the anchors, and the map",
        description="Mean real reward by predicted reward, the fitted map, and the line of perfect prediction",
        x_label="reward predicted by the world model",
        y_label="real reward",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        diagonal=True,
    )
    return Section(
        heading="What is predicted, what happens, and the map between",
        body=[
            titled("Predicted and real reward, and the map", chart, _map_words(run, predicted, real)),
            titled("All pairs", _cloud(predicted, real), _order_words(run.pairs)),
        ],
    )


def _map_words(run: RunData, predicted: Floats, real: Floats) -> str:
    bias = float(np.mean(predicted - real))
    words = f"Over {len(real)} pairs the world model is {abs(bias):.3f} too {'high' if bias > 0 else 'low'} on average."
    if run.note:
        return f"{words} The calibrator says: {run.note}."
    if run.score_map is None or run.score_map.is_identity:
        return f"{words} There is no fitted map: scores are used as they are."
    return (
        f"{words} The last map sends scores to {run.score_map.low:.2f} to {run.score_map.high:.2f}; on the dotted line"
        " prediction is right."
    )


def _binned(x: Floats, y: Floats, bins: int = 10) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean of y in equal bins of x over [0, 1], with two standard errors around it; empty bins are left out."""
    index = np.minimum((x * bins).astype(int), bins - 1)
    kept = [i for i in range(bins) if (index == i).any()]
    means = np.array([y[index == i].mean() for i in kept])
    errors = np.array([2 * y[index == i].std() / np.sqrt((index == i).sum()) for i in kept])
    centres = np.array([x[index == i].mean() for i in kept])
    return centres, means, np.clip(means - errors, 0, 1), np.clip(means + errors, 0, 1)


def _cloud(predicted: Floats, real: Floats) -> str:
    counts = pd.DataFrame({"p": predicted.round(2), "r": real.round(2)}).value_counts().reset_index(name="n")
    return scatter_chart(
        [Points(x=list(counts["p"]), y=list(counts["r"]), sizes=list(counts["n"].astype(float)))],
        title="Each anchor pair",
        description="Predicted against real reward, a circle's area is the number of pairs",
        x_label="reward predicted by the world model",
        y_label="real reward",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        diagonal=True,
    )


def _order_words(pairs: pd.DataFrame) -> str:
    right = wrong = 0
    for _, group in pairs.groupby("group_id"):
        p, r = group["predicted"].to_numpy(), group["real"].to_numpy()
        product = np.sign(p[:, None] - p[None, :]) * np.sign(r[:, None] - r[None, :])
        right, wrong = right + int((product > 0).sum()) // 2, wrong + int((product < 0).sum()) // 2
    if not right + wrong:
        return "No two trajectories of one group differ in both scores, so the order inside groups cannot be judged."
    return (
        f"Inside groups, where training takes its signal, {right / (right + wrong):.0%} of the {right + wrong}"
        " comparisons that both scorers decide agree in direction. No map repairs the rest."
    )


def residuals(run: RunData) -> Section | None:
    """The score's error inside groups before and after the map, judged by the map in force before each pair."""
    raw, calibrated = run.column("residual_raw"), run.column("residual_calibrated")
    if not np.isfinite(raw).any():
        return None
    steps = run.column("step")
    chart = line_chart(
        [
            curve(steps, np.sqrt(rolling(raw**2)), name="raw"),
            curve(steps, np.sqrt(rolling(calibrated**2)), name="calibrated"),
        ],
        title="Error inside groups before and after the map",
        description="Root mean squared residual of each step's anchors, raw and calibrated",
        x_label="step",
        y_label=f"residual in reward units (over {SMOOTH} steps)",
        y_range=(0.0, max(0.05, float(np.nanmax(np.append(raw, calibrated))))),
    )
    return Section(
        heading="Error before and after the map",
        body=[titled("Error inside groups", chart, _residual_words(run.pairs))],
    )


def _residual_words(pairs: pd.DataFrame) -> str:
    mapped = pairs[pairs["map_version"] > 0]
    if mapped.empty:
        return "No pair has been judged by a fitted map yet, so both curves are one."
    error = {}
    for column in ("predicted", "calibrated"):
        found = (group_residual(g[column].to_numpy(), g["real"].to_numpy()) for _, g in mapped.groupby("group_id"))
        error[column] = float(np.sqrt(np.mean([residual.e for residual in found if residual] or [np.nan])))
    bias = {column: float((mapped[column] - mapped["real"]).mean()) for column in ("predicted", "calibrated")}
    change = error["calibrated"] / error["predicted"] - 1 if error["predicted"] > 0 else np.nan
    return (
        f"On the {len(mapped)} pairs that a fitted map judged before it had seen them, the error inside groups went"
        f" from {error['predicted']:.3f} to {error['calibrated']:.3f} ({change:+.0%}) and the mean bias from"
        f" {bias['predicted']:+.3f} to {bias['calibrated']:+.3f}."
    )


def statuses(run: RunData) -> Section | None:
    """How scripts were predicted to end, and how they ended."""
    if run.pairs.empty:
        return None
    counts = pd.crosstab(run.pairs["status_predicted"], run.pairs["status_real"])
    rows = [
        [str(name), *(int(value) for value in line)] for name, line in zip(counts.index, counts.to_numpy(), strict=True)
    ]
    same = float((run.pairs["status_predicted"] == run.pairs["status_real"]).mean())
    missed = run.pairs[(run.pairs["status_predicted"] == "valid") & (run.pairs["status_real"] != "valid")]
    words = f"The status was predicted right for {same:.0%} of {len(run.pairs)} trajectories."
    if len(missed):
        name, count = next(iter(missed["status_real"].value_counts().items()))
        words += f" {len(missed)} failures were predicted to be valid, most often `{name}` ({count})."
    return Section(
        heading="Which failures the world model sees",
        body=[paragraph(words), table(["predicted \\ real", *map(str, counts.columns)], rows, shade=True)],
    )
