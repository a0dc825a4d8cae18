"""Whole steps on tiny models: what moves, what is refused, and what a resumed run gives."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, replace

import pytest
import torch

from wmrl_cli.errors import StageError
from wmrl_cli.learner.checkpoint import whole_folder
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner
from wmrl_cli.learner.sequences import TrainSequence

from .cases import ARCHITECTURES, tiny_folder, tiny_model, tiny_tokenizer, trajectories

CONFIG = LearnerConfig(learning_rate=1e-3, micro_tokens=90, head_tokens=13)


def new_learner(config: LearnerConfig = CONFIG, architecture: str = "qwen3") -> Learner:
    model = tiny_model(architecture)
    return Learner(model, copy.deepcopy(model) if config.kl else None, tiny_tokenizer(), config)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.model.named_parameters()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def numbers(stats) -> dict[str, float]:
    return {name: value for name, value in asdict(stats).items() if name != "seconds"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_four_steps_equal_two_and_a_resume_and_two(architecture, tmp_path):
    source = tiny_folder(tmp_path / "model", architecture)
    config = replace(CONFIG, warmup_steps=3, weight_decay=0.01)
    batches = [trajectories((3, 3), seed=seed) for seed in range(4)]
    straight = Learner.build(source, config, device="cpu")
    expected = [numbers(straight.step(batch, groups=2)) for batch in batches]
    first = Learner.build(source, config, device="cpu")
    found = [numbers(first.step(batch, groups=2)) for batch in batches[:2]]
    first.save(tmp_path / "checkpoint")
    noise = torch.rand(3)
    second = Learner.build(source, config, device="cpu")
    torch.manual_seed(99)
    second.load(tmp_path / "checkpoint")
    assert torch.equal(torch.rand(3), noise)
    found += [numbers(second.step(batch, groups=2)) for batch in batches[2:]]
    assert found == expected
    assert same(weights(second), weights(straight))


def test_saving_before_the_first_step_changes_nothing(tmp_path):
    saved, plain = new_learner(), new_learner()
    saved.save(tmp_path / "checkpoint")
    for seed in range(2):
        saved.step(trajectories((3,), seed=seed), groups=1)
        plain.step(trajectories((3,), seed=seed), groups=1)
    assert same(weights(saved), weights(plain))


def test_a_step_makes_good_replies_more_likely_and_bad_ones_less():
    learner = new_learner(replace(CONFIG, learning_rate=3e-3, kl=0.0))
    batch = trajectories((4, 4))
    before = [entry.old_P.mean() for entry in learner._score(batch)]
    for _ in range(5):
        assert learner.step(batch, groups=2).updated
    after = [entry.old_P.mean() for entry in learner._score(batch)]
    gains = [float(b - a) for a, b in zip(before, after, strict=True)]
    good = [gain for gain, sequence in zip(gains, batch, strict=True) if sequence.advantage > 0.1]
    bad = [gain for gain, sequence in zip(gains, batch, strict=True) if sequence.advantage < -0.1]
    assert min(good) > max(bad)


def test_the_first_step_is_on_the_reference_and_the_ratio_is_one():
    stats = new_learner().step(trajectories((3, 3)), groups=2)
    assert abs(stats.kl) < 1e-6
    assert stats.clip_share == 0
    assert stats.step == 1
    assert stats.entropy == pytest.approx(math.log(61), rel=0.1)


def test_another_reference_is_refused_before_the_first_step():
    model = tiny_model()
    learner = Learner(model, tiny_model(seed=1), tiny_tokenizer(), CONFIG)
    before = weights(learner)
    with pytest.raises(StageError, match="differs from its reference"):
        learner.step(trajectories((3,)), groups=1)
    assert same(weights(learner), before)


def test_bfloat16_computation_passes_the_check_at_the_start_and_stays_close():
    exact = new_learner().step(trajectories((3, 3)), groups=2)
    learner = new_learner(replace(CONFIG, dtype="bfloat16"))
    rounded = learner.step(trajectories((3, 3)), groups=2)
    assert all(parameter.dtype is torch.float32 for parameter in learner.model.parameters())
    assert rounded.loss != exact.loss
    assert rounded.policy_loss == pytest.approx(exact.policy_loss, abs=0.01)
    assert rounded.grad_norm == pytest.approx(exact.grad_norm, rel=0.05)


def test_the_learning_rate_rises_and_then_stays():
    config = replace(CONFIG, warmup_steps=4)
    assert [config.learning_rate_at(step) for step in range(6)] == pytest.approx(
        [0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3]
    )
    assert replace(CONFIG, warmup_steps=0).learning_rate_at(0) == 1e-3
    learner = new_learner(config)
    rates = [learner.step(trajectories((3,), seed=seed), groups=1).learning_rate for seed in range(3)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3])


def test_gradient_clipping_comes_last_and_the_norm_before_it_is_reported():
    """Scaling a gradient changes AdamW's first step by nothing, its second moment by a square."""
    tight, wide = new_learner(replace(CONFIG, grad_clip=1e-3)), new_learner(replace(CONFIG, grad_clip=1e3))
    first, second = (learner.step(trajectories((3,)), groups=1) for learner in (tight, wide))
    assert first.grad_norm == second.grad_norm > 1e-3
    norms = [
        sum(float(state["exp_avg"].square().sum()) for state in learner.optimizer.state.values()) ** 0.5
        for learner in (tight, wide)
    ]
    assert norms[0] == pytest.approx(0.1 * 1e-3, rel=1e-3)
    assert norms[1] == pytest.approx(0.1 * first.grad_norm, rel=1e-3)


