"""Sections of a run's report on training: weights, dead groups, cost by stage, health."""

from __future__ import annotations

import numpy as np

from wmrl_cli.report.run_data import RunData
from wmrl_cli.report.run_parts import SMOOTH, curve, ends, rolling, titled, total
from wmrl_cli.report.svg import Bars, Section, bar_chart, line_chart, table


def weights(run: RunData) -> Section | None:
    """eta^2, rho, and the weights of the two streams."""
    rho = run.column("rho")
    if not run.has_world_model or not np.isfinite(rho).any():
        return None
    steps, eta2, start = run.column("step"), run.column("eta2"), run.column("eta2_cal")
    noise = line_chart(
        [
            curve(steps, eta2, name="eta squared", step=True),
            curve(steps, start, name="its value when warm-up ended", step=True),
        ],
        title="Noise of the world model",
        description="eta squared by step, and its value at the end of warm-up",
        x_label="step",
        y_label="eta squared, share of the real variance",
        y_range=(0.0, float(np.nanmax(np.append([0.1], np.append(eta2, start))))),
    )
    both = line_chart(
        [
            curve(steps, run.column("weight_executed"), name="executed group", markers=True),
            curve(steps, run.column("weight_simulated"), name="simulated group"),
            curve(steps, rho, name="rho, their ratio", step=True),
        ],
        title="Weight of a group by source",
        description="Mean weight of executed and of simulated groups and their ratio, by step",
        x_label="step",
        y_label="weight (mean over the step's groups is 1)",
    )
    return Section(
        heading="What a simulated group is worth",
        body=[
            titled("Noise of the world model", noise, _noise_words(ends(eta2)[1], ends(start)[1])),
            titled("Weight of a group", both, _weight_words(ends(rho)[1], bool(np.isfinite(start).any()))),
        ],
    )


def _noise_words(eta2: float, start: float) -> str:
    if not np.isfinite([eta2, start]).all():
        return "Warm-up is not over, or no executed group had different rewards yet: there is nothing to compare."
    compared = "more than" if eta2 > 1.1 * start else "less than" if eta2 < 0.9 * start else "about as much as"
    return (
        f"Inside groups the score errs by {eta2:.2f} of the real variance,"
        f" {compared} when warm-up ended ({start:.2f}, out of fold)."
    )


def _weight_words(rho: float, warm: bool) -> str:
    if not warm:
        return "Warm-up is not over: rho is 1 and both streams weigh the same."
    return (
        f"At the last step an executed group weighs {rho:.2f} times a simulated one. A step with one source only gives"
        " it the weight 1; a gap is a step without that source."
    )


def dead_groups(run: RunData) -> Section:
    """Share of the groups whose rewards are all equal: they teach nothing."""
    steps = run.column("step")
    series = [("dead_share_executed", "executed groups"), ("dead_share_simulated", "simulated groups")]
    shown = [(name, run.column(column)) for column, name in series if np.isfinite(run.column(column)).any()]
    chart = line_chart(
        [curve(steps, rolling(values), name=name) for name, values in shown],
        title="Dead groups by source",
        description="Share of groups whose trajectories all have one reward",
        x_label="step",
        y_label=f"share of groups (mean over {SMOOTH} steps)",
        y_range=(0.0, 1.0),
    )
    means = " and ".join(f"{np.nanmean(values):.0%} of the {name}" for name, values in shown)
    flat = run.column("flattened_groups")
    flattened = (
        f" The map made {np.nanmean(flat):.0%} of the groups with a spread of scores flat."
        if np.isfinite(flat).any()
        else ""
    )
    return Section(
        heading="Groups that teach nothing",
        body=[titled("Dead groups", chart, f"All rewards were equal in {means or 'none of the groups'}.{flattened}")],
    )


STAGES = (("generate", "generate"), ("simulate", "simulate"), ("wait", "wait for executions"), ("train", "train"))


def costs(run: RunData) -> Section:
    """Seconds by stage, and what executing every script would have cost."""
    totals = [total(run.column(f"seconds_{name}")) for name, _ in STAGES]
    whole = total(run.column("seconds_step"))
    if_all = all_executed_seconds(run)
    labels = [label for _, label in STAGES] + ["all of it, as it ran"]
    values = [*totals, whole]
    if np.isfinite(if_all):
        labels.append("all scripts executed (estimate)")
        values.append(if_all)
    chart = bar_chart(
        labels,
        [Bars(values=values)],
        title="Seconds by stage",
        description="Wall-clock seconds of the whole run by stage, and the estimate for executing everything",
        x_label="wall-clock seconds over all steps",
    )
    return Section(
        heading="Where the time went", body=[titled("Seconds by stage", chart, _cost_words(run, whole, if_all))]
    )


def _cost_words(run: RunData, whole: float, if_all: float) -> str:
    executed, simulated = (int(total(run.column(f"scripts_{name}"))) for name in ("executed", "simulated"))
    per_script = run.column("seconds_per_execution")
    words = f"{executed:,} scripts were really executed and {simulated:,} were simulated"
    if np.isfinite(per_script).any():
        words += f"; one execution took {np.nanmean(per_script):.2f} s on average"
    if not np.isfinite(if_all):
        return words + "."
    if not run.has_world_model:
        return f"{words}. There was no world model to save time."
    return (
        f"{words}. Executing every script on the same slots would have made the run take {if_all:,.0f} s instead of"
        f" {whole:,.0f} s by this estimate: {if_all / whole:.1f} times as long."
    )


def all_executed_seconds(run: RunData) -> float:
    """The run's seconds had every script been executed and none simulated; NaN where nothing was executed.

    Steps without an execution take the mean cost of a trajectory from the others.
    """
    cost, trajectories = run.column("seconds_if_all_executed"), run.column("trajectories")
    known = np.isfinite(cost)
    if not known.any() or not trajectories[known].sum():
        return float("nan")
    executing = cost[known].sum() / trajectories[known].sum() * trajectories.sum()
    return float(executing + total(run.column("seconds_generate")) + total(run.column("seconds_train")))


def health(run: RunData) -> Section | None:
    """KL, entropy and the other numbers by which one sees that learning is sound."""
    if not np.isfinite(run.column("kl")).any():
        return None
    steps = run.column("step")
    charts = [
        line_chart(
            [curve(steps, run.column(name))],
            title=title,
            description=f"{title} by step",
            x_label="step",
            y_label=unit,
        )
        for name, title, unit in (
            ("kl", "Divergence from the start", "KL, nats a token"),
            ("entropy", "Entropy of the policy", "entropy, nats a token"),
        )
    ]
    kl, entropy = ends(run.column("kl")), ends(run.column("entropy"))
    names = (
        "gradient_norm",
        "clip_share",
        "sampler_logprob_diff_max",
        "effective_sample_share",
        "truncated_share",
        "loss",
    )
    rows = [
        [name.replace("_", " "), *ends(run.column(name)), float(np.nanmax(run.column(name)))]
        for name in names
        if np.isfinite(run.column(name)).any()
    ]
    return Section(
        heading="Is learning sound",
        body=[
            titled(
                "Divergence from the start",
                charts[0],
                f"The policy is {kl[1]:.4f} nats a token away from where it started.",
            ),
            titled(
                "Entropy of the policy",
                charts[1],
                f"Entropy went from {entropy[0]:.3f} to {entropy[1]:.3f} nats a token.",
            ),
            table(["", "first step", "last step", "largest"], rows),
        ],
    )
