"""The container engine of the environment (DOCKER_HOST): which one it is, and what it can do."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest

from wmrl_cli.errors import UnavailableError

FAULTS = (DockerException, requests.RequestException, OSError)  # what docker-py raises
_SKELETON_LABEL = "wmrl.skeleton"
_HELLO_S = 10.0  # an engine that is there answers at once
_API_S = 60
_PODMAN_WITH_GPU = (5, 4)  # older ones start the container without the GPU and say nothing


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What is known about the engine and the image."""

    client: docker.DockerClient
    kind: str  # docker | podman
    version: str
    kernel: str  # release of the kernel that it runs on; empty where it does not say
    address: str
    image_id: str
    skeleton: bool

    def gpu_request(self, uuid: str) -> DeviceRequest:
        """The request for one device. Raises UnavailableError where the engine would ignore it."""
        if self.kind != "podman":
            return DeviceRequest(device_ids=[uuid], capabilities=[["gpu"]])
        release = tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])
        if release < _PODMAN_WITH_GPU:
            raise UnavailableError(
                f"Podman {self.version} ignores requests for a GPU", "use Podman 5.4 or newer, or Docker Engine"
            )
        return DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={uuid}"])


def connect(image: str) -> Engine:
    """The engine that DOCKER_HOST names, and the image. Raises UnavailableError: nobody answers, or no such image."""
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        with contextlib.closing(docker.from_env(timeout=_HELLO_S)) as greeter:
            said = greeter.version()
        client = docker.from_env(timeout=_API_S)
        kind, version = _kind_and_version(said)
    except FAULTS as error:
        raise UnavailableError(f"no engine answers at `{address}`: {words_of(error)}") from error
    try:
        found = _image(client, image, f"{kind} {version} at `{address}`")
    except UnavailableError:
        client.close()
        raise
    return Engine(
        client=client,
        kind=kind,
        version=version,
        kernel=str(said.get("KernelVersion", "")),
        address=address,
        image_id=str(found.id),
        skeleton=_SKELETON_LABEL in (found.labels or {}),
    )


def _image(client: docker.DockerClient, name: str, engine: str) -> Any:
    """The image called `name`. Raises UnavailableError."""
    try:
        found = client.images.get(name)
    except ImageNotFound as error:
        raise UnavailableError(f"{engine} answers, but the image `{name}` is absent") from error
    except FAULTS as error:
        raise UnavailableError(f"{engine} fails: {words_of(error)}") from error
    if volumes := (found.attrs.get("Config") or {}).get("Volumes"):
        raise UnavailableError(f"the image `{name}` has volumes, which no limit bounds: {', '.join(volumes)}")
    return found


def _kind_and_version(said: dict[str, Any]) -> tuple[str, str]:
    """Podman speaks Docker's protocol, but names itself among its components."""
    for part in said.get("Components") or []:
        if "podman" in str(part.get("Name", "")).lower():
            return "podman", str(part.get("Version", "?"))
    return "docker", str(said.get("Version", "?"))


def words_of(error: BaseException) -> str:
    """The engine's own words where it answered, else the system's, in one line."""
    if isinstance(error, APIError) and error.explanation:
        return _line(error.explanation)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        if isinstance(cause, TimeoutError):
            return "it took the connection and said nothing"
        cause = cause.__cause__ or cause.__context__
    return _line(error)


def _line(words: object) -> str:
    return (str(words).splitlines() or [type(words).__name__])[0][:300]
