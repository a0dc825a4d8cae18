"""Checkpoints to continue from, and Hugging Face folders to use elsewhere; a folder is whole or absent."""

from __future__ import annotations

import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_state
from torch.distributed.checkpoint.state_dict_saver import save as write_state

from wmrl_cli.errors import StageError
from wmrl_cli.hub import quiet_loading
from wmrl_cli.learner import ranks

VERSION = 1


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Write weights, optimiser, step and torch's random state."""
    with whole_folder(folder) as scratch, _single_process_is_meant():
        write_state(_state(model, optimizer, steps), checkpoint_id=scratch)


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Read what `save` wrote into `model` and `optimizer`; the step it was written at. Raises StageError."""
    state = _state(model, optimizer, 0)
    try:
        with _single_process_is_meant():
            read_state(state, checkpoint_id=folder)
    except (OSError, CheckpointException) as error:
        raise StageError(
            f"`{folder}` holds no checkpoint of this model",
            "give the folder that `save` wrote, of a run with the same model",
        ) from error
    if int(state["version"]) != VERSION:
        raise StageError(
            f"`{folder}` is a checkpoint of version {int(state['version'])}, and version {VERSION} is read"
        )
    torch.set_rng_state(state["random"])
    if "random_gpu" in state:
        torch.cuda.set_rng_state(state["random_gpu"])
    return int(state["steps"])


def export(folder: Path, model: Any, tokenizer: Any, dtype: torch.dtype) -> None:
    """Write a Hugging Face folder; a weight under two names stays one weight."""
    converted: dict[int, Tensor] = {}
    weights = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in converted:
            full = ranks.whole(value.detach())  # on all ranks together; the first keeps it
            converted[id(value)] = full.to("cpu", dtype) if ranks.is_first() else full.new_empty(0)
        weights[name] = converted[id(value)]
    kept, model.config.dtype = model.config.dtype, dtype
    try:
        with whole_folder(folder) as scratch, quiet_loading():
            if ranks.is_first():
                model.save_pretrained(scratch, state_dict=weights)
                tokenizer.save_pretrained(scratch)
    finally:
        model.config.dtype = kept


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder beside `folder` that takes its name at the end; an older `folder` gives way only then.

    All ranks get the same one, and go on when it has its name.
    """
    folder = Path(folder)
    mark = ranks.gather(uuid.uuid4().hex[:8])[0]
    scratch, old = (folder.with_name(f".{folder.name}.{mark}.{kind}") for kind in ("new", "old"))
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        yield scratch
        ranks.gather("written")
        if ranks.is_first():
            if folder.exists():
                folder.rename(old)
            scratch.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        ranks.gather("renamed")
    finally:
        if ranks.is_first():
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _single_process_is_meant() -> Iterator[None]:
    """Without torch's warning that there is only one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _state(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Any]:
    """The live tensors by name: saving reads them, loading fills them."""
    state: dict[str, Any] = {
        "version": torch.tensor(VERSION),
        "steps": torch.tensor(steps),
        "random": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["random_gpu"] = torch.cuda.get_rng_state()
    for name, parameter in model.named_parameters():
        state[f"model.{name}"] = parameter.detach()
        moments = optimizer.state[parameter] or {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        optimizer.state[parameter] = moments  # what AdamW itself would start from
        state |= {f"optimizer.{name}.{key}": value for key, value in moments.items()}
    return state