def test_truncated_trajectories_leave_the_loss_and_keep_their_place_in_it():
    batch = trajectories((3, 3))
    batch[0] = replace(batch[0], truncated=True)
    masked = new_learner(replace(CONFIG, mask_truncated=True, kl=0.0, entropy=0.0))
    silenced = new_learner(replace(CONFIG, kl=0.0, entropy=0.0))
    first = masked.step(batch, groups=2)
    second = silenced.step([replace(batch[0], advantage=0.0), *batch[1:]], groups=2)
    assert (first.truncated, first.sequences) == (1, 6)
    assert first.tokens == second.tokens - sum(batch[0].policy_mask)
    assert first.policy_loss == pytest.approx(second.policy_loss, rel=1e-6)
    assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-5)


@pytest.mark.parametrize("batch", [[], [replace(s, truncated=True) for s in trajectories((3,))]])
def test_a_batch_masked_whole_gives_loss_zero_and_finite_metrics(batch: list[TrainSequence]):
    learner = new_learner(replace(CONFIG, mask_truncated=True, weight_decay=0.1))
    learner.step(trajectories((3,), seed=1), groups=1)
    before = weights(learner)
    stats = learner.step(batch, groups=1)
    assert not stats.updated
    assert stats.loss == 0
    assert all(math.isfinite(value) for value in numbers(stats).values())
    assert same(weights(learner), before)


def test_every_trajectory_unusable_is_counted_and_moves_nothing():
    learner = new_learner()
    before = weights(learner)
    stats = learner.step([replace(s, advantage=math.nan) for s in trajectories((3, 2))], groups=2)
    assert (stats.dropped, stats.sequences, stats.groups, stats.updated) == (5, 0, 0, False)
    assert all(math.isfinite(value) for value in numbers(stats).values())
    assert same(weights(learner), before)


def test_a_gradient_that_is_not_finite_stops_the_run():
    learner = new_learner()
    learner.step(trajectories((3,)), groups=1)
    before = weights(learner)
    batch = learner.prepare(trajectories((3,)), groups=1)
    with torch.no_grad():
        learner.model.get_output_embeddings().weight[0, 0] = math.inf
    learner.backward(batch)
    with pytest.raises(StageError, match="step 2 is not finite"):
        learner._update(1e-3)
    learner.model.get_output_embeddings().weight.data[0, 0] = before["model.embed_tokens.weight"][0, 0]
    assert same(weights(learner), before)


def test_more_updates_on_one_batch_meet_the_clip():
    once = new_learner(replace(CONFIG, learning_rate=0.03)).step(trajectories((3, 3)), groups=2)
    often = new_learner(replace(CONFIG, learning_rate=0.03, updates=3)).step(trajectories((3, 3)), groups=2)
    assert once.clip_share == 0
    assert 0 < often.clip_share < 1


