"""The documents say what the code does: pages made from it are current, links lead somewhere, examples parse."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from wmrl_cli.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_reference", ROOT / "scripts" / "build_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(reference: ModuleType) -> None:
    assert reference.stale() == [], "run `make reference`"


def test_the_check_notices_a_page_that_is_not_current(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    assert set(reference.stale()) == set(reference.PAGES)


def test_comments_beside_fields_reach_the_reference(reference: ModuleType) -> None:
    source = 'x = [\n    _must("turn", _int),  # from 1\n    _may("q", _float),\n]'
    assert reference.trailing_comments(source, r'_(?:must|may)\("(\w+)"') == {"turn": "from 1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"", page.read_text()):
        link = target[0] or target[1]
        if not re.match(r"[a-z]+:", link):
            assert (page.parent / link).exists(), f"{page.name} links to `{link}`"


def examples() -> Iterator[tuple[str, str]]:
    """Each `wmrl ...` line of a code block in the documents, and of the scripts, continued lines joined."""
    sources = [*PAGES, *ROOT.glob("scripts/*.sh")]
    for source in sources:
        text = source.read_text()
        blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, re.S) if source.suffix == ".md" else [text]
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                match = re.match(r"\s*(?:\$ )?(?:\"\$wmrl\"|wmrl) (.+)$", line)
                if match and "[OPTIONS]" not in line:
                    yield source.name, re.sub(r"\$\w+", "1", match.group(1))  # a shell variable stands for anything


@pytest.mark.parametrize(("source", "line"), sorted(set(examples())))
def test_examples_are_commands_that_exist(source: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0].startswith("-"):
        return
    assert words[0] in app.COMMANDS, f"{source}: `wmrl {line}`"
    if "--help" not in words:
        command = app.load(words[0])
        command.make_context(words[0], words[1:])  # raises for an unknown option, a missing argument, a wrong value


def test_every_command_is_explained_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for name in app.COMMANDS:
        assert f"wmrl {name}" in text
