"""A container engine on a unix socket that answers as a test wants: one container, no processes."""

from __future__ import annotations

import contextlib
import json
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import docker

from wmrl_cli.sandbox.container.docker import DockerSandbox
from wmrl_cli.sandbox.container.engine import Engine
from wmrl_cli.sandbox.interpreter import find_interpreter


@dataclass
class Behaviour:
    """`faults`: step -> HTTP status, or 0 to drop the connection; `state`: what `inspect` says after the start."""

    faults: dict[str, int] = field(default_factory=dict)
    state: dict[str, Any] = field(
        default_factory=lambda: {
            "Running": False,
            "Status": "exited",
            "ExitCode": 0,
            "OOMKilled": False,
            "Error": "",
            "Pid": 0,
        }
    )
    output: bytes = b"hello\n"
    remove_s: float = 0.0
    dies_of_kill: bool = False
    drops: dict[str, Any] = field(default_factory=dict)  # limits that it keeps otherwise than asked
    host_config: dict[str, Any] = field(default_factory=dict)
    removed: int = 0
    asked: list[str] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def address_string(self) -> str:
        return "test"

    def log_message(self, *arguments: object) -> None:
        pass

    def _step(self) -> str:
        path = self.path.partition("?")[0]
        for step, end in (
            ("version", "/version"),
            ("create", "/create"),
            ("start", "/start"),
            ("attach", "/attach"),
            ("kill", "/kill"),
            ("image", "/images/stub/json"),
            ("list", "/containers/json"),
        ):
            if path.endswith(end):
                return step
        return "remove" if self.command == "DELETE" else "inspect"

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        step, behaviour = self._step(), self.behaviour
        if step == "create":
            behaviour.host_config = {**json.loads(body)["HostConfig"], **behaviour.drops}
        behaviour.asked.append(step)
        fault = behaviour.faults.get(step)
        if fault == 0:
            self.close_connection = True
            return
        if fault is not None:
            self._answer(fault, {"message": "No such image: stub" if fault == 404 else f"{step} is broken"})
        elif step == "attach":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "tcp")
            self.end_headers()
            self.wfile.flush()
            behaviour.started.wait(5)
            self.wfile.write(struct.pack(">BxxxI", 1, len(behaviour.output)) + behaviour.output)
            self.close_connection = True
        elif step == "remove":
            time.sleep(behaviour.remove_s)
            behaviour.removed += 1
            self._answer(204)
        elif step in ("start", "kill"):
            behaviour.started.set()
            if step == "kill" and behaviour.dies_of_kill:
                behaviour.state |= {"Running": False, "Status": "exited", "ExitCode": 137}
            self._answer(204)
        else:
            self._answer(200, self._document(step))

    def _document(self, step: str) -> Any:
        match step:
            case "version":
                return {
                    "ApiVersion": "1.41",
                    "MinAPIVersion": "1.12",
                    "Version": "1.0",
                    "Components": [{"Name": "Engine"}],
                }
            case "create":
                return {"Id": "c1", "Warnings": []}
            case "image":
                return {"Id": "sha256:" + "0" * 64, "Config": {"Labels": {}}}
            case "list":
                return []
            case _:
                return {
                    "Id": "c1",
                    "State": self.behaviour.state,
                    "Config": {"Labels": {}, "Image": "stub"},
                    "Image": "stub",
                    "Name": "c1",
                    "HostConfig": self.behaviour.host_config,
                }

    def _answer(self, status: int, document: Any = None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_HEAD = _handle


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a dropped connection is what some tests want


def serve(folder: Path, behaviour: Behaviour) -> tuple[Server, str]:
    """A running stub and its address."""
    path = folder / "engine.sock"
    server = Server(str(path), type("Bound", (Handler,), {"behaviour": behaviour}))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server, f"unix://{path}"


@contextlib.contextmanager
def stubbed(
    folder: Path, behaviour: Behaviour, *, kind: str = "docker", version: str = "1.0"
) -> Iterator[DockerSandbox]:
    """The docker backend on a running stub."""
    server, address = serve(folder, behaviour)
    client = docker.DockerClient(base_url=address, version="1.41", timeout=5)
    engine = Engine(
        client=client, kind=kind, version=version, kernel="", address=address, image_id="stub", skeleton=False
    )
    try:
        yield DockerSandbox(engine, find_interpreter(), scratch=folder / "scratch")
    finally:
        client.close()
        server.shutdown()
        server.server_close()
