from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from wmrl_cli.environment import Verdict
from wmrl_cli.maths.outcomes import RewardLadder, Status, leaderboard_position
from wmrl_cli.prompts.base import EXPERTS, QUALITY
from wmrl_cli.world_model.aggregate import MAX_ABSTENTIONS, forecast, lost_because, score_at, worth_asking

LADDER = RewardLadder()


def verdicts(q=0.5, *, silent=(), classes=(), **fails):
    """All eight experts: those in `fails` with that probability, the rest with 0; `silent` abstain."""
    numbers = {**dict.fromkeys(EXPERTS, 0.0), **fails, QUALITY: q}
    return [
        Verdict(expert=name, abstained=True)
        if name in silent
        else Verdict(expert=name, abstained=False, fails=numbers[name], error_class=dict(classes).get(name))
        for name in EXPERTS
    ]


shares = st.floats(0, 1)
opinions = st.lists(shares, min_size=8, max_size=8).map(
    lambda p: verdicts(p[7], **dict(zip(EXPERTS[:7], p[:7], strict=True)))
)
rungs = st.lists(shares, min_size=5, max_size=5).map(sorted)
ladders = rungs.map(
    lambda r: RewardLadder(runtime_error=r[0], exhausted=r[1], ran=r[2], valid_base=r[3], valid_scale=(1 - r[3]) * r[4])
)


def test_a_script_that_surely_passes_earns_its_position():
    expected = forecast(verdicts(q=0.4), LADDER)
    assert expected.status is Status.VALID
    assert expected.probabilities[Status.VALID] == 1.0
    assert expected.reward == approx(0.7)
    assert (expected.q, expected.cause) == (0.4, None)


def test_three_gates_by_hand():
    # runs 0.5 * 0.8 = 0.4; within limits 0.4 * 0.75 = 0.3; leaves a submission 0.3 * 0.5 = 0.15
    expected = forecast(verdicts(q=1.0, api=0.5, runtime=0.2, compute=0.25, submission=0.5), LADDER)
    assert expected.probabilities == approx(
        {Status.RUNTIME_ERROR: 0.6, Status.TIMEOUT: 0.1, Status.BAD_SUBMISSION: 0.15, Status.VALID: 0.15}
    )
    assert expected.reward == approx(0.6 * 0.1 + 0.1 * 0.1 + 0.15 * 0.2 + 0.15 * 1.0)
    assert expected.status is Status.RUNTIME_ERROR
    assert expected.cause.expert == "api"


@pytest.mark.parametrize(
    ("expert", "named", "status"),
    [
        ("compute", "out_of_memory", Status.OUT_OF_MEMORY),
        ("compute", "CUDA OutOfMemoryError", Status.OUT_OF_MEMORY),
        ("compute", "timeout", Status.TIMEOUT),
        ("compute", None, Status.TIMEOUT),
        ("submission", "no_submission", Status.NO_SUBMISSION),
        ("submission", "bad_submission", Status.BAD_SUBMISSION),
        ("submission", None, Status.BAD_SUBMISSION),
        ("data", "KeyError", Status.RUNTIME_ERROR),
        ("shapes", "timeout", Status.RUNTIME_ERROR),
    ],
)
def test_the_expert_and_its_class_name_the_status(expert, named, status):
    expected = forecast(verdicts(classes={expert: named}, **{expert: 0.9}), LADDER)
    assert expected.status is status
    assert expected.cause.error_class == named


def test_of_equally_likely_ends_the_earlier_gate_is_told():
    assert forecast(verdicts(data=0.5), LADDER).status is Status.RUNTIME_ERROR


@given(opinions)
def test_probabilities_sum_to_one_and_the_reward_is_one(opinion):
    expected = forecast(opinion, LADDER)
    assert sum(expected.probabilities.values()) == approx(1.0)
    assert 0.0 <= expected.reward <= 1.0
    assert expected.probabilities[expected.status] == max(expected.probabilities.values())


