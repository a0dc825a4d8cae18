"""Tiny random models, and trajectories for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from wmrl_cli.learner.sequences import TrainSequence

VOCABULARY = 61
ARCHITECTURES = ("qwen3", "qwen3.5")


def tiny_model(architecture: str = "qwen3", seed: int = 0) -> Any:
    """A random causal language model of a few thousand weights, spread widely enough that its choices differ."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "initializer_range": 0.05,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
    }
    if architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=2, **common)).eval()
    linear = {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    kinds = ["linear_attention", "full_attention"]
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(num_hidden_layers=2, layer_types=kinds, **linear, **common)).eval()


def tiny_tokenizer() -> Any:
    """A word-level tokenizer over the tiny models' vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w1")


def tiny_folder(folder: Path, architecture: str = "qwen3", seed: int = 0) -> Path:
    """A Hugging Face folder of a tiny model with its tokenizer."""
    tiny_model(architecture, seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def trajectories(
    sizes: tuple[int, ...], seed: int = 0, weights: tuple[float, ...] | None = None
) -> list[TrainSequence]:
    """Groups of the given sizes: two or three turns of ragged lengths, observations between, random advantages."""
    random = np.random.default_rng(seed)
    found = []
    for group, size in enumerate(sizes):
        rewards = random.uniform(size=size)
        weight = 1.0 if weights is None else weights[group]
        for reward in rewards:
            turns = []
            for _ in range(random.integers(2, 4)):
                added, reply = (
                    random.integers(0, VOCABULARY, size=random.integers(2, high)).tolist() for high in (6, 12)
                )
                turns.append((added, reply, random.uniform(-6, -2, size=len(reply)).tolist()))
            found.append(
                TrainSequence.from_turns(
                    turns, advantage=weight * float(reward - rewards.mean()), group_size=size, group_id=f"g{group}"
                )
            )
    return found
