import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.maths.anchors import choose_anchors


@given(st.integers(0, 2**40), st.integers(1, 12), st.integers(0, 1000), st.integers(1, 40))
def test_the_share_is_exact_to_less_than_one_anchor(seed, groups, thousandths, steps):
    frac = thousandths / 1000
    count = sum(choose_anchors(seed, step, groups, frac).sum() for step in range(steps))
    assert abs(count - steps * groups * frac) < 1 + 1e-9


@given(st.integers(0, 2**40), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_the_share_is_exact_with_ragged_steps(seed, sizes):
    before, count = 0, 0
    for step, groups in enumerate(sizes):
        count += choose_anchors(seed, step, groups, 0.3, groups_before=before).sum()
        before += groups
    assert abs(count - 0.3 * before) < 1 + 1e-9


def test_eight_groups_at_a_tenth_have_an_anchor_in_four_steps_of_five():
    for seed in range(20):
        counts = [int(choose_anchors(seed, step, 8, 0.1).sum()) for step in range(10)]
        assert sum(counts) == 8 and set(counts) == {0, 1}


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 9))
def test_the_two_ends_need_no_special_mode(seed, step, groups):
    assert not choose_anchors(seed, step, groups, 0.0).any()
    assert choose_anchors(seed, step, groups, 1.0).all()


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0, 1), st.integers(0, 12))
def test_a_minimum_is_kept_as_far_as_there_are_groups(seed, step, frac, minimum):
    assert choose_anchors(seed, step, 8, frac, min_per_step=minimum).sum() >= min(8, minimum)


def test_a_step_draws_the_same_groups_again_and_other_seeds_draw_others():
    drawn = [choose_anchors(5, step, 8, 0.25).tolist() for step in range(20)]
    assert drawn == [choose_anchors(5, step, 8, 0.25).tolist() for step in range(20)]
    assert drawn != [choose_anchors(6, step, 8, 0.25).tolist() for step in range(20)]


def test_every_group_has_the_same_chance():
    hits = sum(choose_anchors(seed, step, 8, 0.1).astype(int) for seed in range(50) for step in range(40))
    # 2,000 draws at 0.1: mean 200, standard deviation below 13.5
    assert np.abs(hits - 200).max() < 4 * 13.5


def test_a_share_outside_its_range_is_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        choose_anchors(0, 0, 8, 1.5)
    with pytest.raises(ValueError, match="negative"):
        choose_anchors(0, -1, 8, 0.5)
