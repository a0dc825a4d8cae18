"""Inference in this process with Hugging Face transformers: CPU or GPU, also on a model that is being trained.

Letters: B rows, U distinct prompts, T tokens, V vocabulary, P prefixes, N nodes of a question tree.

Rows are padded on the left, and padding is masked, so a row's numbers do not depend on its neighbours beyond
rounding. That holds for linear attention too: a masked input adds nothing to the empty state before a prompt.
It would not hold for padding *after* a text that is continued (the state decays there), which is why states
are only ever forked at the end of left-padded text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from wmrl_cli.engines.base import Completion, Floats, Ids, Sampling
from wmrl_cli.engines.cache import roomy_cache
from wmrl_cli.engines.chat import end_of_turn
from wmrl_cli.engines.choices import ChoiceTree, build_tree
from wmrl_cli.engines.sampling import sample_tokens, uniforms
from wmrl_cli.engines.weights import open_model, replace_weights, weights_digest

Share = Literal["tree", "fork", "none"]


class TransformersEngine:
    """An Engine over a live `model` and `tokenizer`, which may be shared with a learner that trains them.

    `batch_rows` and `batch_tokens` bound what is computed at once, and with it the memory; they change no
    result. `share` says how `choose` reads a prefix once: `tree` puts all questions behind it in one forward
    under a tree-shaped mask (full attention only), `fork` copies its state for each question, `none` reads it
    again for each question.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, batch_rows: int = 64, batch_tokens: int = 65536, share: Share | None = None
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.batch_rows, self.batch_tokens = batch_rows, batch_tokens
        self._config = model.config.get_text_config()
        self.share: Share = share or ("tree" if self._takes_any_mask() else "fork")
        self._ends = _end_ids(model, tokenizer)
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._ends)
        self._lock = threading.Lock()  # one forward at a time: environments are stepped from threads
        self._grammars: Any = None

    @classmethod
    def open(cls, location: str, *, dtype: str, device: str, batch_rows: int = 64) -> TransformersEngine:
        """The engine of a local folder or hub id; see `open_model` for what it raises."""
        return cls(*open_model(location, dtype=dtype, device=device), batch_rows=batch_rows)

    @property
    def digest(self) -> str:
        return weights_digest(self.model, self.tokenizer)

    @property
    def context_tokens(self) -> int:
        return int(self._config.max_position_embeddings)

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
        with self._ready():
            for rows in self._chunks(fits, [len(prompt) for prompt in prompts]):
                batch = _Batch(self, [prompts[row] for row in rows], [seeds[row] for row in rows], sampling, schema)
                for row, completion in zip(rows, batch.run(), strict=True):
                    results[row] = completion
        return results

    def choose(
        self, prefixes: Sequence[Ids], suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]
    ) -> list[list[Floats]]:
        """See Engine.choose."""
        tree = build_tree(suffixes, choices)
        longest = max(tree.depths, default=0) + 1
        lost = [np.full(len(options), np.nan) for options in choices]
        results = [list(lost) for _ in prefixes]
        first = {tuple(prefix): row for row, prefix in reversed(list(enumerate(prefixes)))}
        fits = [row for row in first.values() if 0 < len(prefixes[row]) <= self.context_tokens - longest]
        read = {"tree": self._read_tree, "fork": self._read_forks, "none": self._read_whole}[self.share]
        with self._ready():
            width = 1 if self.share == "tree" else len(tree.paths())
            for rows in self._chunks(fits, [len(prefix) + longest for prefix in prefixes], width=width):
                steps, logp = read([prefixes[row] for row in rows], tree)
                for row, values in zip(rows, logp.double().cpu().numpy(), strict=True):
                    results[row] = tree.normalised(dict(zip(steps, values, strict=True)))
        return [results[first[tuple(prefix)]] for prefix in prefixes]

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Alone, in evaluation mode, without gradients; a learner finds its mode again afterwards."""
        with self._lock, torch.inference_mode():
            training = self.model.training
            self.model.eval()
            try:
                yield
            finally:
                self.model.train(training)

    def _chunks(self, rows: list[int], lengths: Sequence[int], *, width: int = 1) -> Iterator[list[int]]:
        """`rows` by falling length, in chunks that stay within the bounds; each takes `width` rows of compute."""
        chunk: list[int] = []
        for row in sorted(rows, key=lambda row: -lengths[row]):
            count = (len(chunk) + 1) * width
            if chunk and (count > max(self.batch_rows, width) or count * lengths[chunk[0]] > self.batch_tokens):
                yield chunk
                chunk = []
            chunk.append(row)
        if chunk:
            yield chunk

    def _takes_any_mask(self) -> bool:
        kinds = set(getattr(self._config, "layer_types", None) or ["full_attention"])
        return kinds == {"full_attention"} and self._config._attn_implementation in ("sdpa", "eager")

    def padded(self, sequences: Sequence[Ids], *, left: bool) -> tuple[Tensor, Tensor]:
        """Ids and mask (1 = a real token), both (B, T) on the model's device."""
        length = max(map(len, sequences))
        ids = np.full((len(sequences), length), self._pad)
        mask = np.zeros((len(sequences), length), dtype=np.int64)
        for row, sequence in enumerate(sequences):
            span = slice(length - len(sequence), length) if left else slice(0, len(sequence))
            ids[row, span], mask[row, span] = sequence, 1
        return self.tensor(ids), self.tensor(mask)

    def tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), device=self.model.device)

    def prefill(self, prompts: Sequence[Ids]) -> tuple[Any, Tensor, Tensor]:
        """State after each prompt, the left-padded mask (B, T) and the next token's logits (B, V)."""
        ids, mask = self.padded(prompts, left=True)
        cache = roomy_cache(self._config)
        logits = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return cache, mask, logits[:, -1]

    def grammars(self) -> Any:
        if self._grammars is None:
            from wmrl_cli.engines.grammar import Grammars

            self._grammars = Grammars(self.tokenizer, self._config.vocab_size, sorted(self._ends))
        return self._grammars

    def _read_tree(self, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[list[tuple[int, int]], Tensor]:
        """Log-probability (P, steps) of each (node, token): one forward over the prefixes, one over the whole tree.

        The prefixes are padded on the right: causal attention hides padding from what stands before it, which
        keeps the mask, and its cost, out of the long forward; the tree's mask hides it from the questions.
        """
        ids, mask = self.padded(prefixes, left=False)
        cache = roomy_cache(self._config)
        self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        rows, nodes = len(prefixes), len(tree.tokens)
        inside = self.tensor(tree.ancestors).expand(rows, nodes, nodes)
        allowed = torch.cat([mask.bool()[:, None, :].expand(rows, nodes, -1), inside], -1)[:, None]
        dtype = self.model.dtype
        needed = tree.needed()
        logits = self.model(
            input_ids=self.tensor(tree.tokens).expand(rows, nodes),
            attention_mask=torch.zeros(allowed.shape, dtype=dtype, device=ids.device).masked_fill(
                ~allowed, torch.finfo(dtype).min
            ),
            position_ids=mask.sum(-1, keepdim=True) + self.tensor(tree.depths),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=self.tensor(needed),
        ).logits
        return _gather(tree, logits, {node: (0, place) for place, node in enumerate(needed)}, paths=1)

    def _read_forks(self, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[list[tuple[int, int]], Tensor]:
        """The same with a copy of the prefix's state for each path; padding stands only after what is read."""
        cache, mask, _ = self.prefill(prefixes)
        paths = tree.paths()
        cache.reorder_cache(torch.arange(len(prefixes), device=mask.device).repeat_interleave(len(paths)))
        mask = mask.repeat_interleave(len(paths), 0)
        ids, inside = self.padded([[tree.tokens[node] for node in path] for path in paths], left=False)
        ids, inside = ids.repeat(len(prefixes), 1), inside.repeat(len(prefixes), 1)
        position_ids = mask.sum(-1, keepdim=True) + torch.arange(ids.shape[1], device=ids.device)
        logits = self.model(
            input_ids=ids,
            attention_mask=torch.cat([mask, inside], -1),
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        ).logits
        places = {node: (path, depth) for path, nodes in enumerate(paths) for depth, node in enumerate(nodes)}
        return _gather(tree, logits, places, paths=len(paths))

    def _read_whole(self, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[list[tuple[int, int]], Tensor]:
        """The same without sharing: each prefix is read again for each path."""
        paths = tree.paths()
        texts = [[*prefix, *(tree.tokens[node] for node in path)] for prefix in prefixes for path in paths]
        depth = max(map(len, paths))
        # right of a path stands a filler, so that every path's tokens are the last `depth` ones
        filled = [[*text, *[self._pad] * (depth - len(paths[row % len(paths)]))] for row, text in enumerate(texts)]
        ids, mask = self.padded(filled, left=True)
        logits = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=depth,
        ).logits
        places = {node: (path, place) for path, nodes in enumerate(paths) for place, node in enumerate(nodes)}
        return _gather(tree, logits, places, paths=len(paths))


class _Batch:
    """Replies to one chunk of prompts: equal prompts are read once, and rows that have ended leave the batch."""

    def __init__(
        self,
        engine: TransformersEngine,
        prompts: Sequence[Ids],
        seeds: Sequence[int],
        sampling: Sampling,
        schema: Mapping[str, Any] | None,
    ) -> None:
        self.engine, self.sampling = engine, sampling
        self.prompts = prompts
        self.room = [min(sampling.max_new_tokens, engine.context_tokens - len(prompt)) for prompt in prompts]
        self.uniform_BT = engine.tensor(np.stack([uniforms(seed, max(self.room)) for seed in seeds]))
        self.ids: list[list[int]] = [[] for _ in prompts]
        self.logprobs: list[list[float]] = [[] for _ in prompts]
        self.constrain: Callable[[Tensor, list[int]], Tensor] | None = None
        if schema is not None:
            self.matchers = engine.grammars().matchers(schema, len(prompts))
            self.constrain = self.matchers.constrain

    def run(self) -> list[Completion]:
        cache, mask, logits = self._read_prompts()
        rows = list(range(len(self.prompts)))  # rows[i] = which prompt the i-th row of the tensors answers
        position = mask.sum(-1, keepdim=True)
        for step in range(max(self.room)):
            tokens = self._draw(logits, rows, step)
            alive = [i for i, row in enumerate(rows) if not self._ended(row)]
            if not alive:
                break
            if len(alive) <= 0.9 * len(rows) or (len(rows) <= 8 and len(alive) < len(rows)):
                keep = torch.tensor(alive, device=mask.device)
                cache.reorder_cache(keep)
                rows, tokens, mask, position = [rows[i] for i in alive], tokens[keep], mask[keep], position[keep]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], -1)
            logits = self.engine.model(
                input_ids=tokens[:, None],
                attention_mask=mask,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
            position = position + 1
        return [
            Completion(
                ids=tuple(ids),
                logprobs=tuple(logprobs),
                finish_reason="stop" if ids[-1] in self.engine._ends else "length",
            )
            for ids, logprobs in zip(self.ids, self.logprobs, strict=True)
        ]

    def _read_prompts(self) -> tuple[Any, Tensor, Tensor]:
        places: dict[tuple[int, ...], int] = {}
        index = [places.setdefault(tuple(prompt), len(places)) for prompt in self.prompts]
        cache, mask, logits = self.engine.prefill(list(places))
        if len(places) == len(index):
            return cache, mask, logits
        order = torch.tensor(index, device=mask.device)
        cache.reorder_cache(order)
        return cache, mask[order], logits[order]

    def _draw(self, logits: Tensor, rows: list[int], step: int) -> Tensor:
        """The next token of each row; rows that have ended get one too, and nobody looks at it."""
        logits = logits.float()
        allowed = logits if self.constrain is None else self.constrain(logits, rows)
        uniform_B = self.uniform_BT[rows, step]
        tokens = sample_tokens(allowed, uniform_B, temperature=self.sampling.temperature, top_p=self.sampling.top_p)
        logp = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        for row, token, value in zip(rows, tokens.tolist(), logp.tolist(), strict=True):
            if not self._ended(row):
                self.ids[row].append(token)
                self.logprobs[row].append(value)
                if self.constrain is not None:
                    self.matchers.accept(row, token)
        return tokens

    def _ended(self, row: int) -> bool:
        ids = self.ids[row]
        return bool(ids) and (len(ids) >= self.room[row] or ids[-1] in self.engine._ends)


def _gather(
    tree: ChoiceTree, logits: Tensor, places: dict[int, tuple[int, int]], *, paths: int
) -> tuple[list[tuple[int, int]], Tensor]:
    """From logits (P * paths, T, V), and where each node stands in them, the log-probability (P, steps)."""
    steps = sorted({step for choices in tree.answers for choice in choices for step in choice})
    nodes = sorted({node for node, _ in steps})
    path, place = zip(*(places[node] for node in nodes), strict=True)
    by_node = (
        logits.reshape(-1, paths, *logits.shape[1:])[:, list(path), list(place)].float().log_softmax(-1)
    )  # P, nodes, V
    return steps, by_node[:, [nodes.index(node) for node, _ in steps], [token for _, token in steps]]


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: the chat template's, the tokenizer's, and those that the model was published with."""
    published = getattr(model.generation_config, "eos_token_id", None)
    listed = published if isinstance(published, list) else [published]
    return frozenset(token for token in (end_of_turn(tokenizer), tokenizer.eos_token_id, *listed) if token is not None)
