"""The ranks of a `torchrun` job: sums over all of them, and weights spread over them. A single process needs none."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def join() -> None:
    """Join the job that `torchrun` started this process for; nothing without one."""
    if "RANK" not in os.environ or dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()  # gloo for tensors on the CPU, nccl for those on a GPU


def world() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    """True on the rank that writes what is written once."""
    return world() == 1 or dist.get_rank() == 0


def total(values: Tensor) -> Tensor:
    """The element-wise sum of every rank's `values` (CPU, float64)."""
    if world() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def gather(value: Any) -> list[Any]:
    """Every rank's `value`, in rank order; no rank goes on before all have called it."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def count(number: int) -> int:
    """The sum of every rank's `number`."""
    return int(total(torch.tensor(float(number), dtype=torch.float64)).item())


def whole(value: Tensor) -> Tensor:
    """A tensor in full, on every rank, of one that may be spread over them."""
    full: Any = getattr(value, "full_tensor", None)
    return full() if full else value


def spread_weights(scorer: nn.Module, layers: Any) -> None:
    """Spread the scorer's weights over the ranks (FSDP2), each of `layers` as one unit.

    Embedding, last norm and head stay together in the root unit, so that tied weights stay tied.
    """
    if world() == 1:
        return
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer)
    fully_shard(scorer, reshard_after_forward=True)
