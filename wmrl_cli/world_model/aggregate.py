"""From eight verdicts to one outcome: pure arithmetic, no model.

A script goes through three gates in order, and each expert watches one of them:

1. it runs without an exception     dependencies, api, data, shapes, runtime   else `runtime_error`
2. it stays within its limits       compute                                    else `timeout` or `out_of_memory`
3. it leaves a submission           submission                                 else `no_submission` or `bad_submission`

An expert's `fails` is the probability that the script fails in its way, given that all else is in order. So a
gate is passed with the product of its experts' (1 - fails), a later gate is reached only through the earlier
ones, and P(valid) is the product over all seven. The order matters: sharing the failing mass among all experts
would let a script that surely crashes gain by a doubtful submission. In this order a rise of any `fails` never
raises the expected reward, on any ladder that rises from runtime_error to exhausted to ran to valid.

The expected reward is the mean of the ladder over these statuses, with the quality expert's E[q] for `valid`.
An expert that abstains is left out of its product. With more than MAX_ABSTENTIONS of them, or without quality,
there is no outcome: the script is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wmrl_cli.environment import Verdict
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.prompts.base import QUALITY

MAX_ABSTENTIONS = 3  # of eight experts
GATES = (("dependencies", "api", "data", "shapes", "runtime"), ("compute",), ("submission",))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """How a script is expected to end.

    `probabilities` sum to 1; `status` is the likeliest of them; `reward` and `q` are expectations in [0, 1], q
    given that the script is valid; `cause` is the verdict that `status` rests on, None where it is `valid`.
    """

    probabilities: Mapping[Status, float]
    status: Status
    reward: float
    q: float
    cause: Verdict | None


def lost_because(verdicts: Sequence[Verdict]) -> str:
    """Why these verdicts give no outcome; empty where they do."""
    silent = [verdict.expert for verdict in verdicts if verdict.abstained]
    if QUALITY in silent or len(silent) > MAX_ABSTENTIONS:
        return f"experts without a usable answer: {', '.join(silent)}"
    return ""


def forecast(verdicts: Sequence[Verdict], ladder: RewardLadder) -> Forecast:
    """The expected outcome under `verdicts`, in any order. Raises ValueError where `lost_because` has a reason."""
    if reason := lost_because(verdicts):
        raise ValueError(reason)
    fails = {verdict.expert: _probability(verdict) for verdict in verdicts if not verdict.abstained}
    q = fails[QUALITY]
    probabilities: dict[Status, float] = {}
    causes: dict[Status, Verdict] = {}
    reached = 1.0
    for gate in GATES:
        watching = [verdict for verdict in verdicts if verdict.expert in gate and not verdict.abstained]
        if not watching:
            continue
        passed = 1.0
        for verdict in watching:
            passed *= 1.0 - fails[verdict.expert]
        cause = max(watching, key=lambda verdict: fails[verdict.expert])  # the first of equals
        status = failure_status(cause)
        probabilities[status], causes[status] = reached * (1.0 - passed), cause
        reached *= passed
    probabilities[Status.VALID] = reached
    status = max(probabilities, key=lambda status: probabilities[status])
    reward = sum(share * (ladder.reward(status, q) or 0.0) for status, share in probabilities.items())
    return Forecast(
        probabilities=probabilities, status=status, reward=min(max(reward, 0.0), 1.0), q=q, cause=causes.get(status)
    )


def worth_asking(verdicts: Sequence[Verdict], ladder: RewardLadder) -> set[str]:
    """The experts whose account of the failure is wanted: those that rather expect it, and the one that decides."""
    if lost_because(verdicts):
        return set()
    doubtful = {verdict.expert for verdict in verdicts if verdict.expert != QUALITY and (verdict.fails or 0.0) >= 0.5}
    cause = forecast(verdicts, ladder).cause
    return doubtful | ({cause.expert} if cause else set())


def failure_status(verdict: Verdict) -> Status:
    """The status in which a script ends that fails in this expert's way."""
    named = (verdict.error_class or "").lower()
    match verdict.expert:
        case "compute":
            return Status.OUT_OF_MEMORY if "memory" in named else Status.TIMEOUT
        case "submission":
            return Status.NO_SUBMISSION if named == Status.NO_SUBMISSION else Status.BAD_SUBMISSION
        case _:
            return Status.RUNTIME_ERROR


def score_at(q: float, boards: Sequence[Sequence[float]], *, higher_is_better: bool) -> float:
    """The leaderboard score, of all boards' entries together, whose position is nearest to q in [0, 1].

    It is what a real outcome at this position would show as its score.
    """
    worst_first = sorted((entry for board in boards for entry in board), reverse=not higher_is_better)
    place = round(q * len(worst_first)) - 1
    return worst_first[min(max(place, 0), len(worst_first) - 1)]


def _probability(verdict: Verdict) -> float:
    if verdict.fails is None or not 0.0 <= verdict.fails <= 1.0:
        raise ValueError(f"expert `{verdict.expert}` needs a probability in [0, 1]: got {verdict.fails}")
    return verdict.fails
