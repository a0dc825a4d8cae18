"""Digests and seeds: the same row gets the same random numbers however rows are batched, resumed or sharded."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(*parts: Any, length: int = 16) -> str:
    """The first `length` hex digits of a SHA-256 over the parts' canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def row_seed(seed: int, *names: Any) -> int:
    """A seed in [0, 2**63) for one row of a run: a digest of the run's seed and the row's id.

    Not Python's `hash`, which is salted for strings.
    """
    return int(digest(seed, *names, length=16), 16) >> 1
