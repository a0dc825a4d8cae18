"""wmrl doctor: what is found, what it means for the main job, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wmrl_cli import doctor
from wmrl_cli.__main__ import run as wmrl
from wmrl_cli.doctor import Finding
from wmrl_cli.sandbox.base import Capabilities
from wmrl_cli.sandbox.gpu.devices import Device
from wmrl_cli.sandbox.gpu.leases import LeaseTable
from wmrl_cli.sandbox.gpu.opening import table_path

NEEDED = Finding(part="package", name="torch", ok=True, needed=True, words="2.13.0")
BOX = Finding(part="sandbox", name="bubblewrap", ok=True, needed=False, words="memory=cgroup-v2")
UNSAFE = replace(BOX, name="unsafe-process")
OPTION = Finding(part="package", name="vllm", ok=False, needed=False, words="not installed", advice="install it")


def test_the_main_job_needs_every_needed_part_and_one_real_sandbox() -> None:
    assert doctor.main_job_runs([NEEDED, BOX, OPTION])
    assert not doctor.main_job_runs([replace(NEEDED, ok=False), BOX])
    assert not doctor.main_job_runs([NEEDED, replace(BOX, ok=False)])
    assert not doctor.main_job_runs([NEEDED, UNSAFE]), "an unsafe backend is never taken unasked"


def test_this_machine_is_described_and_every_missing_part_has_advice(tmp_path: Path) -> None:
    findings = doctor.examine(tmp_path)
    names = {found.name for found in findings}
    assert {"python", "torch", "transformers", "tiny", "docker", "bubblewrap", "accelerator", "disk"} <= names
    for found in findings:
        assert found.words
        assert found.ok or found.advice, f"{found.name} is missing, and nothing says what to do"
    torch = next(found for found in findings if found.name == "torch")
    assert torch.ok and torch.words.startswith("2.")


def test_a_sandbox_whose_limits_are_best_effort_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    soft = Capabilities(backend="bubblewrap", available=True, reason="none is ours", enforcement={"memory": "watchdog"})
    monkeypatch.setattr("wmrl_cli.sandbox.backends", lambda: [soft])
    found = next(found for found in doctor.examine(tmp_path) if found.part == "sandbox")
    assert found.ok and found.words == "memory=watchdog (best effort: none is ours)"


@pytest.mark.parametrize(("findings", "code"), [([NEEDED, BOX, OPTION], 0), ([NEEDED, replace(BOX, ok=False)], 4)])
def test_the_exit_code_says_whether_the_main_job_can_run(
    findings: list[Finding], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert wmrl(["doctor", "--json"]) == code
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["main_job_runs"] == (code == 0)
    assert [found["name"] for found in result["findings"]] == [found.name for found in findings]
    assert ("error: " in err) == (code == 4)


def test_the_table_names_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [NEEDED, BOX, OPTION])
    wmrl(["doctor"])
    out, err = capsys.readouterr()
    assert "bubblewrap" in out and "memory=cgroup-v2" in out
    assert "vllm: install it" in err


def test_a_version_outside_the_tried_range_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "4.0.0" if name == "transformers" else "2.13.0+cpu")
    found = {finding.name: finding for finding in doctor._packages()}
    assert not found["transformers"].ok and "4.0.0 (tried with >=5.17,<5.20)" in found["transformers"].words
    assert found["torch"].ok, "a local build's version counts as its release"


def test_building_the_image_shows_what_the_engine_says_and_prints_its_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from wmrl_cli.sandbox.container import image_build

    def build(on_line: Callable[[str], None], *, base: str | None) -> str:
        on_line(f"FROM {base}")
        return "sha256:0f"

    monkeypatch.setattr(image_build, "build_image", build)
    assert wmrl(["doctor", "--build-image", "--base", "mine:1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"image": image_build.TAG, "id": "sha256:0f"}
    assert err == "FROM mine:1\n"


def test_a_gpu_share_in_quarantine_is_shown_and_can_be_released(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\ncase \"$1\" in -L) echo 'GPU 0: A100 (UUID: GPU-a)';; *) echo '0, 81920';; esac\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    share = Device("GPU-a", 0, 80 << 30)
    with LeaseTable(table_path(), [share], 80 << 30, lambda uuid: 5 << 30, settle_s=0.01).lease():
        pass  # five GiB stay in use afterwards
    found = next(found for found in doctor.examine(tmp_path) if found.name == "gpu leases")
    assert not found.ok and "GPU-a with 80 GiB" in found.words and "5120 MiB" in found.words
    assert "--release-gpu GPU-a/0" in found.advice
    assert wmrl(["doctor", "--release-gpu", "GPU-a/0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"released": "GPU-a/0"}
    assert next(found for found in doctor.examine(tmp_path) if found.name == "gpu leases").ok
    assert wmrl(["doctor", "--release-gpu", "GPU-a/0"]) == 2
