"""The protocol that every inference engine implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = Sequence[int]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to sample; a policy is sampled at temperature 1 and top_p 1, so that its log-probabilities are its own."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled reply. `ids` ends with the end-of-turn token when `finish_reason` is `stop`."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # natural log, of each sampled token at temperature 1 and top_p 1; same length as ids
    finish_reason: Literal["stop", "length"]


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that we use."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, ids: Ids, *, skip_special_tokens: bool = ...) -> str: ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any: ...


class Engine(Protocol):
    """A language model that generates and that can be asked to choose.

    A prompt that does not fit the context, or a server that answers an error for one row, gives that row's
    error to the caller as `None` (a row that is `lost`); an engine that is down raises UnavailableError.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def digest(self) -> str:
        """Digest of the weights and tokenizer now in force; another one as soon as a weight changes."""
        ...

    @property
    def context_tokens(self) -> int:
        """The most tokens that a prompt and its reply may have together."""
        ...

    def generate(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        schema: Mapping[str, Any] | None = None,
    ) -> list[Completion | None]:
        """One completion a prompt. A row depends on its own prompt and seed, not on its neighbours.

        With `schema`, replies are JSON documents that match it (unless cut by `max_new_tokens`).
        """
        ...

    def choose(
        self, prefixes: Sequence[Ids], suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]
    ) -> list[list[Floats]]:
        """Log-probability of each choice after every prefix + suffix, normalised over that suffix's choices.

        `choices[s]` are the answers allowed after `suffixes[s]`. Result: for each prefix, for each suffix, an
        array of len(choices[s]), all NaN where the row is lost. The shared prefix is read once.
        """
        ...

    def load_weights(self, folder: Path) -> None: ...
