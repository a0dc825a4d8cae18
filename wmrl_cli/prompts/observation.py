"""What the agent reads after a turn: one renderer for real and predicted outcomes, so that they read the same."""

from __future__ import annotations

import math
import re

from wmrl_cli.maths.outcomes import Status

_CLASS_NAME = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*")
SCRIPT_NAME = "solution.py"  # as it stands in every traceback

_SENTENCES = {
    Status.MALFORMED: "The reply holds no closed Python code block, so nothing was run.",
    Status.SYNTAX_ERROR: "The script does not compile, so nothing was run.",
    Status.RUNTIME_ERROR: "The script stopped with an error.",
    Status.TIMEOUT: "The script was stopped: it used more time than it was given.",
    Status.OUT_OF_MEMORY: "The script was stopped: it used more memory than it was given.",
    Status.RESOURCE_LIMIT: "The script was stopped: it used more disk, files, output or processes than it was given.",
    Status.NO_SUBMISSION: "The script ended without an error, but it wrote no submission.csv.",
    Status.BAD_SUBMISSION: "The script ended without an error, but submission.csv cannot be graded.",
    Status.VALID: "The script ran and submission.csv was graded.",
    Status.LOST: "The script could not be run for a reason that is not its own.",
}


def sandbox_observation(
    status: Status,
    *,
    stdout: str = "",
    stderr: str = "",
    detail: str = "",
    raw_metric: float | None = None,
    metric: str = "",
    q: float | None = None,
    show_score: bool = True,
) -> str:
    """The observation of a real outcome.

    Parameters
    ----------
    stdout, stderr : what the script printed; the errors come last, because the cause stands on their last line.
    detail : why a submission was refused; shown for `bad_submission` only.
    raw_metric, metric : the graded score in the metric's unit, and the metric's name; shown when valid.
    q : leaderboard position in [0, 1]; shown when valid.
    show_score : whether a valid script's score and position are shown at all.
    """
    parts = [f"Status: {status.value}", _SENTENCES[status]]
    if status is Status.BAD_SUBMISSION and detail:
        parts.append(f"Reason: {detail}")
    if status is Status.VALID and show_score:
        if raw_metric is not None and math.isfinite(raw_metric):
            parts.append(f"Score: {metric or 'metric'} = {raw_metric:.4g}")
        if q is not None:
            parts.append(f"Leaderboard position: {q:.2f} (0 = worse than all, 1 = best)")
    for title, text in (("Output", stdout), ("Errors", stderr)):
        if text.strip():
            parts.append(f"{title}:\n{_tidy(text)}")
    return "\n".join(parts)


def predicted_observation(
    status: Status,
    *,
    script: str = "",
    output: str = "",
    error_class: str | None = None,
    line: int | None = None,
    raw_metric: float | None = None,
    metric: str = "",
    q: float | None = None,
    show_score: bool = True,
) -> str:
    """The observation of a predicted outcome, as the sandbox would have printed it.

    `output` is the error output that an expert wrote (for `bad_submission`, the reason of the refusal); where
    it wrote none, a traceback is made of `error_class`, `line` and that line of the `script`.
    """
    stderr = traceback_text(script, output, error_class, line) if status is Status.RUNTIME_ERROR else ""
    detail = output.strip() if status is Status.BAD_SUBMISSION else ""
    return sandbox_observation(
        status, stderr=stderr, detail=detail, raw_metric=raw_metric, metric=metric, q=q, show_score=show_score
    )


def traceback_text(script: str, output: str, error_class: str | None, line: int | None) -> str:
    """A traceback as Python prints it: frame, source line, class and message; a whole one in `output` is kept."""
    output = output.strip()
    if output.startswith("Traceback"):
        return output
    frames = ["Traceback (most recent call last):"]
    source = script.splitlines()
    if line is not None and 1 <= line <= len(source):
        frames.append(f'  File "{SCRIPT_NAME}", line {line}, in <module>')
        if text := source[line - 1].strip():
            frames.append(f"    {text}")
    name = error_class if error_class and _CLASS_NAME.fullmatch(error_class) else "Exception"
    last = output.splitlines()[-1] if output else ""
    named = last.startswith(name) or re.match(r"[\w.]+(Error|Exception|Warning|Interrupt)\b", last)
    return "\n".join([*frames, last if named else f"{name}: {last}" if last else name])


def _tidy(text: str) -> str:
    """The text without trailing blanks and with the script's own path shortened to its name."""
    return re.sub(rf'File "[^"\n]*{re.escape(SCRIPT_NAME)}"', f'File "{SCRIPT_NAME}"', text.rstrip())
