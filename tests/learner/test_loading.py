"""Opening models: the text part of a vision-language repository, and a sentence where something is missing."""

from __future__ import annotations

import json

import pytest
import torch

from wmrl_cli.errors import UnavailableError
from wmrl_cli.learner import loading
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner

from .cases import VOCABULARY, tiny_folder, tiny_model, tiny_tokenizer, trajectories

CPU = torch.device("cpu")


def test_the_text_part_of_a_vision_language_repository_is_trained(tmp_path):
    """Published Qwen3.5 repositories hold `Qwen3_5ForConditionalGeneration`; the agent needs its language model."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = tiny_model("qwen3.5").config.to_dict()
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    whole = Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    )
    whole.save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    assert "vision_config" in json.loads((tmp_path / "model" / "config.json").read_text())
    learner = Learner.build(tmp_path / "model", LearnerConfig(), device="cpu")
    assert type(learner.model).__name__ == "Qwen3_5ForCausalLM"
    found = learner.model.base_model.layers[0].mlp.up_proj.weight
    assert torch.equal(found, whole.model.language_model.layers[0].mlp.up_proj.weight)
    assert learner.step(trajectories((3,)), groups=1).kl < 1e-6
    learner.export(tmp_path / "policy")
    again = Learner.build(tmp_path / "policy", LearnerConfig(), device="cpu")
    assert torch.equal(
        again.model.base_model.layers[0].mlp.up_proj.weight, learner.model.base_model.layers[0].mlp.up_proj.weight
    )


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    with pytest.raises(UnavailableError, match="has no tokenizer") as raised:
        Learner.build(tmp_path / "model", device="cpu")
    assert "\n" not in raised.value.message


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UnavailableError, match="no model that can be read") as raised:
        Learner.build(tmp_path, device="cpu")
    assert "config.json" in str(raised.value.hint)


def test_a_folder_without_weights_is_refused(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnavailableError, match="no model that can be read"):
        Learner.build(folder, device="cpu")


def test_a_hub_that_cannot_be_reached_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnavailableError, match="`nobody/no-such-model` is no model that can be read") as raised:
        Learner.build("nobody/no-such-model", device="cpu")
    assert "hub" in str(raised.value.hint)


def test_a_missing_gpu_is_said_before_anything_is_read():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UnavailableError, match="torch sees no GPU"):
        Learner.build("nobody/no-such-model", device="cuda")


def test_a_model_that_memory_cannot_hold_is_refused_before_it_is_read(tmp_path):
    from transformers import AutoConfig

    tiny_folder(tmp_path / "model")
    settings = AutoConfig.from_pretrained(tmp_path / "model")
    held = loading.HeldBytes.of(4, ranks=1, reference=True, whole_reference=False)
    loading.check_memory(tmp_path, settings, CPU, held)
    settings.hidden_size, settings.intermediate_size = 1_048_576, 4_194_304
    with pytest.raises(UnavailableError, match=r"needs \d+ GB of memory, and `cpu` has \d+ GB free"):
        loading.check_memory("huge", settings, CPU, held)


def test_what_is_spread_is_divided_by_the_ranks_and_what_each_of_them_copies_is_not():
    held = loading.HeldBytes.of
    assert held(2, ranks=1, reference=False, whole_reference=False).total == 16
    assert held(2, ranks=1, reference=True, whole_reference=False).total == 18
    assert held(2, ranks=1, reference=True, whole_reference=True).total == 18
    assert held(2, ranks=8, reference=False, whole_reference=False).total == 16 / 8 + 2  # a sampler
    assert held(2, ranks=8, reference=True, whole_reference=False).total == (16 + 2) / 8 + 2
    assert held(2, ranks=8, reference=True, whole_reference=True).total == 16 / 8 + 2 + 2


def test_a_head_that_does_more_than_multiply_is_refused(tmp_path):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    settings = Gemma2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        final_logit_softcapping=0.5,
        initializer_range=0.5,
    )
    with pytest.raises(UnavailableError, match="changes its logits after the output layer"):
        loading.check_head(Gemma2ForCausalLM(settings).eval())
    loading.check_head(tiny_model())
