"""Sums over all ranks of a `torchrun` job; the identity in a single process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def total(values: Tensor) -> Tensor:
    """The element-wise sum of every rank's `values` (CPU, float64)."""
    if world() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather(value: Any) -> list[Any]:
    """Every rank's `value`, in rank order."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def count(number: int) -> int:
    """The sum of every rank's `number`."""
    return int(total(torch.tensor(float(number), dtype=torch.float64)).item())
