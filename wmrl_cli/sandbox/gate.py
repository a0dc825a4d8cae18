"""The gate before every scorer: a reply without a script, or one that does not compile, is settled without running
anything and without asking a model. The sandbox and the world model share it, so they never disagree here."""

from __future__ import annotations

import threading
import traceback
import warnings

from wmrl_cli.environment import Outcome
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.prompts.observation import SCRIPT_NAME, sandbox_observation

_filters = threading.Lock()  # warning filters belong to the whole process


def gate(script: str | None, ladder: RewardLadder) -> Outcome | None:
    """The outcome of a script that cannot be run at all: `malformed` where there is none, `syntax_error` where the
    whole of it does not compile. None where it can be run."""
    if script is None:
        return _settled(Status.MALFORMED, ladder)
    fault = compile_fault(script)
    if fault is None:
        return None
    line = (fault.lineno or None) if isinstance(fault, SyntaxError) else None  # 0: the encoding line
    text = "".join(traceback.format_exception_only(fault))
    return _settled(Status.SYNTAX_ERROR, ladder, stderr=text, error_class=type(fault).__name__, error_line=line)


def compile_fault(script: str) -> Exception | None:
    """What Python raises when it compiles the script's bytes as a file, or None.

    Bytes, because an encoding line counts in a file and not in a text; `dont_inherit`, because our own
    `__future__` imports are not the script's. Nesting too deep for the parser or compiler fails here as it does there.
    """
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(script.encode(), SCRIPT_NAME, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as fault:
            return fault
    return None


def _settled(
    status: Status,
    ladder: RewardLadder,
    *,
    stderr: str = "",
    error_class: str | None = None,
    error_line: int | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        reward=ladder.reward(status),
        error_class=error_class,
        error_line=error_line,
        observation=sandbox_observation(status, stderr=stderr),
        backend="gate",
    )
