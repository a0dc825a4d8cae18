"""What only the engine in this process promises."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engines.models import build_qwen3, build_qwen35, build_tokenizer
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.models import open_engine
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.errors import ConfigError

torch.set_num_threads(1)
TOKENIZER = build_tokenizer()
BUILDERS = [build_qwen3, build_qwen35]
SUFFIXES = [[7, 8, 9, k] for k in range(20, 28)]
CHOICES = [[[100], [101], [102, 103]]] * 8


@pytest.mark.parametrize("build", BUILDERS)
def test_sharing_a_prefix_changes_no_answer(build):
    model = build(TOKENIZER)
    prefixes = [list(range(10, 10 + length)) for length in (3, 90, 41, 41)]
    shares = ["fork", "tree"] if build is build_qwen3 else ["fork"]
    plain = TransformersEngine(model, TOKENIZER, share="none").choose(prefixes, SUFFIXES, CHOICES)
    for share in shares:
        shared = TransformersEngine(model, TOKENIZER, share=share).choose(prefixes, SUFFIXES, CHOICES)
        np.testing.assert_allclose(np.array(shared), np.array(plain), atol=1e-4)


def test_linear_attention_is_never_given_a_tree_mask():
    assert TransformersEngine(build_qwen3(TOKENIZER), TOKENIZER).share == "tree"
    assert TransformersEngine(build_qwen35(TOKENIZER), TOKENIZER).share == "fork"


@pytest.mark.parametrize("build", BUILDERS)
def test_the_size_of_a_batch_changes_no_result(build):
    model = build(TOKENIZER)
    prompts = [list(range(10, 10 + length)) for length in (5, 30, 12, 30, 7, 19)]
    small, other, large = (
        TransformersEngine(model, TOKENIZER, batch_rows=rows, batch_tokens=tokens)
        for rows, tokens in ((1, 40), (64, 70), (64, 65536))  # rows apart; prompts read two by two; all at once
    )
    sampling = Sampling(max_new_tokens=12)
    first, second, third = (engine.generate(prompts, sampling, seeds=range(6)) for engine in (small, other, large))
    assert [reply.ids for reply in first] == [reply.ids for reply in second] == [reply.ids for reply in third]
    np.testing.assert_allclose(
        np.array(small.choose(prompts, SUFFIXES, CHOICES)),
        np.array(large.choose(prompts, SUFFIXES, CHOICES)),
        atol=1e-4,
    )


@pytest.mark.parametrize("build", BUILDERS)
def test_rows_that_end_early_do_not_disturb_the_rest(build):
    model = build(TOKENIZER)
    model.generation_config.eos_token_id = list(range(0, len(TOKENIZER), 15))  # so that rows end all the time
    engine = TransformersEngine(model, TOKENIZER)
    prompts = [[10 + k] for k in range(20)]
    replies = engine.generate(prompts, Sampling(max_new_tokens=40), seeds=range(20))
    assert len({len(reply.ids) for reply in replies}) > 3
    for prompt, reply in zip(prompts, replies, strict=True):
        with torch.no_grad():
            logp = model(input_ids=torch.tensor([[*prompt, *reply.ids]])).logits[0].log_softmax(-1)
        expected = logp[len(prompt) - 1 : -1].gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
        np.testing.assert_allclose(reply.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("build", BUILDERS)
def test_bfloat16_runs_and_is_near_its_own_plain_forward(build):
    model = build(TOKENIZER, dtype=torch.bfloat16)
    engine = TransformersEngine(model, TOKENIZER)
    reply = engine.generate([[10, 11, 12]], Sampling(max_new_tokens=8), seeds=[1])[0]
    with torch.no_grad():
        logp = model(input_ids=torch.tensor([[10, 11, 12, *reply.ids]])).logits[0].float().log_softmax(-1)
    expected = logp[2:-1].gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
    np.testing.assert_allclose(reply.logprobs, expected, atol=0.2)
    assert np.isfinite(engine.choose([[10, 11]], SUFFIXES, CHOICES)).all()


@pytest.mark.parametrize("build", BUILDERS)
def test_float32_weights_can_be_computed_with_in_bfloat16(build):
    model = build(TOKENIZER)
    exact, rounded = TransformersEngine(model, TOKENIZER), TransformersEngine(model, TOKENIZER, compute=torch.bfloat16)
    sampling = Sampling(max_new_tokens=1)
    prompts = [[10 + k, 30] for k in range(8)]
    pairs = list(zip(*(e.generate(prompts, sampling, seeds=range(8)) for e in (exact, rounded)), strict=True))
    same = [(a.logprobs[0], b.logprobs[0]) for a, b in pairs if a.ids == b.ids]
    assert len(same) >= 6
    differences = [abs(a - b) for a, b in same]
    assert 1e-6 < max(differences) < 0.2
    assert np.isfinite(rounded.choose(prompts, SUFFIXES, CHOICES)).all()
    assert model.dtype is torch.float32


def test_a_learner_finds_its_mode_again_and_its_steps_are_seen():
    model = build_qwen3(TOKENIZER).train()
    engine = TransformersEngine(model, TOKENIZER)
    before = engine.digest
    reply = engine.generate([[10]], Sampling(max_new_tokens=4), seeds=[1])[0]
    assert model.training and engine.digest == before
    with torch.no_grad():
        model.lm_head.weight[3, 3] += 1e-3
    assert engine.digest != before
    assert engine.generate([[10]], Sampling(max_new_tokens=4), seeds=[1])[0].logprobs != reply.logprobs


def test_swapped_rows_of_a_weight_change_the_digest():
    model = build_qwen3(TOKENIZER)
    engine = TransformersEngine(model, TOKENIZER)
    before = engine.digest
    with torch.no_grad():
        model.lm_head.weight[[3, 4]] = model.lm_head.weight[[4, 3]]
    assert engine.digest != before


def save(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("build", BUILDERS)
def test_loaded_weights_answer_as_where_they_came_from(build, tmp_path: Path):
    other = build(TOKENIZER, seed=1)
    engine = TransformersEngine(build(TOKENIZER, seed=0), TOKENIZER)
    before = engine.digest
    engine.load_weights(save(other, tmp_path))
    assert engine.digest == TransformersEngine(other, TOKENIZER).digest != before
    opened = open_engine(str(tmp_path), device="cpu")
    assert opened.digest == engine.digest
    sampling = Sampling(max_new_tokens=6)
    replies = [some.generate([[10]], sampling, seeds=[1])[0] for some in (engine, opened)]
    assert replies[0] == replies[1]


def test_weights_of_another_shape_are_refused_and_nothing_changes(tmp_path: Path):
    engine = TransformersEngine(build_qwen3(TOKENIZER), TOKENIZER)
    before = engine.digest
    with pytest.raises(ConfigError, match="another model"):
        engine.load_weights(save(build_qwen3(TOKENIZER, size=32), tmp_path / "small"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        engine.load_weights(tmp_path)
    assert engine.digest == before


def test_a_missing_seed_is_a_programming_error():
    engine = TransformersEngine(build_qwen3(TOKENIZER), TOKENIZER)
    with pytest.raises(ValueError, match="2 prompts and 1 seeds"):
        engine.generate([[1], [2]], Sampling(max_new_tokens=2), seeds=[1])
