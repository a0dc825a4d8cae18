"""The ranks of a `torchrun` job: what they sum and gather, weights spread over them, and how they end together.

A single process needs none of it: every function then gives back what it was given.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wmrl_cli.errors import ConfigError, StageError, UnavailableError, WmrlError
from wmrl_cli.launch import this_rank

_PATIENCE = timedelta(days=7)  # a rank may wait hours for another's scripts; torchrun ends those whose peer is gone
_FAILED = "wmrl/failed"  # in the job's store: the first rank that failed, as `rank:exit code`


def join() -> Any:
    """Join the job that `torchrun` started this process for; its store. Null without one, or where it is joined."""
    rank = this_rank()
    if rank.world == 1 or dist.is_initialized():
        return None
    store, _, _ = next(iter(dist.rendezvous("env://", timeout=_PATIENCE)))
    # Sums and objects go over the CPU, weights over the GPUs. Torch's default on a GPU machine knows nccl alone.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank.number, world_size=rank.world, timeout=_PATIENCE)
    return store


@contextmanager
def job() -> Iterator[None]:
    """This rank's life in its job. All ranks end with the exit code of the first that fails, which alone says why.

    What comes of it in the others (a broken connection, torchrun's SIGTERM) ends them without a word.
    """
    store = join()
    if store is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's comes late now
        if (code := _failed_before(store, _exit_code(error))) is not None:
            raise SystemExit(code) from None
        raise
    dist.destroy_process_group()


def world() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def number() -> int:
    """This rank's number, from 0."""
    return dist.get_rank() if world() > 1 else 0


def is_first() -> bool:
    """True on the rank that writes what is written once."""
    return number() == 0


def own_device(name: str) -> str:
    """The GPU that is this rank's own where `name` means any GPU; else `name`.

    Raises ConfigError where `name` is one GPU for several ranks, UnavailableError where there are fewer GPUs than ranks.
    """
    rank = this_rank()
    wants_gpu = name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())
    if rank.world == 1 or not wants_gpu:
        return name
    own = f"cuda:{rank.local}"
    if name not in ("auto", "cuda", own):
        raise ConfigError(
            f"`{name}` is one GPU, and this job has {rank.local_world} ranks on this machine",
            "leave the device to `auto`: each rank takes a GPU of its own",
        )
    if rank.local >= torch.cuda.device_count():
        raise UnavailableError(
            f"this job has {rank.local_world} ranks on this machine, and torch sees {torch.cuda.device_count()} GPUs",
            "start as many ranks as there are GPUs: `torchrun --nproc-per-node gpu -m wmrl_cli train ...`",
        )
    torch.cuda.set_device(rank.local)
    return own


def total(values: Tensor) -> Tensor:
    """The element-wise sum of every rank's `values` (CPU, float64)."""
    if world() > 1:
        values = values.clone()
        with _all_there():
            dist.all_reduce(values)
    return values


def gather(value: Any) -> list[Any]:
    """Every rank's `value`, in rank order; no rank goes on before all have called it."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    with _all_there():
        dist.all_gather_object(values, value)
    return values


def count(mine: int) -> int:
    """The sum of every rank's number."""
    return int(total(torch.tensor(float(mine), dtype=torch.float64)).item())


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
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(scorer.parameters()).device.type, (world(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(scorer, mesh=mesh, reshard_after_forward=True)


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of `source`, which may be spread over the ranks, into the whole `target`, in its dtype.

    One weight at a time, on all ranks together; tied weights are one weight in both.
    """
    into = dict(target.named_parameters())
    with torch.no_grad():
        for name, weight in source.named_parameters():
            into[name].copy_(whole(weight.detach()))


def _failed_before(store: Any, code: int) -> int | None:
    """The exit code of the rank that failed before this one; None where this one, ending with `code`, is the first."""
    mine = f"{number()}:{code}"
    try:
        first = store.compare_set(_FAILED, "", mine).decode()
    except RuntimeError:  # the store went with the rank or the torchrun that kept it
        return None
    return None if first == mine else int(first.partition(":")[2])


def _exit_code(error: BaseException) -> int:
    match error:
        case WmrlError():
            return error.exit_code
        case KeyboardInterrupt():
            return 130
        case SystemExit(code=int(code)):
            return code
        case _:
            return 1


@contextmanager
def _all_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # a connection broke; where a rank failed by itself, `job` knows that already
        raise StageError(
            "another rank of this job is gone",
            "torchrun's report says how it ended, signal 9 often for want of memory; the same command goes on with the run",
        ) from error