def test_layers_that_forget_their_activations_give_the_same_step():
    plain, frugal = new_learner(), new_learner(replace(CONFIG, checkpoint_layers=True))
    calls = []
    layer = frugal.model.base_model.layers[0]
    layer.mlp.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    first, second = (learner.step(trajectories((3, 3)), groups=2) for learner in (plain, frugal))
    assert first.loss == pytest.approx(second.loss, rel=1e-6)
    assert first.grad_norm == pytest.approx(second.grad_norm, rel=1e-6)
    micro_batches = len(frugal.prepare(trajectories((3, 3)), groups=2).micro)
    assert calls.count(True) == 2 * micro_batches  # forward, and again in the backward pass
    assert not any(module.training for module in frugal.model.modules())


def test_sampler_statistics_say_how_far_the_engine_was():
    batch = trajectories((3,))
    learner = new_learner(replace(CONFIG, kl=0.0))
    shift = 0.25
    shifted = []
    for sequence, scored in zip(batch, learner._score(batch), strict=True):
        logprobs = iter((scored.old_P - shift).tolist())
        shifted.append(
            replace(sequence, sampler_logprobs=[next(logprobs) if chosen else 0.0 for chosen in sequence.policy_mask])
        )
    stats = learner.step(shifted, groups=1)
    assert stats.sampler_difference == pytest.approx(shift, abs=1e-5)
    assert stats.sampler_difference_max == pytest.approx(shift, abs=1e-5)
    assert stats.effective_sample_size == pytest.approx(1.0, abs=1e-5)


def test_an_export_is_a_folder_that_transformers_opens(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    learner = Learner.build(tiny_folder(tmp_path / "model"), CONFIG, device="cpu")
    learner.step(trajectories((3,)), groups=1)
    learner.export(tmp_path / "out" / "policy")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "policy")
    assert same(dict(model.named_parameters()), weights(learner))
    assert AutoTokenizer.from_pretrained(tmp_path / "out" / "policy").encode("w3 w5") == [3, 5]
    again = Learner.build(tmp_path / "out" / "policy", CONFIG, device="cpu")
    assert again.step(trajectories((3,)), groups=1).kl < 1e-6


def test_a_bfloat16_source_is_exported_as_bfloat16_and_trained_in_float32(tmp_path):
    from safetensors.torch import load_file

    tiny_model().to(torch.bfloat16).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    learner = Learner.build(tmp_path / "model", CONFIG, device="cpu")
    assert {parameter.dtype for parameter in learner.model.parameters()} == {torch.float32}
    learner.step(trajectories((3,)), groups=1)
    learner.export(tmp_path / "policy")
    stored = load_file(tmp_path / "policy" / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.bfloat16}
    assert "lm_head.weight" not in stored  # tied to the embedding, and stored once
    assert learner.model.config.dtype is not torch.bfloat16


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    target = tmp_path / "deep" / "folder"
    with whole_folder(target) as scratch:
        (scratch / "file").write_text("first")
    with pytest.raises(RuntimeError), whole_folder(target) as scratch:
        (scratch / "file").write_text("half")
        raise RuntimeError
    assert (target / "file").read_text() == "first"
    with whole_folder(target) as scratch:
        (scratch / "other").write_text("second")
    assert [path.name for path in target.iterdir()] == ["other"]
    assert [path.name for path in target.parent.iterdir()] == ["folder"]


@pytest.mark.parametrize("content", [None, "rubbish", "another model"])
def test_a_folder_that_is_no_checkpoint_is_refused_in_a_sentence(content, tmp_path):
    if content == "rubbish":
        (tmp_path / "checkpoint").mkdir()
        (tmp_path / "checkpoint" / ".metadata").write_bytes(b"rubbish")
    if content == "another model":
        new_learner(architecture="qwen3.5").save(tmp_path / "checkpoint")
    with pytest.raises(StageError, match="holds no checkpoint of this model"):
        new_learner().load(tmp_path / "checkpoint")
