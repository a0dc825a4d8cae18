"""Builds the image in which docker runs scripts, from the Dockerfile that wmrl ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wmrl_cli.errors import StageError, UnavailableError

FOLDER = Path(__file__).parent / "image"
TAG = "wmrl-sandbox:latest"
_HOUR_S = 3600


def build_image(
    on_line: Callable[[str], None],
    *,
    tag: str = TAG,
    base: str | None = None,
    requirements: str | None = None,
    folder: Path = FOLDER,
) -> str:
    """Build `tag` and return the image's id; `on_line` gets each line that the engine says.

    `base` is another base image (default: the Dockerfile's), `requirements` another file of `folder`.
    Raises UnavailableError where no engine answers, StageError where a step fails.
    """
    try:
        import docker
        import requests
    except ModuleNotFoundError as error:
        raise UnavailableError("the package `docker` is not installed", "pip install 'wmrl-cli[docker]'") from error
    wanted = {"BASE": base, "REQUIREMENTS": requirements}
    try:
        client = docker.from_env(timeout=_HOUR_S)
        stream = client.api.build(
            path=str(folder),
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            network_mode="host",  # an engine without a bridge has no other way to the package index
            buildargs={name: value for name, value in wanted.items() if value},
        )
        for line in _lines(stream):
            on_line(line)
        return str(client.images.get(tag).id)
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise UnavailableError(
            f"could not build `{tag}`: {str(error).splitlines()[0]}", "is a Docker Engine running, and may you use it?"
        ) from error


def _lines(stream: Iterator[dict[str, Any]]) -> Iterator[str]:
    """What the engine says, line by line. Raises StageError with its last words where a step failed."""
    said: list[str] = []
    for part in stream:
        if "error" in part:
            raise StageError(f"a build step failed: {part['error'].strip()}", " | ".join(said[-5:]) or None)
        if "stream" in part:
            words = part["stream"]
        elif "progress" in part.get("progressDetail", {}) or not part.get("status"):
            continue
        else:
            words = f"{part['status']} {part.get('id', '')}"
        for line in words.splitlines():
            if line.strip():
                said = [*said[-20:], line.strip()]
                yield line.rstrip()
