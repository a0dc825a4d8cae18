"""Packages that a script can import, read from the environment that will run it and never typed by hand."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from wmrl_cli.errors import UnavailableError

LISTING = (
    "import importlib.metadata as m, json;"
    "print(json.dumps(sorted({(d.metadata['Name'] or '', d.version or '') for d in m.distributions()})))"
)
# The tools that made the environment, and we ourselves: no script needs to know of them.
_OURS = frozenset({"pip", "setuptools", "wheel", "wmrl-cli"})


def installed_packages(python: str | Path | None = None) -> tuple[str, ...]:
    """The environment's packages as `name==version`, sorted; of `python` where given, else of this interpreter.

    Raises UnavailableError where that interpreter cannot be run.
    """
    if python is None or Path(python) == Path(sys.executable):
        return _own_packages()
    try:
        command = [str(python), "-I", "-c", LISTING]
        listing = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return read_listing(listing.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnavailableError(
            f"could not list the packages of `{python}`: {error}", "name the `python` of a working environment"
        ) from error


def read_listing(printed: str) -> tuple[str, ...]:
    """The packages that LISTING printed. Raises ValueError where it printed something else."""
    return package_lines(tuple(pair) for pair in json.loads(printed))


@functools.cache
def _own_packages() -> tuple[str, ...]:
    return package_lines((d.metadata["Name"] or "", d.version or "") for d in metadata.distributions())


def package_lines(pairs: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """`name==version` for each (name, version), lower-case names, sorted, without nameless ones and our own tools."""
    named = {str(name).lower(): str(version) for name, version in pairs if name}
    return tuple(f"{name}=={version}" for name, version in sorted(named.items()) if name not in _OURS)
