import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.maths.advantages import dead_share, group_advantages, is_dead

LOST = float("nan")
rewards = st.lists(st.one_of(st.floats(0, 1), st.just(LOST)), min_size=1, max_size=12)


def test_centred_and_standardized_by_hand():
    assert group_advantages([0.0, 0.2, LOST, 0.7]).tolist() == pytest.approx([-0.3, -0.1, LOST, 0.4], nan_ok=True)
    deviation = np.sqrt((0.09 + 0.01 + 0.16) / 3) + 1e-4
    expected = [-0.3 / deviation, -0.1 / deviation, 0.4 / deviation]
    assert group_advantages([0.0, 0.2, 0.7], standardize=True).tolist() == pytest.approx(expected)


@given(st.floats(0, 1), st.integers(2, 12), st.booleans())
def test_equal_rewards_give_exactly_zero(reward, n, standardize):
    assert (group_advantages([reward] * n, standardize=standardize) == 0.0).all()


@given(rewards, st.booleans())
def test_lost_trajectories_never_reach_a_mean(rewards, standardize):
    advantages = group_advantages(rewards, standardize=standardize)
    kept = [reward for reward in rewards if reward == reward]
    if len(kept) < 2:
        assert np.isnan(advantages).all()
    else:
        assert (np.isnan(advantages) == np.isnan(rewards)).all()
        alone = group_advantages(kept, standardize=standardize)
        assert advantages[~np.isnan(advantages)].tobytes() == alone.tobytes()
        assert advantages[~np.isnan(advantages)].sum() == pytest.approx(0, abs=1e-9)


@given(rewards, st.randoms(use_true_random=False), st.booleans())
def test_permuting_a_group_permutes_its_advantages_bit_for_bit(rewards, random, standardize):
    order = random.sample(range(len(rewards)), len(rewards))
    straight = group_advantages(rewards, standardize=standardize)
    permuted = group_advantages([rewards[i] for i in order], standardize=standardize)
    assert permuted.tobytes() == straight[order].tobytes()


def test_dead_groups_are_counted_among_those_that_take_part():
    assert dead_share([[0.1, 0.1, LOST], [0.1, 0.2], [0.5, LOST], [0.2, 0.2]]) == pytest.approx(2 / 3)
    assert dead_share([[0.1]]) is None
    assert is_dead([LOST, 0.3, 0.3]) and not is_dead([LOST, 0.3])


def test_an_infinite_reward_is_refused():
    with pytest.raises(ValueError, match="finite"):
        group_advantages([0.0, float("inf")])
