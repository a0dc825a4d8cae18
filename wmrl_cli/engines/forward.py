"""Padding, and reading prompts with a Hugging Face model. Letters: B rows, T tokens, V vocabulary.

Rows are padded on the left, and padding is masked, so a row's numbers do not depend on its neighbours beyond
rounding. That holds for linear attention too: a masked input adds nothing to the empty state before a prompt.
It would not hold for padding *after* a text that is continued (the state decays there), which is why states
are only ever continued or copied at the end of left-padded text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wmrl_cli.engines.base import Ids
from wmrl_cli.engines.cache import join, roomy_cache


class Forward:
    """`model` with padding token `pad`; at most `batch_tokens` tokens of prompts are read at once."""

    def __init__(self, model: Any, *, pad: int, batch_tokens: int) -> None:
        self.model, self.pad, self.batch_tokens = model, pad, batch_tokens
        self.config = model.config.get_text_config()

    @property
    def takes_any_mask(self) -> bool:
        """Whether attention is a masked sum in every layer, so that a mask alone says what a token sees."""
        kinds = set(getattr(self.config, "layer_types", None) or ["full_attention"])
        return kinds == {"full_attention"} and self.config._attn_implementation == "sdpa"

    def tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), device=self.model.device)

    def padded(self, sequences: Sequence[Ids], *, left: bool, length: int | None = None) -> tuple[Tensor, Tensor]:
        """Ids and mask (1 = a real token), both (B, T) on the model's device."""
        length = length or max(map(len, sequences))
        ids = np.full((len(sequences), length), self.pad)
        mask = np.zeros((len(sequences), length), dtype=np.int64)
        for row, sequence in enumerate(sequences):
            span = slice(length - len(sequence), length) if left else slice(0, len(sequence))
            ids[row, span], mask[row, span] = sequence, 1
        return self.tensor(ids), self.tensor(mask)

    def logits(self, ids: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        result: Tensor = self.model(input_ids=ids, attention_mask=mask, **options).logits
        return result

    def cache(self) -> Any:
        return roomy_cache(self.config)

    def prefill(self, prompts: Sequence[Ids]) -> tuple[Any, Tensor, Tensor]:
        """State after each prompt, the left-padded mask (B, T) and the next token's logits (B, V)."""
        length = max(map(len, prompts))
        rows = max(1, self.batch_tokens // length)
        parts = [
            self._prefill(*self.padded(prompts[start : start + rows], left=True, length=length))
            for start in range(0, len(prompts), rows)
        ]
        if len(parts) == 1:
            return parts[0]
        caches, masks, logits = zip(*parts, strict=True)
        return join(caches), torch.cat(masks), torch.cat(logits)

    def _prefill(self, ids: Tensor, mask: Tensor) -> tuple[Any, Tensor, Tensor]:
        cache = self.cache()
        logits = self.logits(
            ids, mask, position_ids=positions(mask), past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        return cache, mask, logits[:, -1]


def positions(mask: Tensor) -> Tensor:
    """Position of each token of left-padded rows, (B, T); 0 on padding."""
    return (mask.cumsum(-1) - 1).clamp(min=0)
