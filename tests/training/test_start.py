"""What a run opens: the frozen world model and the frozen reference are one copy wherever they are one model."""

from __future__ import annotations

import shutil

import pytest
import torch

from wmrl_cli.engines.models import EMBEDDED
from wmrl_cli.errors import ConfigError, StageError, UnavailableError
from wmrl_cli.learner import ranks
from wmrl_cli.training.session import resolve
from wmrl_cli.training.start import open_training


def opened(**flags):
    return open_training(resolve(None, {"model": "tiny", "device": "cpu", "sandbox.backend": "unsafe-fork", **flags}))


def test_the_world_model_is_the_reference_in_one_copy_and_the_live_policy_is_sampled():
    effects, learner = opened()
    assert effects.world_model.engine.model is learner.reference.model
    assert effects.engine.model is learner.model is learner.sampler
    assert effects.engine.digest == effects.world_model.weights_digest, "they start from the same weights"


def test_the_shared_copy_stays_frozen_while_the_policy_learns_and_a_change_is_found():
    effects, learner = opened()
    for weight in learner.model.parameters():
        weight.data.add_(1e-3)
    effects.world_model.check_frozen()
    next(learner.reference.model.parameters()).data.add_(1e-3)
    with pytest.raises(StageError, match="the world model's weights changed"):
        effects.world_model.check_frozen()


def test_another_copy_is_opened_where_the_reference_is_missing_or_is_not_the_world_model(tmp_path):
    effects, learner = opened(**{"learner.kl": 0.0})
    assert learner.reference is None and effects.world_model.engine.model is not learner.model
    other = shutil.copytree(EMBEDDED, tmp_path / "other")
    effects, learner = opened(world_model=str(other))
    assert effects.world_model.engine.model is not learner.reference.model
    effects, learner = opened(**{"learner.dtype": "bfloat16"})
    assert effects.world_model.engine.model is not learner.reference.model, "it judges in its own dtype"


def test_no_world_model_is_opened_where_every_group_is_executed():
    effects, _ = opened(anchor_frac=1.0)
    assert effects.world_model is None


@pytest.fixture
def second_of_two(monkeypatch):
    """The variables that torchrun sets for the second of two ranks."""
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))


def test_a_rank_takes_the_gpu_of_its_number(second_of_two, monkeypatch):
    taken = []
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    assert ranks.own_device("cuda") == ranks.own_device("cuda:1") == "cuda:1"
    assert taken == [1, 1]
    assert ranks.own_device("cpu") == "cpu"


def test_one_gpu_for_two_ranks_is_refused(second_of_two):
    with pytest.raises(ConfigError, match="`cuda:0` is one GPU, and this job has 2 ranks"):
        ranks.own_device("cuda:0")


def test_more_ranks_than_gpus_are_refused(second_of_two):
    if torch.cuda.device_count() > 1:
        pytest.skip("this machine has several GPUs")
    with pytest.raises(UnavailableError, match="2 ranks on this machine, and torch sees"):
        ranks.own_device("cuda")


def test_slots_that_do_not_fit_into_the_machine_with_all_its_ranks_are_refused(monkeypatch):
    variables = {"RANK": 0, "WORLD_SIZE": 10_000, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 10_000}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ConfigError, match="10000 scripts at once"):
        opened(device="cpu")


def test_both_scorers_show_the_score_or_neither_does():
    for shown in (True, False):
        effects, _ = opened(**{"sandbox.show_score": shown})
        assert effects.sandbox is not None and effects.world_model is not None
        assert effects.sandbox.show_score is effects.world_model.show_score is shown
