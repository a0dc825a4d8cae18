"""Inference in this process with Hugging Face transformers: CPU or GPU, also on a model that is being trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from wmrl_cli.engines.base import Completion, Floats, Ids, Sampling
from wmrl_cli.engines.chat import end_of_turn
from wmrl_cli.engines.choices import build_tree
from wmrl_cli.engines.decoding import Decoding
from wmrl_cli.engines.forward import Forward
from wmrl_cli.engines.reading import read_forks, read_tree, read_whole
from wmrl_cli.engines.weights import open_model, replace_weights, weights_digest
from wmrl_cli.errors import UnavailableError

if TYPE_CHECKING:
    from wmrl_cli.engines.grammar import Grammars

Share = Literal["tree", "fork", "none"]
_READERS = {"tree": read_tree, "fork": read_forks, "none": read_whole}


class TransformersEngine:
    """An Engine over a live `model` and `tokenizer`, which may be shared with a learner that trains them.

    Parameters
    ----------
    batch_rows : replies that are sampled, or questions that are read, at once.
    batch_tokens : tokens of prompts that are read at once. Both bound the memory and change no result.
    compute : compute in this dtype by autocast, as a learner does that keeps its weights in float32.
    share : how `choose` reads a prefix once. `tree` reads all questions behind it in one forward under a
        tree-shaped mask (full attention only), `fork` copies its state for each question, `none` reads it again
        for each question. By default the fastest that the model allows.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_rows: int = 64,
        batch_tokens: int = 65536,
        compute: torch.dtype | None = None,
        share: Share | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.batch_rows, self.compute = batch_rows, compute
        self._ends = _end_ids(model, tokenizer)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._ends)
        self._forward = Forward(model, pad=pad, batch_tokens=batch_tokens)
        self.share: Share = share or ("tree" if self._forward.takes_any_mask else "fork")
        self._lock = threading.Lock()  # one forward at a time: environments are stepped from threads
        self._grammars: Grammars | None = None

    @classmethod
    def open(cls, location: str, *, dtype: str, device: str, batch_rows: int = 64) -> TransformersEngine:
        """The engine of a local folder or hub id; see `open_model` for what it raises."""
        return cls(*open_model(location, dtype=dtype, device=device), batch_rows=batch_rows)

    @property
    def digest(self) -> str:
        return weights_digest(self.model, self.tokenizer)

    @property
    def context_tokens(self) -> int:
        return int(self._forward.config.max_position_embeddings)

    def load_weights(self, folder: Path) -> None:
        """Copies a Hugging Face folder's weights into the live model. On ConfigError nothing has changed."""
        with self._lock:
            replace_weights(self.model, folder)

    def generate(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        schema: Mapping[str, Any] | None = None,
    ) -> list[Completion | None]:
        """See Engine.generate. A reply ends early, with `length`, where the context is full."""
        if len(prompts) != len(seeds):
            raise ValueError(f"every prompt needs a seed: got {len(prompts)} prompts and {len(seeds)} seeds")
        results: list[Completion | None] = [None] * len(prompts)
        fits = [row for row, prompt in enumerate(prompts) if 0 < len(prompt) < self.context_tokens]
        fits.sort(key=lambda row: -len(prompts[row]))  # rows of like length need less padding
        with self._ready():
            for start in range(0, len(fits), self.batch_rows):
                rows = fits[start : start + self.batch_rows]
                decoding = Decoding(
                    self._forward,
                    [prompts[row] for row in rows],
                    [seeds[row] for row in rows],
                    sampling,
                    room=[min(sampling.max_new_tokens, self.context_tokens - len(prompts[row])) for row in rows],
                    ends=self._ends,
                    matchers=None if schema is None else self._grammar().matchers(schema, len(rows)),
                )
                for row, completion in zip(rows, decoding.run(), strict=True):
                    results[row] = completion
        return results

    def choose(
        self, prefixes: Sequence[Ids], suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]
    ) -> list[list[Floats]]:
        """See Engine.choose."""
        tree = build_tree(suffixes, choices)
        longest = max(tree.depths, default=0) + 1
        lost = [np.full(len(options), np.nan) for options in choices]
        results = [lost for _ in prefixes]
        first = {tuple(prefix): row for row, prefix in reversed(list(enumerate(prefixes)))}
        fits = [row for row in first.values() if 0 < len(prefixes[row]) <= self.context_tokens - longest]
        width = 1 if self.share == "tree" else len(tree.paths())
        with self._ready():
            for rows in self._chunks(fits, [len(prefix) + longest for prefix in prefixes], width):
                steps, logp = _READERS[self.share](self._forward, [prefixes[row] for row in rows], tree)
                for row, values in zip(rows, logp.double().cpu().numpy(), strict=True):
                    results[row] = tree.normalised(dict(zip(steps, values, strict=True)))
        return [results[first[tuple(prefix)]] for prefix in prefixes]

    def _chunks(self, rows: list[int], lengths: Sequence[int], width: int) -> Iterator[list[int]]:
        """`rows` by falling length, in chunks within the bounds; a row stands for `width` rows of compute."""
        chunk: list[int] = []
        for row in sorted(rows, key=lambda row: -lengths[row]):
            count = (len(chunk) + 1) * width
            if chunk and (count > self.batch_rows or count * lengths[chunk[0]] > self._forward.batch_tokens):
                yield chunk
                chunk = []
            chunk.append(row)
        if chunk:
            yield chunk

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Alone, in evaluation mode, without gradients; a learner finds its mode again afterwards."""
        with self._lock, ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if self.compute is not None:
                stack.enter_context(torch.autocast(self.model.device.type, dtype=self.compute))
            training = self.model.training
            stack.callback(self.model.train, training)
            self.model.eval()
            try:
                yield
            except torch.OutOfMemoryError as error:
                raise UnavailableError(
                    f"the GPU has no memory for `{self.batch_rows}` replies at once",
                    "ask for shorter replies or a smaller batch, or run the model on a server with `--engine http`",
                ) from error

    def _grammar(self) -> Grammars:
        if self._grammars is None:
            from wmrl_cli.engines.grammar import Grammars

            self._grammars = Grammars(self.tokenizer, self._forward.config.vocab_size, sorted(self._ends))
        return self._grammars


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: the chat template's, the tokenizer's, and those that the model was published with."""
    published = getattr(model.generation_config, "eos_token_id", None)
    listed = published if isinstance(published, list) else [published]
    return frozenset(token for token in (end_of_turn(tokenizer), tokenizer.eos_token_id, *listed) if token is not None)
