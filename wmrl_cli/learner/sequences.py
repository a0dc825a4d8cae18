"""What goes into the learner and what comes out, and which of it counts; importable without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Ids = Sequence[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainSequence:
    """One trajectory, token in and token out: what was read and what was sampled, never rendered again."""

    ids: Ids  # all tokens, prompts, replies and observations in order; length T
    policy_mask: Sequence[bool]  # length T; True where the policy chose the token
    sampler_logprobs: Sequence[float]  # length T, nats at temperature 1; entries outside the mask are not read
    advantage: float  # w_k A_i: the trajectory's advantage times its group's fusion weight
    group_size: int  # n_k: trajectories of its group with a reward, over all ranks
    group_id: str
    truncated: bool = False  # the last reply was cut by its token limit

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.policy_mask) == len(self.sampler_logprobs):
            lengths = len(self.ids), len(self.policy_mask), len(self.sampler_logprobs)
            raise ValueError(f"ids, policy_mask and sampler_logprobs must be equally long: got {lengths}")
        if len(self.ids) < 2 or self.policy_mask[0]:
            raise ValueError("a sequence must start with a token that the policy read, and hold another")
        if self.group_size < 2:
            raise ValueError(f"a group needs at least two trajectories: `{self.group_id}` has {self.group_size}")

    @classmethod
    def from_turns(
        cls,
        turns: Iterable[tuple[Ids, Ids, Sequence[float]]],
        *,
        advantage: float,
        group_size: int,
        group_id: str,
        truncated: bool = False,
    ) -> TrainSequence:
        """A sequence from turns of (tokens added before the reply, the reply's tokens, their log-probabilities)."""
        ids: list[int] = []
        mask: list[bool] = []
        logprobs: list[float] = []
        for added, reply, reply_logprobs in turns:
            if len(reply) != len(reply_logprobs):
                raise ValueError(f"a reply of {len(reply)} tokens has {len(reply_logprobs)} log-probabilities")
            ids += [*added, *reply]
            mask += [False] * len(added) + [True] * len(reply)
            logprobs += [0.0] * len(added) + list(reply_logprobs)
        return cls(
            ids=ids,
            policy_mask=mask,
            sampler_logprobs=logprobs,
            advantage=advantage,
            group_size=group_size,
            group_id=group_id,
            truncated=truncated,
        )


@dataclass(frozen=True)
class Recount:
    """What is left of a step once unusable trajectories are gone."""

    kept: tuple[int, ...]  # positions of the sequences that stay
    sizes: tuple[int, ...]  # n_k of each of them
    groups: int  # K of the whole step


def recount(
    sequences: Sequence[TrainSequence], usable: Sequence[bool], unusable: Counter[tuple[str, int]], groups: int
) -> Recount:
    """The normalisers without the trajectories in which a number is not finite.

    `unusable` counts (group_id, group_size) over all ranks, `usable` says it for this rank's `sequences`.
    A group left with fewer than two trajectories leaves the step, and K.
    """
    lost = {group_id: count for (group_id, _), count in unusable.items()}
    dissolved = {group_id for (group_id, size), count in unusable.items() if size - count < 2}
    kept = tuple(i for i, sequence in enumerate(sequences) if usable[i] and sequence.group_id not in dissolved)
    sizes = tuple(sequences[i].group_size - lost.get(sequences[i].group_id, 0) for i in kept)
    return Recount(kept, sizes, groups - len(dissolved))


@dataclass(frozen=True, kw_only=True)
class StepStats:
    """What one step did. All numbers are finite; means over nothing are 0."""

    step: int  # steps done, this one included
    updated: bool  # False where no token was left to learn from: the weights did not move
    loss: float
    policy_loss: float
    kl: float  # (1/N) sum_i mean_t k3 to the reference, nats; 0 where no reference is kept
    entropy: float  # mean over all tokens, nats
    clip_share: float  # share of tokens where the clip took the gradient away
    grad_norm: float  # of the whole step's gradient, before clipping
    learning_rate: float
    sampler_difference: float  # mean over tokens of |learner - sampler|, nats
    sampler_difference_max: float
    effective_sample_size: float  # (sum w)^2 / (T sum w^2) of the sampler corrections, in [0, 1]
    groups: int  # K
    sequences: int  # N
    tokens: int  # tokens of the policy in the loss
    dropped: int  # trajectories that left because a number in them was not finite, or with their group
    truncated: int  # trajectories whose last reply was cut
    seconds: float
