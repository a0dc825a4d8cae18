"""Tokenizers and the errors of opening what lies in a folder or on the Hugging Face hub; needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wmrl_cli.errors import ConfigError, UnavailableError, WmrlError


def open_tokenizer(location: str) -> Any:
    """The tokenizer of a local folder or hub id, with its chat template. Raises ConfigError and UnavailableError."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UnavailableError("reading a tokenizer needs `transformers`", "pip install 'wmrl-cli[cpu]'") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(location)
    except (OSError, ValueError) as error:  # what transformers raises for missing files, hosts and unknown kinds
        raise not_opened(location, error) from error
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer of `{location}` has no chat template", "use an instruction-tuned model")
    return tokenizer


def not_opened(location: str, error: Exception) -> WmrlError:
    """What to tell the user when `location` could not be opened."""
    reason = str(error).strip().split("\n")[0][:200]
    if Path(location).is_dir():
        return ConfigError(f"`{location}` could not be loaded: {reason}", "give a folder that `save_pretrained` wrote")
    return UnavailableError(
        f"`{location}` is no local folder, and the Hugging Face hub did not give it: {reason}",
        "check the name, the network and HF_HUB_OFFLINE, or give a local folder that holds the model",
    )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Without transformers' bar for reading weights, which would break into ours; downloads keep theirs."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
