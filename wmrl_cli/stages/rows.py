"""From episodes and outcomes to table rows: the one place that knows both shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from wmrl_cli.environment import Outcome
from wmrl_cli.seeds import digest

if TYPE_CHECKING:
    from wmrl_cli.agent.episode import Episode

_OUTCOME_COLUMNS = (
    "reward",
    "q",
    "raw_metric",
    "error_class",
    "error_line",
    "queue_s",
    "wall_s",
    "cpu_s",
    "gpu_s",
    "peak_memory_bytes",
    "backend",
    "enforcement",
    "cached",
    "detail",
)


def script_digest(script: str | None) -> str | None:
    """Identity of a script's text; null where there is none."""
    return None if script is None else digest(script)


def score_row(outcome: Outcome, *, scorer: str, trajectory: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `scores`: `outcome` of the turn that `trajectory` (a row with its ids) describes."""
    row = {name: getattr(outcome, name) for name in _OUTCOME_COLUMNS}
    ids = {name: trajectory[name] for name in ("trajectory_id", "turn", "group_id", "task_id", "step")}
    return {
        **ids,
        **row,
        "scorer": scorer,
        "status": str(outcome.status),
        "verdicts": [asdict(verdict) for verdict in outcome.verdicts],
        "feedback": outcome.observation,
    }


def status_summary(scores: pa.Table) -> dict[str, Any]:
    """Lost rows counted, the mean reward and each status's share of the rest; null where all are lost."""
    statuses = scores.column("status").to_pylist()
    rewards = [reward for reward in scores.column("reward").to_pylist() if reward is not None]
    return {
        "lost": statuses.count("lost"),
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        **{f"share_{status}": statuses.count(status) / len(rewards) for status in sorted({*statuses} - {"lost"})},
    }


def trajectory_rows(episode: Episode, *, step: int, environment: str, policy_digest: str) -> list[dict[str, Any]]:
    """Rows of `trajectories`, one a turn; `environment` names who answered."""
    seat = episode.seat
    return [
        {
            "trajectory_id": seat.trajectory_id,
            "group_id": seat.group_id,
            "task_id": seat.task.task_id,
            "step": step,
            "turn": number,
            "environment": environment,
            "prompt_ids": list(turn.prompt_ids),
            "response_ids": list(turn.response_ids),
            "sampler_logprobs": list(turn.logprobs),
            "finish_reason": turn.finish_reason,
            "text": turn.text,
            "script": turn.script,
            "script_digest": script_digest(turn.script),
            "observation": turn.observation,
            "policy_digest": policy_digest,
            "seed": seat.seed,
            "seconds": turn.seconds,
        }
        for number, turn in enumerate(episode.turns, start=1)
    ]
