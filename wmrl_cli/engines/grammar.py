"""Replies that are JSON by schema, with xgrammar: before each draw, tokens that would leave the schema are removed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from wmrl_cli.errors import UnavailableError

try:
    import xgrammar
except ImportError as error:
    raise UnavailableError(
        "replies by JSON schema need the package `xgrammar`", "pip install 'wmrl-cli[cpu]'"
    ) from error


class Grammars:
    """Compiled schemas of one tokenizer; each is compiled once."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int]) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=list(ends))
        self._vocabulary = vocabulary
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        # xgrammar lets bare control characters into strings, which JSON forbids
        self._never = [
            token
            for token, text in enumerate(info.decoded_vocab)
            if token not in ends and any(byte < 32 for byte in text)
        ]

    def matchers(self, schema: Mapping[str, Any], rows: int) -> Matchers:
        """Fresh matchers for `rows` replies. JSON is compact: free white space lets a model stall in it for ever."""
        text = json.dumps(schema)  # in its own order: what comes first is decided first
        grammar = self._compiler.compile_json_schema(text, any_whitespace=False, separators=(",", ":"))
        return Matchers([xgrammar.GrammarMatcher(grammar) for _ in range(rows)], self._vocabulary, self._never)


class Matchers:
    """How far each row of a batch has come in its document."""

    def __init__(self, matchers: list[Any], vocabulary: int, never: list[int]) -> None:
        self._matchers, self._vocabulary, self._never = matchers, vocabulary, never

    def constrain(self, logits_BV: Tensor, rows: Sequence[int]) -> Tensor:
        """A copy of `logits_BV`, -inf where the token would break the document of that row (`rows` says which)."""
        bitmask = xgrammar.allocate_token_bitmask(len(rows), self._vocabulary)
        for place, row in enumerate(rows):
            if not self._matchers[row].is_terminated():
                self._matchers[row].fill_next_token_bitmask(bitmask, place)
        allowed = logits_BV.clone()
        xgrammar.apply_token_bitmask_inplace(allowed, bitmask.to(allowed.device))
        allowed[:, self._never] = float("-inf")
        return allowed

    def accept(self, row: int, token: int) -> None:
        """Row `row` was given `token`."""
        if not self._matchers[row].accept_token(token):
            raise ValueError(f"token {token} is not allowed by the schema here")
