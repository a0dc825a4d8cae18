import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wmrl_cli.maths.fusion import Eta, Residual, fuse_weights, group_residual, variance_ratio

score = st.floats(0, 1)
group = st.lists(st.tuples(score, score), min_size=2, max_size=9)


def test_a_groups_residual_by_hand():
    # centred c: -0.2, 0, 0.2; centred r: -0.4, -0.1, 0.5; gaps 0.2, 0.1, -0.3
    e, v = group_residual([0.3, 0.5, 0.7], [0.1, 0.4, 1.0])
    assert e == pytest.approx((0.04 + 0.01 + 0.09) / 3)
    assert v == pytest.approx((0.16 + 0.01 + 0.25) / 3)


def test_a_constant_real_group_counts_as_pure_noise():
    assert group_residual([0.2, 0.4], [0.1, 0.1]) == pytest.approx((0.01, 0.0))
    assert group_residual([0.7] * 3, [0.1] * 3) == (0.0, 0.0)


def test_a_group_of_one_has_no_residual():
    assert group_residual([0.2], [0.3]) is None
    with pytest.raises(ValueError, match="one length"):
        group_residual([0.2, 0.3], [0.3])


@given(group, score)
def test_a_shift_of_the_whole_group_is_invisible(group, shift):
    c, r = np.array(group).T
    assert group_residual(c + shift, r).e == pytest.approx(group_residual(c, r).e, abs=1e-12)


def test_eta_is_a_ratio_of_weighted_means_by_hand():
    eta = Eta(half_life=1.0)  # a group counts half after one more
    for residual in (Residual(0.4, 1.0), Residual(0.2, 0.0), Residual(0.1, 0.5)):
        eta = eta.push(residual)
    assert eta.value == pytest.approx((0.4 / 4 + 0.2 / 2 + 0.1) / (1 / 4 + 0 + 0.5))
    assert eta.groups == 3


def test_a_group_counts_half_after_the_half_life():
    eta = Eta(half_life=64).push(Residual(1.0, 1.0))
    for _ in range(64):
        eta = eta.push(Residual(0.0, 0.0))
    assert eta.numerator == pytest.approx(0.5)


def test_eta_is_undefined_while_every_group_is_constant():
    eta = Eta().push(Residual(0.3, 0.0))
    assert eta.value is None
    assert variance_ratio(eta.value, None) == 1.0


def test_the_mean_of_ratios_explodes_on_a_nearly_constant_group_and_ours_does_not():
    groups = [Residual(0.1, 0.2)] * 20 + [Residual(0.1, 0.002)]
    ours, theirs = Eta(), Eta(per_group=True)
    for residual in groups:
        ours, theirs = ours.push(residual), theirs.push(residual)
    assert ours.value < 0.6 < 2.5 < theirs.value


def test_per_group_drops_constant_groups_and_is_a_mean_of_ratios():
    eta = Eta(half_life=1.0, per_group=True).push(Residual(0.1, 0.2)).push(Residual(9.0, 0.0)).push(Residual(0.3, 0.3))
    assert eta.value == pytest.approx((0.5 * 0.5 + 1.0) / 1.5) and eta.groups == 2


def test_rho_by_hand():
    assert variance_ratio(0.3, 0.3) == 2.0
    assert variance_ratio(0.6, 0.2) == pytest.approx(4.0)
    assert variance_ratio(0.6, 0.2, rho_max=3.0) == 3.0
    assert variance_ratio(0.6, 0.2, rule="measured") == pytest.approx(1.6)
    assert variance_ratio(None, 0.2) == variance_ratio(0.6, None) == variance_ratio(0.6, None, rule="measured") == 1.0
    with pytest.raises(ValueError, match="relative"):
        variance_ratio(0.6, 0.2, rule="other")


def test_a_perfect_world_model_divides_by_no_zero():
    assert variance_ratio(0.0, 0.0) == 2.0
    assert np.isfinite(variance_ratio(0.5, 0.0))


def test_weights_by_hand():
    # v = 1, 1/4, 1/4 and a group that left: K = 3, sum 1.5
    assert fuse_weights([True, False, False, False], [8, 8, 2, 1], 4.0).tolist() == [2.0, 0.5, 0.5, 0.0]


groups = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=20)


@given(groups, st.floats(1, 1e6))
def test_weights_have_mean_one_and_ratio_rho(groups, rho):
    executed = np.array([is_executed for is_executed, _ in groups], dtype=bool)
    counts = np.array([count for _, count in groups], dtype=int)
    weights = fuse_weights(executed, counts, rho)
    part = counts >= 2
    assert (weights[~part] == 0).all()
    assume(part.any())
    assert weights[part].mean() == pytest.approx(1.0)
    if (part & executed).any() and (part & ~executed).any():
        assert weights[part & executed][0] / weights[part & ~executed][0] == pytest.approx(rho)


@given(st.integers(1, 20), st.booleans(), st.floats(1, 1e6))
def test_one_source_only_weighs_exactly_one(K, executed, rho):
    assert fuse_weights([executed] * K, [8] * K, rho).tolist() == [1.0] * K


@given(st.integers(1, 6), st.integers(1, 6), st.floats(1, 1e6))
def test_weighted_mean_is_formula_5_literally(executed, simulated, rho):
    rng = np.random.default_rng(executed * 7 + simulated)
    gradients = rng.normal(size=(executed + simulated, 3))
    flags = np.arange(executed + simulated) < executed
    V_E, V_WM = 1.0, rho
    literal = (gradients[flags].sum(0) / V_E + gradients[~flags].sum(0) / V_WM) / (executed / V_E + simulated / V_WM)
    weights = fuse_weights(flags, [4] * flags.size, rho)
    assert (weights[:, None] * gradients).mean(0) == pytest.approx(literal, rel=1e-9, abs=1e-12)


def test_weights_refuse_a_rho_that_is_none():
    for rho in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rho"):
            fuse_weights([True], [8], rho)
    with pytest.raises(ValueError, match="one flag"):
        fuse_weights([True], [8, 8], 2.0)
