"""Where scripts are really executed: backends behind one protocol, chosen by name and never downgraded silently."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.sandbox.base import Capabilities, Sandbox

BACKENDS = ("docker", "bubblewrap", "unsafe-process", "unsafe-fork")
_AUTO = ("docker", "bubblewrap")
INSTALL = {  # what to do where a backend cannot be used
    "docker": "start a Docker Engine and run `wmrl doctor --build-image`",
    "bubblewrap": "install it with `apt install bubblewrap`, or `pip install 'wmrl-cli[bwrap]'`",
}


def open_sandbox(
    name: str = "auto",
    *,
    python: Path | None = None,
    image: str | None = None,
    runtime: str | None = None,
    scratch: Path | None = None,
) -> Sandbox:
    """The backend `name`, checked by its preflight; `auto` takes docker if it is usable, else bubblewrap.

    `python` is the interpreter that runs the scripts (default: the running one), `image` and `runtime` are
    docker's. Raises ConfigError for an unknown name, UnavailableError where the backend cannot be used here.
    """
    if name not in ("auto", *BACKENDS):
        raise ConfigError(f"sandbox `{name}` is not known", f"known are `auto`, `{'`, `'.join(BACKENDS)}`")
    wanted = _AUTO if name == "auto" else (name,)
    tried = []
    for backend in wanted:
        sandbox, found = _try(backend, Setup(python, image, runtime, scratch))
        if sandbox is not None and found.available:
            return sandbox
        tried.append(f"{backend}: {found.reason}")
    hint = "; or ".join(INSTALL[backend] for backend in wanted if backend in INSTALL)
    raise UnavailableError(f"sandbox `{name}` cannot be used here ({'; '.join(tried)})", hint or None)


def backends() -> list[Capabilities]:
    """What each backend would really enforce here, or why it cannot be used (for `wmrl doctor`)."""
    return [_try(name, Setup())[1] for name in BACKENDS]


@dataclass(frozen=True)
class Setup:
    """What a backend is opened with; null = its default."""

    python: Path | None = None
    image: str | None = None
    runtime: str | None = None
    scratch: Path | None = None


def _try(name: str, setup: Setup) -> tuple[Sandbox | None, Capabilities]:
    """The backend and what its preflight found, or no backend and why."""
    open_backend = {
        "docker": _docker,
        "bubblewrap": _bubblewrap,
        "unsafe-process": _process,
        "unsafe-fork": _fork,
    }[name]
    sandbox = open_backend(setup)
    if isinstance(sandbox, str):
        return None, Capabilities(backend=name, available=False, reason=sandbox)
    return sandbox, sandbox.preflight()


def _docker(setup: Setup) -> Sandbox | str:
    try:
        from wmrl_cli.sandbox.container.docker import DockerSandbox
        from wmrl_cli.sandbox.container.engine import connect
    except ModuleNotFoundError:
        return "the package `docker` is not installed (`pip install 'wmrl-cli[docker]'`)"
    from wmrl_cli.sandbox.container.image_build import TAG
    from wmrl_cli.sandbox.interpreter import find_interpreter

    try:
        engine = connect(setup.image or TAG)
    except UnavailableError as error:
        return error.message
    return DockerSandbox(engine, find_interpreter(setup.python), runtime=setup.runtime, scratch=setup.scratch)


def _bubblewrap(setup: Setup) -> Sandbox | str:
    from wmrl_cli.sandbox.interpreter import find_interpreter
    from wmrl_cli.sandbox.local.bubblewrap import BubblewrapSandbox, find_bwrap

    bwrap = find_bwrap()
    if bwrap is None:
        return "`bwrap` is not installed"
    return BubblewrapSandbox(find_interpreter(setup.python), bwrap=bwrap, scratch=setup.scratch)


def _process(setup: Setup) -> Sandbox | str:
    from wmrl_cli.sandbox.interpreter import find_interpreter
    from wmrl_cli.sandbox.local.process import ProcessSandbox

    return ProcessSandbox(find_interpreter(setup.python), scratch=setup.scratch)


def _fork(setup: Setup) -> Sandbox | str:
    from wmrl_cli.sandbox.local.unsafe_fork import ForkSandbox

    return ForkSandbox(setup.scratch)
