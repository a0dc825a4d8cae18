"""Unknown names: the sentence and the hint with the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: str, known: Iterable[str]) -> tuple[str, str]:
    """Message and hint for a `kind` (suite, task, metric ...) that is none of the known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"{kind} `{name}` is not known", (
        f"did you mean `{near[0]}`? " if near else ""
    ) + f"known: `{'`, `'.join(names)}`"
