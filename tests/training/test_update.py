"""The fused update: by hand, against formula (5) written out, and its invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.maths.calibration import ScoreMap
from wmrl_cli.training.update import make_update

NAN = float("nan")
IDENTITY = ScoreMap.identity()


def update(predicted, real, executed, *, rho=1.0, score_map=IDENTITY, standardize=False):
    return make_update(
        np.array(predicted, dtype=float),
        np.array(real, dtype=float),
        np.array(executed),
        score_map=score_map,
        rho=rho,
        standardize=standardize,
    )


def test_one_anchor_and_one_simulated_group_by_hand():
    # rho 3: v = 1 and 1/3, mean 2/3, so w = 1.5 and 0.5; centred rewards are -.2, .2 and -.1, .1
    made = update([[0.9, 0.1], [0.2, 0.4]], [[0.1, 0.5], [NAN, NAN]], [True, False], rho=3.0)
    assert made.weights == pytest.approx([1.5, 0.5])
    assert made.used == pytest.approx(np.array([[0.1, 0.5], [0.2, 0.4]]))
    assert made.advantages == pytest.approx(np.array([[-0.3, 0.3], [-0.05, 0.05]]))
    assert made.groups == 2 and not made.dead.any()


def test_anchors_train_on_real_rewards_and_the_map_touches_only_predictions():
    flat = ScoreMap(knots=np.array([0.0, 1.0]), values=np.array([0.3, 0.3]), version=1)
    made = update([[0.1, 0.9], [0.1, 0.9]], [[0.0, 1.0], [NAN, NAN]], [True, False], score_map=flat)
    assert made.used[0] == pytest.approx([0.0, 1.0])
    assert made.used[1] == pytest.approx([0.3, 0.3])
    assert list(made.dead) == [False, True]
    assert made.groups == 2, "a dead group stays in K"


def test_a_lost_trajectory_leaves_baseline_and_loss_and_a_group_of_one_leaves_the_step():
    made = update([[0.2, NAN, 0.4], [0.3, NAN, NAN]], [[NAN] * 3] * 2, [False, False])
    assert np.isnan(made.advantages[0, 1])
    assert made.advantages[0, [0, 2]] == pytest.approx([-0.1, 0.1])
    assert np.isnan(made.advantages[1]).all()
    assert made.groups == 1 and made.weights == pytest.approx([1.0, 0.0])


rewards = st.floats(0, 1, allow_nan=False)
groups_of = st.integers(1, 6).flatmap(
    lambda k: st.tuples(
        st.lists(st.lists(rewards, min_size=4, max_size=4), min_size=k, max_size=k),
        st.lists(st.booleans(), min_size=k, max_size=k),
        st.floats(1.0, 1e6),
    )
)


@given(groups_of)
def test_the_mean_of_weighted_groups_is_formula_five(case):
    """g = (g_E/V_E + g_WM/V_WM) / (|G_E|/V_E + |G_WM|/V_WM), with each group's gradient any linear function of A."""
    scores, executed, rho = case
    made = update(scores, scores, executed, rho=rho)
    direction = np.random.default_rng(0).normal(size=4)
    unweighted = update(scores, scores, executed, rho=1.0).advantages @ direction
    executed = np.array(executed)
    v_e, v_wm = 1.0, rho
    numerator = unweighted[executed].sum() / v_e + unweighted[~executed].sum() / v_wm
    formula = numerator / (executed.sum() / v_e + (~executed).sum() / v_wm)
    assert (made.advantages @ direction).mean() == pytest.approx(formula, rel=1e-9, abs=1e-12)


@given(groups_of, st.randoms())
def test_the_order_of_groups_does_not_matter(case, random):
    scores, executed, rho = case
    order = list(range(len(scores)))
    random.shuffle(order)
    straight = update(scores, scores, executed, rho=rho)
    shuffled = update([scores[i] for i in order], [scores[i] for i in order], [executed[i] for i in order], rho=rho)
    assert shuffled.advantages == pytest.approx(straight.advantages[order], nan_ok=True)
    assert shuffled.weights == pytest.approx(straight.weights[order])
