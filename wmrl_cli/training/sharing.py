"""Which rank does which part of a step: pure functions, so that every rank knows every other's part."""

from __future__ import annotations

from collections.abc import Sequence

from wmrl_cli.learner.sequences import TrainSequence

Place = tuple[int, int]  # a trajectory: its group's position in the step, its own in the group


def share_trajectories(executed: Sequence[bool], group_size: int, ranks: int) -> list[list[Place]]:
    """The trajectories that each rank plays and scores, in the step's order.

    Anchors wait for sandboxes, which every rank has its part of: their trajectories are dealt out one by one, from
    the last rank on. Simulated groups stay whole, dealt from the first rank on: their members read one prompt,
    and equal scripts in a group get one prediction, equal to the last bit.
    """
    shares: list[list[Place]] = [[] for _ in range(ranks)]
    simulated = dealt = 0
    for group, is_anchor in enumerate(executed):
        members = [(group, member) for member in range(group_size)]
        if is_anchor:
            for place in members:
                shares[-1 - dealt % ranks].append(place)
                dealt += 1
        else:
            shares[simulated % ranks] += members
            simulated += 1
    return shares


def share_sequences(sequences: Sequence[TrainSequence], rank: int, ranks: int) -> list[TrainSequence]:
    """The sequences that `rank` of `ranks` trains on: dealt out by falling length, so that all have alike to do."""
    longest_first = sorted(sequences, key=lambda sequence: -len(sequence.ids))
    return longest_first[rank::ranks]
