"""Sampling such that a row's tokens depend on its own logits and seed alone. Letters: B rows, V vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wmrl_cli.engines.base import Floats


def uniforms(seed: int, count: int) -> Floats:
    """`count` numbers in [0, 1) that belong to one row: its t-th token is drawn with the t-th of them."""
    return np.random.default_rng(seed).random(count)


def sample_tokens(logits_BV: Tensor, uniform_B: Tensor, *, temperature: float, top_p: float) -> Tensor:
    """Token ids of shape (B,), by inverse distribution function in the order of the vocabulary.

    `temperature` 0 takes the most likely token. `top_p` keeps the fewest tokens that hold that much
    probability, never none. A token of probability 0 (logit -inf) is never drawn.
    """
    if temperature == 0:
        return logits_BV.argmax(-1)
    probability_BV = (logits_BV / temperature).softmax(-1)
    if top_p < 1:
        probability_BV = _nucleus(probability_BV, top_p)
    cumulated_BV = probability_BV.double().cumsum(-1)  # double: 248k terms
    total_B1 = cumulated_BV[:, -1:]
    target_B1 = torch.minimum(uniform_B[:, None] * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(cumulated_BV, target_B1, right=True)[:, 0]


def _nucleus(probability_BV: Tensor, top_p: float) -> Tensor:
    sorted_BV, order_BV = probability_BV.sort(stable=True, dim=-1, descending=True)
    before_BV = sorted_BV.cumsum(-1) - sorted_BV
    dropped_BV = torch.zeros_like(probability_BV, dtype=torch.bool).scatter(-1, order_BV, before_BV >= top_p)
    return probability_BV.masked_fill(dropped_BV, 0.0)
