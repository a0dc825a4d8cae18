"""Micro-batches: which sequences go through the model together, and their padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wmrl_cli.learner.sequences import TrainSequence


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """Sequences padded on the right; shape (B, T) each."""

    ids_BT: Tensor
    attention_BT: Tensor  # 1 on real tokens, observations included
    chosen_BT: Tensor  # True where the policy chose the token


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """A sequence whose tokens were scored without gradient. Tensors over its P chosen tokens, on the CPU, nats."""

    sequence: TrainSequence
    old_P: Tensor
    reference_P: Tensor | None

    @property
    def sampler_P(self) -> Tensor:
        chosen = torch.tensor(self.sequence.policy_mask, dtype=torch.bool)
        return torch.tensor(self.sequence.sampler_logprobs, dtype=torch.float32)[chosen]

    def finite(self) -> bool:
        """False where the advantage or a log-probability is NaN or infinite."""
        numbers = [self.sampler_P, self.old_P, torch.tensor([self.sequence.advantage])]
        numbers += [] if self.reference_P is None else [self.reference_P]
        return all(bool(part.isfinite().all()) for part in numbers)


def split(lengths: Sequence[int], micro_tokens: int) -> list[list[int]]:
    """Positions in micro-batches of at most `micro_tokens` padded tokens; a longer sequence stands alone.

    Longest first, so that neighbours need little padding and the first pass shows whether memory suffices.
    """
    parts: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if parts and (len(parts[-1]) + 1) * lengths[parts[-1][0]] <= micro_tokens:
            parts[-1].append(position)
        else:
            parts.append([position])
    return parts


def pad(sequences: Sequence[TrainSequence], device: torch.device) -> Tokens:
    """The sequences as one right-padded batch on `device`."""
    shape = len(sequences), max(len(sequence.ids) for sequence in sequences)
    ids, attention, chosen = (
        torch.zeros(shape, dtype=torch.long),
        torch.zeros(shape, dtype=torch.long),
        torch.zeros(shape, dtype=torch.bool),
    )
    for row, sequence in enumerate(sequences):
        length = len(sequence.ids)
        ids[row, :length] = torch.tensor(sequence.ids)
        attention[row, :length] = 1
        chosen[row, :length] = torch.tensor(sequence.policy_mask, dtype=torch.bool)
    return Tokens(ids_BT=ids.to(device), attention_BT=attention.to(device), chosen_BT=chosen.to(device))


def spread(values_P: Sequence[Tensor], chosen_BT: Tensor) -> Tensor:
    """Values of each row's chosen tokens back on the (B, T) grid, 0 elsewhere."""
    grid = torch.zeros(chosen_BT.shape, dtype=torch.float32, device=chosen_BT.device)
    return grid.masked_scatter(chosen_BT, torch.cat(list(values_P)).to(chosen_BT.device))
