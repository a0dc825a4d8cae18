"""Who does what of a step: everything once, anchors and simulated groups spread evenly, whatever the number of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.launch import Rank
from wmrl_cli.learner.sequences import TrainSequence
from wmrl_cli.training.sharing import share_sequences, share_trajectories

plans = st.lists(st.booleans(), max_size=12)
few = st.integers(1, 9)


@given(plans, few, few)
def test_every_trajectory_is_played_once(executed, size, ranks):
    shares = share_trajectories(executed, size, ranks)
    assert len(shares) == ranks
    assert sorted(place for share in shares for place in share) == [
        (group, member) for group in range(len(executed)) for member in range(size)
    ]


@given(plans, few, few)
def test_anchors_are_spread_to_within_one_trajectory_and_simulated_groups_to_within_one_group(executed, size, ranks):
    shares = share_trajectories(executed, size, ranks)
    anchors = [sum(executed[group] for group, _ in share) for share in shares]
    simulated = [[group for group, _ in share if not executed[group]] for share in shares]
    assert max(anchors) - min(anchors) <= 1
    assert all(groups.count(group) == size for groups in simulated for group in groups), "a simulated group was split"
    assert max(map(len, simulated)) - min(map(len, simulated)) <= size


def test_one_rank_plays_the_step_in_its_order():
    assert share_trajectories([False, True], 2, 1) == [[(0, 0), (0, 1), (1, 0), (1, 1)]]


def test_by_hand():
    # groups 0 and 2 are simulated; the four trajectories of anchor 1 are dealt from the last rank on
    assert share_trajectories([False, True, False], 4, 3) == [
        [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2)],
        [(1, 1), (2, 0), (2, 1), (2, 2), (2, 3)],
        [(1, 0), (1, 3)],
    ]


@given(st.lists(st.integers(2, 40), max_size=20), few)
def test_every_sequence_is_trained_on_once_and_no_rank_has_more_than_one_more(lengths, ranks):
    sequences = [sequence(length) for length in lengths]
    shares = [share_sequences(sequences, rank, ranks) for rank in range(ranks)]
    assert sorted(id(one) for share in shares for one in share) == sorted(map(id, sequences))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def sequence(length):
    return TrainSequence(
        ids=[1] * length,
        policy_mask=[False] * length,
        sampler_logprobs=[0.0] * length,
        advantage=0.0,
        group_size=2,
        group_id="",
    )


@pytest.mark.parametrize(("slots", "ranks", "shares"), [(8, 4, [2, 2, 2, 2]), (5, 2, [3, 2]), (2, 4, [1, 1, 1, 1])])
def test_a_machines_slots_are_shared_out_with_at_least_one_for_each_of_its_ranks(slots, ranks, shares):
    found = [Rank(number=i, world=ranks, local=i, local_world=ranks) for i in range(ranks)]
    assert [rank.share_of(slots) for rank in found] == shares
    assert {rank.machine_slots(slots) for rank in found} == {sum(shares)}
    assert Rank(world=2 * ranks, local_world=ranks).job_slots(slots) == 2 * sum(shares)


def test_alone_all_slots_are_ours():
    assert Rank().share_of(7) == Rank().machine_slots(7) == Rank().job_slots(7) == 7
