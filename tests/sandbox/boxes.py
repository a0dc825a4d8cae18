"""Sandboxes for tests: each backend as it is used, and bubblewrap as a plain user when the tests run as root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from threading import Event

import pytest

import wmrl_cli
from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Capabilities, Ending, Job, RunResult, Sandbox, SubmissionState

SKELETON = "wmrl-skeleton:2"
PLAIN_UID = 62_000
SYSTEM_PYTHON = "/usr/bin/python3"
PODMAN = os.environ.get("WMRL_PODMAN_HOST", "unix:///var/lib/wmrl-podman/podman.sock")  # of scripts/ci-podman.sh


def needed(reason: str) -> None:
    """Fail where continuous integration must have the backend, skip with a reason elsewhere."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"continuous integration needs this backend: {reason}")
    pytest.skip(reason)


def open_box(kind: str, scratch: Path) -> Sandbox:
    """A backend, `bubblewrap-user` or `podman` (docker's on Podman); else the test is skipped (in CI: failed)."""
    if kind == "bubblewrap-user" and os.geteuid() == 0:
        return PlainUserBox(scratch)
    try:
        if kind == "podman":
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DOCKER_HOST", PODMAN)
                return open_sandbox("docker", image=SKELETON, scratch=scratch)
        image = SKELETON if kind == "docker" else None
        return open_sandbox(kind.removesuffix("-user"), image=image, scratch=scratch)
    except UnavailableError as error:
        needed(f"{error.message} ({error.hint})")
        raise


class PlainUserBox:
    """Bubblewrap driven by another process under an ordinary uid, without control groups, by the system's Python."""

    name = "bubblewrap"
    identity = "bubblewrap as a plain user"
    packages = ()

    def __init__(self, scratch: Path) -> None:
        if shutil.which("setpriv") is None or not Path(SYSTEM_PYTHON).exists():
            needed(f"a plain user needs setpriv and {SYSTEM_PYTHON}")
        self.scratch = scratch / "plain"
        self.scratch.mkdir()
        os.chown(self.scratch, PLAIN_UID, PLAIN_UID)
        code = scratch / "code"
        source = Path(wmrl_cli.__file__).parent
        for file in [
            *source.glob("*.py"),
            *(source / "sandbox").rglob("*.py"),
            *(source / "maths").glob("*.py"),
            *(source / "prompts").glob("*.py"),
        ]:
            target = code / "wmrl_cli" / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        shutil.copy(Path(__file__).with_name("plain_driver.py"), code)
        subprocess.run(["chmod", "-R", "a+rX", str(code)], check=True)
        self.command = [
            *("setpriv", "--reuid", str(PLAIN_UID), "--regid", str(PLAIN_UID), "--clear-groups", "--inh-caps=-all"),
            *("env", "-i", "PATH=/usr/bin:/bin", f"TMPDIR={self.scratch}", f"PYTHONPATH={code}"),
            *(SYSTEM_PYTHON, str(code / "plain_driver.py"), str(self.scratch / "runs")),
        ]
        found = self._ask({"preflight": True})
        if not found["available"]:
            needed(found["reason"])

    def _ask(self, question: dict[str, object]) -> dict[str, object]:
        answer = subprocess.run(
            self.command, input=json.dumps(question), capture_output=True, text=True, timeout=300, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def preflight(self) -> Capabilities:
        return Capabilities(**self._ask({"preflight": True}))

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        found = self._ask({"job": {**asdict(job), "data_dir": str(job.data_dir)}})
        text = found.pop("submission")
        return RunResult(
            **{
                **found,
                "ending": Ending(found["ending"]),
                "submission_state": SubmissionState(found["submission_state"]),
            },
            submission=None if text is None else bytes.fromhex(text),
        )

    def sweep(self) -> int:
        return 0


def processes_with(seed: int) -> list[int]:
    """Processes on this machine that a run with `seed` started."""
    wanted, found = f"WMRL_SEED={seed}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def run_folders(scratch: Path) -> Iterator[Path]:
    """Work folders that were left behind below `scratch`."""
    return scratch.rglob("run-*")


def groups() -> list[Path]:
    """Control groups of this process's runs."""
    from wmrl_cli.sandbox.cgroups import find_hierarchy
    from wmrl_cli.sandbox.owner import owner_name

    hierarchy = find_hierarchy().hierarchy
    folders = set(hierarchy.folders.values()) if hierarchy else set()
    return [group for folder in folders for group in folder.glob(f"wmrl-{owner_name()}-*")]
