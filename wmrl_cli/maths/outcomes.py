"""How a script ended, what that is worth, and where it stands on a leaderboard (the reward ladder)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a script that was run or simulated ended."""

    MALFORMED = "malformed"  # no code block in the reply
    SYNTAX_ERROR = "syntax_error"  # does not compile
    RUNTIME_ERROR = "runtime_error"  # raised, or exit code not 0
    TIMEOUT = "timeout"  # used more time than it was given
    OUT_OF_MEMORY = "out_of_memory"
    RESOURCE_LIMIT = "resource_limit"  # disk, files, output or processes
    NO_SUBMISSION = "no_submission"  # ran, but wrote no file
    BAD_SUBMISSION = "bad_submission"  # wrote a file that cannot be graded
    VALID = "valid"  # graded
    LOST = "lost"  # our failure, never the script's: the reward is null


@dataclass(frozen=True, kw_only=True)
class RewardLadder:
    """Reward in [0, 1] by status; `valid` earns `valid_base + valid_scale * q`, `lost` earns None."""

    malformed: float = 0.0
    syntax_error: float = 0.0
    runtime_error: float = 0.1
    exhausted: float = 0.1  # timeout, out_of_memory, resource_limit
    ran: float = 0.2  # no_submission, bad_submission
    valid_base: float = 0.5
    valid_scale: float = 0.5

    def __post_init__(self) -> None:
        rungs = (self.malformed, self.syntax_error, self.runtime_error, self.exhausted, self.ran, self.valid_base)
        if (
            not all(0.0 <= rung <= 1.0 for rung in rungs)
            or self.valid_scale < 0
            or self.valid_base + self.valid_scale > 1
        ):
            raise ValueError(f"the ladder's rewards must lie in [0, 1]: got {self}")

    def reward(self, status: Status, q: float | None = None) -> float | None:
        """Reward of a script that ended in `status`.

        Parameters
        ----------
        q : leaderboard position in [0, 1]; needed for `valid`, ignored otherwise.

        Returns
        -------
        A reward in [0, 1], or None for `lost`.
        """
        match status:
            case Status.LOST:
                return None
            case Status.VALID:
                if q is None or not 0.0 <= q <= 1.0:
                    raise ValueError(f"a valid script needs a position q in [0, 1]: got {q}")
                return self.valid_base + self.valid_scale * q
            case Status.MALFORMED:
                return self.malformed
            case Status.SYNTAX_ERROR:
                return self.syntax_error
            case Status.RUNTIME_ERROR:
                return self.runtime_error
            case Status.TIMEOUT | Status.OUT_OF_MEMORY | Status.RESOURCE_LIMIT:
                return self.exhausted
            case Status.NO_SUBMISSION | Status.BAD_SUBMISSION:
                return self.ran


def leaderboard_position(score: float, boards: Sequence[Sequence[float]], *, higher_is_better: bool) -> float:
    """Share q in [0, 1] of the leaderboard that `score` reaches, mean over the boards.

    With N entries and pos = 1 + (entries strictly better), q = (N - pos + 1) / N: ties take the best
    place, and worse than all is 0. Raises ValueError for a non-finite score or an empty board.
    Source: MLE-Dojo's position score.
    """
    if not math.isfinite(score):
        raise ValueError(f"a position needs a finite score: got {score}")
    if not boards or not all(len(board) for board in boards):
        raise ValueError("a position needs at least one leaderboard, and none of them empty")
    shares = []
    for board in boards:
        better = sum(entry > score if higher_is_better else entry < score for entry in board)
        shares.append((len(board) - better) / len(board))
    return sum(shares) / len(shares)


def trajectory_reward(rewards: Sequence[float | None], rule: str = "best") -> tuple[float | None, int | None]:
    """Reward of a trajectory from its turns' rewards, and the index of the turn that earned it.

    `best` takes the highest (the first of equals), `last` the final turn. A lost turn (None) makes the
    trajectory lost: a maximum over the turns that were left would be too low. No turns: lost.
    """
    known = [reward for reward in rewards if reward is not None]
    if not rewards or len(known) < len(rewards):
        return None, None
    if rule == "last":
        return known[-1], len(known) - 1
    if rule != "best":
        raise ValueError(f"a trajectory's reward is the `best` or the `last` turn's: got `{rule}`")
    index = max(range(len(known)), key=lambda turn: (known[turn], -turn))
    return known[index], index
