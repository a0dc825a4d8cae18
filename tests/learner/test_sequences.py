"""Trajectories as token sequences, the counts that follow from lost ones, and the settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from wmrl_cli.config import build_config
from wmrl_cli.errors import ConfigError
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.sequences import TrainSequence, recount

PLAIN = {"ids": [1, 2], "policy_mask": [False, True], "sampler_logprobs": [0.0, -1.0]}


def sequence(group_id: str, size: int) -> TrainSequence:
    return TrainSequence(**PLAIN, advantage=0.5, group_size=size, group_id=group_id)


def test_turns_become_one_sequence_in_which_only_replies_are_the_policys():
    turns = [([5, 6], [7, 8], [-0.1, -0.2]), ([9], [3], [-0.3])]
    found = TrainSequence.from_turns(turns, advantage=1.0, group_size=2, group_id="g", truncated=True)
    assert found.ids == [5, 6, 7, 8, 9, 3]
    assert found.policy_mask == [False, False, True, True, False, True]
    assert found.sampler_logprobs == [0.0, 0.0, -0.1, -0.2, 0.0, -0.3]
    assert found.truncated


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": [1, 2, 3]}, "equally long"),
        ({"policy_mask": [True, True]}, "must start with a token that the policy read"),
        ({"ids": [1], "policy_mask": [False], "sampler_logprobs": [0.0]}, "must start with"),
        ({"group_size": 1}, "at least two trajectories"),
    ],
)
def test_impossible_sequences_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(sequence("g", 2), **change)


def test_a_reply_needs_a_log_probability_for_each_token():
    with pytest.raises(ValueError, match="2 tokens has 1 log-prob"):
        TrainSequence.from_turns([([1], [2, 3], [-0.1])], advantage=1.0, group_size=2, group_id="g")


def test_lost_trajectories_shrink_their_group_and_a_group_of_one_leaves():
    batch = [sequence("a", 4)] * 3 + [sequence("b", 2)] * 2 + [sequence("c", 3)] * 3
    usable = [True, False, True, False, True, True, True, True]
    unusable = Counter({("a", 4): 2, ("b", 2): 1})  # one more of group a was lost on another rank
    left = recount(batch, usable, unusable, groups=3)
    assert left.kept == (0, 2, 5, 6, 7)
    assert left.sizes == (2, 2, 3, 3, 3)
    assert left.groups == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"clip": 1.5},
        {"kl": -0.1},
        {"betas": (0.9, 1.0)},
        {"constant_length": 0},
        {"dtype": "float16"},
        {"micro_tokens": 0},
        {"learning_rate": float("nan")},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build_config(LearnerConfig, wrong)


def test_the_defaults_are_the_papers():
    settings = LearnerConfig()
    assert (settings.learning_rate, settings.kl, settings.entropy, settings.warmup_steps) == (1e-6, 0.04, 0.002, 0)
    assert settings.learning_rate_at(0) == settings.learning_rate_at(10_000) == 1e-6
