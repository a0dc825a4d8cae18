"""Configuration: one frozen dataclass a stage; default < TOML file < flag; an unknown or mistyped key is an error."""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from wmrl_cli.errors import ConfigError

C = TypeVar("C")


def load_config(cls: type[C], path: Path | None = None, **flags: Any) -> C:
    """Defaults, then the TOML file, then the flags that are not None. Raises ConfigError."""
    values = read_toml(path) if path else {}
    return build_config(cls, {**values, **{name: value for name, value in flags.items() if value is not None}}, where=str(path or ""))


def read_toml(path: Path) -> dict[str, Any]:
    """The top-level keys of a TOML file. Raises ConfigError where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"could not read `{path}`: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"`{path}` is not TOML: {error}") from error


def build_config(cls: type[C], values: Mapping[str, Any], *, where: str = "") -> C:
    """A `cls` from `values`; unknown keys, wrong types and values that its own checks refuse are ConfigErrors."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    place = f"`{where}`" if where else "the configuration"
    if unknown := sorted(values.keys() - known):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = (f"did you mean `{near[0]}`? " if near else "") + f"known keys are `{'`, `'.join(sorted(known))}`"
        raise ConfigError(f"{place} has unknown keys: `{'`, `'.join(unknown)}`", hint)
    kinds = typing.get_type_hints(cls)
    values = {
        name: build_config(kinds[name], value, where=f"{where}[{name}]") if _is_section(kinds[name], value) else value
        for name, value in values.items()
    }
    for name, value in values.items():
        if not _fits(value, kinds[name]):
            raise ConfigError(f"{place} has `{name} = {value!r}`, which should be {_words(kinds[name])}")
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


def _is_section(kind: Any, value: Any) -> bool:
    return is_dataclass(kind) and isinstance(value, Mapping)


def _fits(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(kind))
    if origin is typing.Literal:
        return value in typing.get_args(kind)
    if origin in (tuple, list):
        return isinstance(value, list | tuple)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | Path)
    if kind is type(None):
        return value is None
    return isinstance(value, origin or kind)


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of `" + "`, `".join(map(str, typing.get_args(kind))) + "`"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(kind, str(kind))
