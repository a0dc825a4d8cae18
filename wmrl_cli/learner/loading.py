"""Opening a Hugging Face model for training: float32 weights, text part only, and a sentence where that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wmrl_cli.errors import UnavailableError
from wmrl_cli.hub import quiet_loading
from wmrl_cli.launch import this_rank
from wmrl_cli.learner import ranks
from wmrl_cli.learner.config import LearnerConfig

TRAINED_BYTES = 16  # a parameter in training: float32 weight, gradient and Adam's two moments


@dataclass(frozen=True)
class HeldBytes:
    """Bytes that a rank holds for each parameter of the model."""

    spread: float  # its part of what is spread over the ranks
    whole: int  # copies that every rank has

    @classmethod
    def of(cls, copy: int, *, ranks: int, reference: bool, whole_reference: bool) -> HeldBytes:
        """For copies of `copy` bytes a parameter: a reference, if there is one, and on several ranks a sampler."""
        spread = TRAINED_BYTES + (copy if reference and not whole_reference else 0)
        whole = (copy if reference and whole_reference else 0) + (copy if ranks > 1 else 0)
        return cls(spread / ranks, whole)

    @property
    def total(self) -> float:
        return self.spread + self.whole


def pick_device(name: str) -> torch.device:
    """`auto` is the first GPU, else the CPU. Raises UnavailableError where a GPU is asked for and missing."""
    if name == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError(
            f"`{name}` was asked for, and torch sees no GPU",
            "leave the device to `auto`, or install the CUDA build of torch",
        )
    return torch.device(name)


def load_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a folder or hub id. Raises UnavailableError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=Path(source).is_dir())
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"`{source}` has no tokenizer that can be read: {_first_line(error)}", _hint(source)
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # what transformers makes of a folder without its files
        raise UnavailableError(f"`{source}` has no tokenizer: its vocabulary is empty", _hint(source))
    return tokenizer


def load_config(source: str | Path) -> Any:
    """The model's own configuration. Raises UnavailableError."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source, local_files_only=Path(source).is_dir())
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"`{source}` is no model that can be read: {_first_line(error)}", _hint(source)
        ) from error


def load_model(source: str | Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal language model of a folder or hub id, in evaluation mode (no dropout).

    A vision-language repository (Qwen3.5) gives its text part. Raises UnavailableError.
    """
    from transformers import AutoModelForCausalLM

    try:
        with quiet_loading():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, local_files_only=Path(source).is_dir())
        return model.to(device).eval()
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"`{source}` is no model that can be read: {_first_line(error)}", _hint(source)
        ) from error
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"`{source}` does not fit into the memory of `{device}`", "use a larger GPU, or a smaller model"
        ) from error


def compute_dtype(config: LearnerConfig, device: torch.device) -> torch.dtype:
    """What the learner computes in on `device`."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.float32 if config.dtype == "float32" else torch.bfloat16


def check_memory(source: str | Path, config: Any, device: torch.device, held: HeldBytes) -> None:
    """Refuse a model whose training state alone exceeds the free memory, before the kernel ends the process.

    The ranks of one machine share its memory, and have a GPU each. All look before any takes.
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        parameters = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    sharing = this_rank().local_world if device.type == "cpu" else 1
    needed, free = parameters * held.total * sharing, min(ranks.gather(free_memory(device)))
    if needed > free:
        raise UnavailableError(
            f"training `{source}` needs {needed / 1e9:.0f} GB of memory, and `{device}` has {free / 1e9:.0f} GB free",
            "use larger GPUs, more of them (`torchrun --nproc-per-node gpu -m wmrl_cli train ...`) "
            "or a smaller model such as `tiny`",
        )


def free_memory(device: torch.device) -> int:
    """Bytes that a process can still take on `device`: of the GPU, or of the machine within its container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        free.append(int(text) - int(used.read_text()))
    return min(free, default=1 << 62)


def check_head(model: nn.Module) -> None:
    """Refuse an architecture that does more to its last hidden state than multiply it by the head's weights."""
    device = next(model.parameters()).device
    ids = torch.arange(1, 5, device=device)[None]
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[operator]
        again = model.get_output_embeddings()(hidden)  # type: ignore[operator]
    if not torch.allclose(logits, again, rtol=1e-3, atol=1e-3):
        raise UnavailableError(
            f"`{type(model).__name__}` changes its logits after the output layer, which the learner does not support"
        )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _hint(source: str | Path) -> str:
    if Path(source).is_dir():
        return "the folder must hold a model that `transformers` can open: config.json, safetensors and tokenizer files"
    return "give a local folder, or allow access to the Hugging Face hub"
