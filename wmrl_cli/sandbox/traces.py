"""Hints from a traceback that a script printed: for people and for the agent, never for a status."""

from __future__ import annotations

import re
from typing import NamedTuple

from wmrl_cli.prompts.observation import SCRIPT_NAME

_FRAME = re.compile(rf'^ *File "[^"\n]*{re.escape(SCRIPT_NAME)}", line (\d+)', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_START = "Traceback (most recent call last):"


class ErrorHint(NamedTuple):
    """Class of the last exception, without its module, and the last line of the script on its way; null = not seen."""

    error_class: str | None
    line: int | None


def error_hint(stderr: str) -> ErrorHint:
    """What the last traceback in `stderr` names."""
    _, found, last = stderr.rpartition(_START)
    if not found:
        return ErrorHint(None, None)
    lines = [int(number) for number in _FRAME.findall(last)]
    raised = _RAISED.search(last)
    return ErrorHint(raised[1].rpartition(".")[2] if raised else None, lines[-1] if lines else None)
