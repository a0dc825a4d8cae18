"""Failures that a user can act on: a sentence, a next step, an exit code."""

from __future__ import annotations


class WmrlError(Exception):
    """What happened, with the value in backticks; `hint` says what to do next. Exit code 1."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)  # both in args, so that it pickles across workers
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return self.message


class StageError(WmrlError):
    """A stage could not finish its work."""


class ConfigError(WmrlError):
    """A wrong option, key or value."""

    exit_code = 2


class TableError(WmrlError):
    """An input table is missing, unreadable, of another kind or version, or holds bad values."""

    exit_code = 3


class UnavailableError(WmrlError):
    """An engine, a model, a sandbox or a needed package is not there."""

    exit_code = 4
