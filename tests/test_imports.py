"""What may import what, and what the command's help may cost."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "docker", "vllm", "pandas", "sklearn", "scipy", "pyarrow", "numpy")

PROBE = f"""
import json, sys
from wmrl_cli.__main__ import run
code = run(sys.argv[1:])
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def loaded_by(*arguments: str) -> tuple[int, list[str]]:
    result = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )
    code, modules = json.loads(result.stdout.splitlines()[-1])
    return code, modules


def test_the_overview_imports_nothing_heavy() -> None:
    assert loaded_by("--help") == (0, [])


def test_the_overview_comes_at_once() -> None:
    def seconds() -> float:
        """Processor time of one call: a busy machine must not fail this."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "wmrl_cli", "--help"], stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.8


def test_the_help_of_a_command_imports_no_deep_learning() -> None:
    from wmrl_cli.cli.app import COMMANDS

    for name in COMMANDS:
        code, modules = loaded_by(name, "--help")
        assert code == 0, name
        assert not {"torch", "transformers", "docker", "vllm"} & set(modules), f"{name} imports {modules}"


def test_the_mathematics_works_without_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, wmrl_cli.maths as m; "
        "[importlib.import_module(f'wmrl_cli.maths.{x.name}') for x in pkgutil.iter_modules(m.__path__)]; "
        "assert 'torch' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_rooms_import_only_from_rooms_below_them() -> None:
    check = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    result = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout
