"""From episodes and outcomes to table rows, and back: the one place that knows both shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wmrl_cli.environment import Outcome, Verdict
from wmrl_cli.maths.outcomes import Status
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


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """The outcome in a row of `scores`."""
    return Outcome(
        **{name: row[name] for name in _OUTCOME_COLUMNS},
        status=Status(row["status"]),
        observation=row["feedback"],
        verdicts=tuple(Verdict(**verdict) for verdict in row["verdicts"]),
    )


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
