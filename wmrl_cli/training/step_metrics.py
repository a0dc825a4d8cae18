"""What is reported of a step (method: section 8): arithmetic on the step's arrays and clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wmrl_cli.learner.sequences import StepStats
from wmrl_cli.tables import METRICS
from wmrl_cli.training.experience import Experience, Scored
from wmrl_cli.training.update import Floats, Update


def experience_metrics(experience: Experience, update: Update, *, slots: int) -> dict[str, Any]:
    """Shares, rewards by source, losses by stage and the cost of the step; null where nothing was measured.

    `seconds_if_all_executed` is what the step's executions would have taken on the same `slots` had every
    script been executed, at the mean wall time of those that were.
    """
    executed, weights = experience.is_executed, update.weights
    walls = [outcome.wall_s for outcome in _outcomes(experience.executed) if outcome.wall_s is not None]
    turns = [turn for group in experience.episodes for episode in group for turn in episode.turns]
    scripts = sum(turn.script is not None for turn in turns)
    per_script = float(np.mean(walls)) if walls else None
    return {
        "groups": update.groups,
        "anchors": int(executed.sum()),
        "anchor_share_realised": float(executed.mean()) if len(executed) else None,
        "flattened_groups": _flattened(experience.predicted, update.calibrated),
        "weight_executed": _mean(weights[executed & (weights > 0)]),
        "weight_simulated": _mean(weights[~executed & (weights > 0)]),
        "dead_share_executed": _mean(update.dead[executed & (weights > 0)]),
        "dead_share_simulated": _mean(update.dead[~executed & (weights > 0)]),
        "lost_world_model": _lost(experience.simulated),
        "lost_sandbox": _lost(experience.executed),
        "trajectories": sum(len(group) for group in experience.episodes),
        "reward_raw": _mean(experience.predicted),
        "reward_calibrated": _mean(update.calibrated),
        "reward_real": _mean(experience.real),
        "reward_used": _mean(update.used),
        "scripts_executed": len(walls),
        "scripts_simulated": sum(1 for _ in _outcomes(experience.simulated)),
        "seconds_per_execution": per_script,
        "seconds_if_all_executed": None if per_script is None else per_script * scripts / slots,
        "gpu_seconds": float(sum(o.gpu_s or 0.0 for o in _outcomes(experience.executed))),
        **{f"seconds_{name}": value for name, value in experience.seconds.items()},
    }


def learner_metrics(stats: StepStats) -> dict[str, Any]:
    """The learner's numbers under the names of the `metrics` table."""
    return {
        "loss": stats.loss,
        "kl": stats.kl,
        "entropy": stats.entropy,
        "clip_share": stats.clip_share,
        "gradient_norm": stats.grad_norm,
        "learning_rate": stats.learning_rate,
        "sampler_logprob_diff_mean": stats.sampler_difference,
        "sampler_logprob_diff_max": stats.sampler_difference_max,
        "effective_sample_share": stats.effective_sample_size,
        "truncated_share": stats.truncated / stats.sequences if stats.sequences else None,
    }


def speed_up(metrics: dict[str, Any]) -> float | None:
    """How many times longer the step would have taken with every script executed and no world model."""
    if metrics["seconds_if_all_executed"] is None:
        return None
    executed = metrics["seconds_generate"] + metrics["seconds_train"] + metrics["seconds_if_all_executed"]
    return float(executed / metrics["seconds_step"])


def metrics_row(step: int, values: dict[str, Any]) -> dict[str, Any]:
    """A row of `metrics`: `values`, and null for what this step did not measure."""
    if unknown := values.keys() - set(METRICS.schema.names):
        raise ValueError(f"unknown metrics: {sorted(unknown)}")
    row = {name: values.get(name) for name in METRICS.schema.names}
    return {**{name: None if value is None else float(value) for name, value in row.items()}, "step": step}


def _flattened(predicted: Floats, calibrated: Floats) -> float | None:
    """Share of the groups whose predicted rewards differ that the map makes all equal."""
    spread = [(p[~np.isnan(p)], c[~np.isnan(c)]) for p, c in zip(predicted, calibrated, strict=True)]
    alive = [c for p, c in spread if len(p) > 1 and np.ptp(p) > 0]
    return float(np.mean([np.ptp(c) == 0 for c in alive])) if alive else None


def _mean(values: Any) -> float | None:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else None


def _lost(scored: Sequence[Sequence[Scored | None]]) -> int:
    return sum(one is not None and np.isnan(one.reward) for group in scored for one in group)


def _outcomes(scored: Sequence[Sequence[Scored | None]]) -> Iterable[Any]:
    return (outcome for group in scored for one in group if one is not None for outcome in one.outcomes)
