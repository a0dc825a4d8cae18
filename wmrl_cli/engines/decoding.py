"""Sampling the replies to one batch of prompts, token by token. Letters: B rows, T tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wmrl_cli.engines.base import Completion, Ids, Sampling
from wmrl_cli.engines.forward import Forward
from wmrl_cli.engines.sampling import sample_tokens, uniforms

if TYPE_CHECKING:
    from wmrl_cli.engines.grammar import Matchers


class Decoding:
    """Replies to `prompts`: equal prompts are read once, and rows that have ended leave the batch.

    `room` is how many tokens each reply may have, `ends` the tokens that end one. With `matchers`, tokens that
    a row's document does not allow next are not drawn.
    """

    def __init__(
        self,
        forward: Forward,
        prompts: Sequence[Ids],
        seeds: Sequence[int],
        sampling: Sampling,
        *,
        room: Sequence[int],
        ends: frozenset[int],
        matchers: Matchers | None,
    ) -> None:
        self.forward, self.prompts, self.sampling = forward, prompts, sampling
        self.room, self.ends, self.matchers = room, ends, matchers
        self.uniform_BT = forward.tensor(np.stack([uniforms(seed, max(room)) for seed in seeds]))
        self.ids: list[list[int]] = [[] for _ in prompts]
        self.logprobs: list[list[float]] = [[] for _ in prompts]

    def run(self) -> list[Completion]:
        cache, mask, logits = self._read_prompts()
        rows = list(range(len(self.prompts)))  # rows[i] = which prompt the i-th row of the tensors answers
        position = mask.sum(-1, keepdim=True)
        for step in range(max(self.room)):
            tokens = self._draw(logits, rows, step)
            alive = [i for i, row in enumerate(rows) if not self._ended(row)]
            if not alive:
                break
            if len(alive) <= 0.9 * len(rows) or (len(rows) <= 8 and len(alive) < len(rows)):
                keep = torch.tensor(alive, device=mask.device)
                cache.reorder_cache(keep)
                rows, tokens, mask, position = [rows[i] for i in alive], tokens[keep], mask[keep], position[keep]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], -1)
            options = {"position_ids": position, "past_key_values": cache, "use_cache": True}
            logits = self.forward.logits(tokens[:, None], mask, **options)[:, -1]
            position = position + 1
        return [
            Completion(
                ids=tuple(ids), logprobs=tuple(values), finish_reason="stop" if ids[-1] in self.ends else "length"
            )
            for ids, values in zip(self.ids, self.logprobs, strict=True)
        ]

    def _read_prompts(self) -> tuple[Any, Tensor, Tensor]:
        """State, mask and next logits of each row; the members of a group share one prompt, which is read once."""
        places: dict[tuple[int, ...], int] = {}
        index = [places.setdefault(tuple(prompt), len(places)) for prompt in self.prompts]
        cache, mask, logits = self.forward.prefill(list(places))
        if len(places) == len(index):
            return cache, mask, logits
        order = torch.tensor(index, device=mask.device)
        cache.reorder_cache(order)
        return cache, mask[order], logits[order]

    def _draw(self, logits: Tensor, rows: list[int], step: int) -> Tensor:
        """The next token of each row; rows that have ended get one too, and nobody looks at it."""
        logits = logits.float()
        allowed = logits if self.matchers is None else self.matchers.constrain(logits, rows)
        uniform_B = self.uniform_BT[rows, step]
        tokens = sample_tokens(allowed, uniform_B, temperature=self.sampling.temperature, top_p=self.sampling.top_p)
        logp = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        for row, token, value in zip(rows, tokens.tolist(), logp.tolist(), strict=True):
            if not self._ended(row):
                self.ids[row].append(token)
                self.logprobs[row].append(value)
                if self.matchers is not None:
                    self.matchers.accept(row, token)
        return tokens

    def _ended(self, row: int) -> bool:
        ids = self.ids[row]
        return bool(ids) and (len(ids) >= self.room[row] or ids[-1] in self.ends)
