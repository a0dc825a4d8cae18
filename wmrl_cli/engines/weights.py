"""Opening, digesting and replacing the weights of a Hugging Face causal language model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wmrl_cli.errors import ConfigError
from wmrl_cli.hub import not_opened, open_tokenizer, quiet_loading
from wmrl_cli.seeds import digest

_CHUNK = 1 << 22  # numbers hashed at once
_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, so that multiplying by it modulo 2**64 loses nothing


def open_model(location: str, *, dtype: str, device: str) -> tuple[Any, Any]:
    """The text model and tokenizer of a local folder or a hub id, ready to read from; vision weights are left out.

    Raises ConfigError where a local folder does not hold both, UnavailableError where the hub does not answer.
    """
    from transformers import AutoModelForCausalLM

    tokenizer = open_tokenizer(location)
    try:
        with quiet_loading():
            model = AutoModelForCausalLM.from_pretrained(location, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as error:  # what transformers raises for missing files, hosts and unknown kinds
        raise not_opened(location, error) from error
    return model.to(device).eval(), tokenizer


def replace_weights(model: Any, folder: Path) -> None:
    """Copies the weights in `folder` into the live `model`, in place, as its dtype and on its device.

    Raises ConfigError where the folder holds no model or one of another shape; the live one is then unchanged.
    """
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise ConfigError(f"`{folder}` holds no model: `config.json` is missing")
    try:
        with quiet_loading():
            fresh = AutoModelForCausalLM.from_pretrained(str(folder), dtype=model.dtype).state_dict()
    except (OSError, ValueError) as error:
        raise not_opened(str(folder), error) from error
    live = model.state_dict()
    if {name: value.shape for name, value in fresh.items()} != {name: value.shape for name, value in live.items()}:
        raise ConfigError(f"the weights in `{folder}` are of another model than the one that is loaded")
    with torch.no_grad():
        for name, value in live.items():
            value.copy_(fresh[name])


def weights_digest(model: Any, tokenizer: Any) -> str:
    """Digest of every weight and of the tokenizer. It finds changes, of one bit too; it is no defence against forgery.

    Computed where the weights lie, in whole numbers, so that it costs one read of them and is the same on
    every device.
    """
    state = sorted(model.state_dict().items())
    sums = [(name, str(value.dtype), list(value.shape), _checksum(value)) for name, value in state]
    words = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
    return digest(sums, words, tokenizer.chat_template)


def _checksum(tensor: Tensor) -> int:
    """Sum of each number's bits times a multiplier of its position, modulo 2**64."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().contiguous().view(-1).view(kind)
    total = 0
    for start in range(0, bits.numel(), _CHUNK):
        part = bits[start : start + _CHUNK].to(torch.int64)
        position = torch.arange(start + 1, start + 1 + part.numel(), device=part.device)
        multiplier = (position * _MULTIPLIER) | 1
        total += int((part * multiplier).sum())
    return total % (1 << 64)
