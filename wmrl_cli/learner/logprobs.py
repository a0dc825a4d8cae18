"""Log-probabilities and entropies of chosen tokens, without ever holding the logits of a whole sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TokenScorer(nn.Module):
    """A causal language model that answers with log-probabilities and entropies instead of logits.

    The vocabulary of Qwen3.5 has 248,320 entries: the logits of one trajectory of 19,500 tokens would take
    19 GB. They are made for `head_tokens` positions at a time, and again in the backward pass; and only at
    positions whose token the policy chose, so that no other token can enter the loss.
    """

    def __init__(self, model: Any, head_tokens: int) -> None:
        super().__init__()
        self.model = model
        self.head_tokens = head_tokens

    def forward(
        self, ids_BT: Tensor, attention_BT: Tensor, chosen_BT: Tensor, *, with_entropy: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy over the full vocabulary, in nats, float32, shape (B, T).

        Parameters
        ----------
        ids_BT : token ids, padded on the right with anything.
        attention_BT : 1 on every real token, observations included; 0 on padding.
        chosen_BT : True on tokens to score; never at position 0. Elsewhere both results are 0.
        with_entropy : False leaves the entropies 0, and saves their time.
        """
        hidden = self.model.base_model(input_ids=ids_BT, attention_mask=attention_BT, use_cache=False).last_hidden_state
        before = hidden[:, :-1][chosen_BT[:, 1:]]  # the state that predicts a token stands one position before it
        targets = ids_BT[:, 1:][chosen_BT[:, 1:]]
        head = self.model.get_output_embeddings()
        parts = [
            checkpoint(_score, head, *chunk, with_entropy, use_reentrant=False, preserve_rng_state=False)
            for chunk in zip(torch.split(before, self.head_tokens), torch.split(targets, self.head_tokens), strict=True)
        ]
        empty = torch.zeros(ids_BT.shape, dtype=torch.float32, device=ids_BT.device)
        logp, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        return empty.masked_scatter(chosen_BT, logp), empty.masked_scatter(chosen_BT, entropy)


def _score(head: nn.Module, hidden: Tensor, targets: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    total = logits.logsumexp(dim=-1)
    logp = logits.gather(-1, targets[:, None]).squeeze(-1) - total
    return logp, total - (logits.softmax(dim=-1) * logits).sum(dim=-1) if with_entropy else torch.zeros_like(total)