@given(opinions, st.permutations(range(8)))
def test_the_order_of_the_experts_does_not_matter(opinion, order):
    shuffled = forecast([opinion[place] for place in order], LADDER)
    assert shuffled.reward == approx(forecast(opinion, LADDER).reward)
    assert shuffled.probabilities == approx(forecast(opinion, LADDER).probabilities)


@given(opinions, st.integers(0, 6), shares, ladders)
def test_a_likelier_failure_never_raises_the_reward(opinion, place, share, ladder):
    before = opinion[place]
    worse = dataclasses.replace(before, fails=max(before.fails, share))
    changed = [*opinion[:place], worse, *opinion[place + 1 :]]
    assert forecast(changed, ladder).reward <= forecast(opinion, ladder).reward + 1e-12


def test_a_doubtful_submission_does_not_help_a_script_that_surely_crashes():
    crash = {"api": 0.999999, "data": 0.999999}
    assert forecast(verdicts(**crash, submission=0.9), LADDER).reward <= forecast(verdicts(**crash), LADDER).reward


@given(opinions, shares)
def test_a_better_position_never_lowers_the_reward(opinion, share):
    better = [*opinion[:7], dataclasses.replace(opinion[7], fails=max(opinion[7].fails, share))]
    assert forecast(better, LADDER).reward >= forecast(opinion, LADDER).reward - 1e-12


@given(opinions)
def test_when_experts_are_certain_the_reward_stands_on_the_ladder(opinion):
    certain = [*(dataclasses.replace(v, fails=float(v.fails > 0.5)) for v in opinion[:7]), opinion[7]]
    expected = forecast(certain, LADDER)
    assert expected.reward == approx(LADDER.reward(expected.status, expected.q))


def test_three_experts_may_abstain_and_are_left_out():
    assert MAX_ABSTENTIONS == 3
    silent = ("api", "compute", "submission")
    assert lost_because(verdicts(silent=silent)) == ""
    assert forecast(verdicts(silent=silent, data=0.2), LADDER).probabilities[Status.VALID] == approx(0.8)


def test_four_abstentions_or_no_opinion_on_quality_lose_the_script():
    for silent in (("api", "data", "compute", "submission"), (QUALITY,)):
        reason = lost_because(verdicts(silent=silent))
        assert all(name in reason for name in silent)
        assert worth_asking(verdicts(silent=silent), LADDER) == set()
        with pytest.raises(ValueError, match=silent[-1]):
            forecast(verdicts(silent=silent), LADDER)


def test_a_probability_outside_the_unit_interval_is_refused_by_name():
    for wrong in (1.5, -0.1, None, float("nan")):
        with pytest.raises(ValueError, match="`shapes`"):
            forecast(verdicts(shapes=wrong), LADDER)


def test_experts_that_expect_a_failure_are_asked_how_and_so_is_the_one_that_decides():
    assert worth_asking(verdicts(), LADDER) == set()
    assert worth_asking(verdicts(data=0.9, submission=0.6, api=0.4), LADDER) == {"data", "submission"}
    assert worth_asking(verdicts(data=0.3, api=0.4, shapes=0.3), LADDER) == {"api"}  # 0.29 likely to run


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=50, unique=True),
    shares,
    st.booleans(),
)
def test_the_score_shown_for_a_position_stands_at_that_position(entries, q, higher_is_better):
    board = [float(entry) for entry in entries]
    score = score_at(q, [board], higher_is_better=higher_is_better)
    position = leaderboard_position(score, [board], higher_is_better=higher_is_better)
    assert abs(position - max(q, 1 / len(board))) <= 0.5 / len(board) + 1e-9


def test_the_worst_score_is_shown_for_position_zero():
    assert score_at(0.0, [[1.0, 2.0], [3.0]], higher_is_better=True) == 1.0
    assert score_at(0.0, [[1.0, 2.0], [3.0]], higher_is_better=False) == 3.0
    assert score_at(1.0, [[1.0, 2.0], [3.0]], higher_is_better=False) == 1.0
