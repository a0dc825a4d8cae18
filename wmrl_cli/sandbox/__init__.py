"""Where scripts are really executed: backends behind one protocol, chosen by name and never downgraded silently."""

from __future__ import annotations

from pathlib import Path

from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.sandbox.base import Capabilities, Sandbox

BACKENDS = ("docker", "bubblewrap", "unsafe-process", "unsafe-fork")
_AUTO = ("docker", "bubblewrap")
_INSTALL = {
    "docker": "start a Docker Engine and run `wmrl doctor --build-image`",
    "bubblewrap": "install it with `apt install bubblewrap`, or `pip install 'wmrl-cli[bwrap]'`",
}


def open_sandbox(name: str = "auto", *, python: Path | None = None, scratch: Path | None = None) -> Sandbox:
    """The backend `name`, checked by its preflight; `auto` takes docker if it is usable, else bubblewrap.

    `python` is the interpreter that runs the scripts (default: the running one). Raises ConfigError for an
    unknown name, UnavailableError where the backend cannot be used here.
    """
    if name not in ("auto", *BACKENDS):
        raise ConfigError(f"sandbox `{name}` is not known", f"known are `auto`, `{'`, `'.join(BACKENDS)}`")
    tried = []
    for backend in _AUTO if name == "auto" else (name,):
        sandbox, found = _try(backend, python, scratch)
        if sandbox is not None and found.available:
            return sandbox
        tried.append(f"{backend}: {found.reason}")
    hint = "; or ".join(_INSTALL[b] for b in (_AUTO if name == "auto" else (name,)) if b in _INSTALL)
    raise UnavailableError(f"sandbox `{name}` cannot be used here ({'; '.join(tried)})", hint or None)


def backends(*, python: Path | None = None, scratch: Path | None = None) -> list[Capabilities]:
    """What each backend would really enforce here, or why it cannot be used (for `wmrl doctor`)."""
    return [_try(name, python, scratch)[1] for name in BACKENDS]


def _try(name: str, python: Path | None, scratch: Path | None) -> tuple[Sandbox | None, Capabilities]:
    from wmrl_cli.sandbox.interpreter import find_interpreter

    if name == "docker":
        return None, Capabilities(backend=name, available=False, reason="this backend is not built yet")
    if name == "unsafe-fork":
        from wmrl_cli.sandbox.forkserver import ForkSandbox

        fork = ForkSandbox(scratch)
        return fork, fork.preflight()
    interpreter = find_interpreter(python)
    if name == "unsafe-process":
        from wmrl_cli.sandbox.process import ProcessSandbox

        process = ProcessSandbox(interpreter, scratch=scratch)
        return process, process.preflight()
    from wmrl_cli.sandbox.bubblewrap import BubblewrapSandbox, find_bwrap

    bwrap = find_bwrap()
    if bwrap is None:
        return None, Capabilities(backend=name, available=False, reason="`bwrap` is not installed")
    box = BubblewrapSandbox(interpreter, bwrap=bwrap, scratch=scratch)
    return box, box.preflight()
