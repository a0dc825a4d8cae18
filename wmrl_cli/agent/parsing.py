"""The script in an agent's reply."""

from __future__ import annotations

import re
from typing import Literal

_PYTHON = re.compile(r"^ {0,3}(`{3,})[ \t]*(?:python3?|py)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}(`{3,})[ \t]*([^\s`]*)[^`\n]*$", re.MULTILINE)


def extract_script(text: str, finish_reason: Literal["stop", "length"]) -> str | None:
    """The code in the first closed ```python block, else in the first closed block without a language, else None.

    A block that was never closed is no script: most of them were cut by the token limit, and half a script
    teaches the agent nothing about the whole one. With `length` the last line is unfinished, so a fence on it
    closes nothing yet. Thinking before the reply is passed over.
    """
    if text.lstrip().startswith("<think>"):
        _, closed, text = text.partition("</think>")
        if not closed:
            return None
    text = text.replace("\r\n", "\n")
    if finish_reason == "length":
        text = text[: text.rfind("\n") + 1]
    for opening in _PYTHON.finditer(text):
        if (block := _block(text, opening)) is not None:
            return block[0]
    position = 0
    while opened := _FENCE.search(text, position):
        block = _block(text, opened)
        if block is None:
            return None
        if not opened[2]:
            return block[0]
        position = block[1]
    return None


def _block(text: str, opening: re.Match[str]) -> tuple[str, int] | None:
    """The text between `opening` and the line that closes it, and where that line ends; None where none does."""
    start = opening.end() + 1
    closing = re.compile(rf"^ {{0,3}}`{{{len(opening[1])},}}[ \t]*$", re.MULTILINE).search(text, start)
    return None if closing is None else (text[start : closing.start()], closing.end())
