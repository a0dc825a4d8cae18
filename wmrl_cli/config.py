"""Configuration: frozen dataclasses; default < TOML file < flag; an unknown or mistyped key is an error."""

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
    return build_config(cls, with_flags(values, flags), where=str(path or ""))


def with_flags(values: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """`values` under the flags that are not None; a flag called `section.key` sets a section's key."""
    for name, value in flags.items():
        if value is not None:
            section, _, key = name.rpartition(".")
            values = merged(values, {section: {key: value}} if section else {key: value})
    return dict(values)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, section by section. What is no section below stays, for building to refuse it."""
    values = dict(below)
    for name, value in above.items():
        if isinstance(value, Mapping) and name in values:
            old = values[name]
            values[name] = merged(old, value) if isinstance(old, Mapping) else old
        else:
            values[name] = value
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """The top-level keys of a TOML file. Raises ConfigError where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"could not read `{path}`: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"`{path}` is not TOML: {error}") from error


def build_config(cls: type[C], values: Mapping[str, Any], *, where: str = "") -> C:
    """A `cls` from `values`; unknown keys, wrong types and values that its own checks refuse are ConfigErrors.

    A whole number becomes a float where one is wanted, a list a tuple, text a path, a mapping a nested section.
    """
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    place = f"`{where}`" if where else "the configuration"
    if unknown := sorted(values.keys() - known):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = (f"did you mean `{near[0]}`? " if near else "") + f"known keys are `{'`, `'.join(sorted(known))}`"
        raise ConfigError(f"{place} has unknown keys: `{'`, `'.join(unknown)}`", hint)
    kinds = typing.get_type_hints(cls)
    built = {}
    for name, value in values.items():
        try:
            built[name] = _fitted(value, kinds[name], where=f"{where}[{name}]")
        except TypeError as error:
            raise ConfigError(f"{place} has `{name} = {value!r}`, which should be {kind_words(kinds[name])}") from error
    try:
        return cls(**built)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


def _fitted(value: Any, kind: Any, *, where: str) -> Any:
    """The value as `kind` wants it; TypeError where it is not one."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind) and isinstance(value, Mapping):
        return build_config(typing.cast("type[Any]", kind), value, where=where)
    if origin in (typing.Union, types.UnionType):
        return _first_fit(value, options, where=where)
    if origin is typing.Literal:
        if not any(value == option and type(value) is type(option) for option in options):
            raise TypeError
        return value
    if origin in (tuple, list) and isinstance(value, list | tuple):
        inner = options[0] if options else Any
        return origin(_fitted(item, inner, where=where) for item in value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and type(value) is int:
        return float(value)
    wanted = types.NoneType if kind is None else origin or kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise TypeError
    return value


def _first_fit(value: Any, options: tuple[Any, ...], *, where: str) -> Any:
    for option in sorted(options, key=lambda option: option is not type(value)):  # an exact type before a conversion
        try:
            return _fitted(value, option, where=where)
        except TypeError:
            continue
    raise TypeError


def kind_words(kind: Any) -> str:
    """What a value of this type is, for a sentence."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return "one of `" + "`, `".join(map(str, options)) + "`"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind_words(option) for option in options if option is not types.NoneType)
    if origin in (tuple, list):
        return f"a list, each {kind_words(options[0])}" if options else "a list"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    return names.get(kind, "a section" if is_dataclass(kind) else getattr(kind, "__name__", str(kind)))
