"""What a person sees: results on stdout, all else on stderr."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from wmrl_cli import console


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    yield
    console.settings.quiet = False


def test_a_result_goes_to_stdout_and_a_note_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.note("about to begin")
    console.emit({"rows": 3}, as_json=False)
    out, err = capsys.readouterr()
    assert out.split() == ["rows", "3"]
    assert err == "about to begin\n"


def test_json_is_one_object_without_nan_or_paths(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "path": Path("a/b"),
        "nan": float("nan"),
        "array": np.array([1.5, np.inf]),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "nested": {"rows": [(1, None)]},
    }
    console.emit(value, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "path": "a/b",
        "nan": None,
        "array": [1.5, None],
        "count": 3,
        "flag": True,
        "nested": {"rows": [[1, None]]},
    }


def test_long_lines_of_a_result_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit({"path": "x" * 300}, as_json=False)
    assert "x" * 300 in capsys.readouterr().out


def test_quiet_silences_notes_and_progress_but_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    console.settings.quiet = True
    console.note("hidden")
    with console.progress("work", total=2) as advance:
        advance(2)
    console.warn("look here")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "warning: look here\n")


def test_an_error_is_a_sentence_a_blank_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    console.error("`a[b]` is missing", "try `c[d]`")
    assert capsys.readouterr().err == "error: `a[b]` is missing\n\nhint: try `c[d]`\n"


def test_without_a_terminal_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 2.0, 6.0, 7.0, 8.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.progress("score", total=100, unit="scripts") as advance:
        advance(40)  # an earlier run had done these
        advance(45)
        advance(60, "task a")
        advance(70)
        advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "score: 60/100 scripts, 6 s, about 12 s left, task a",
        "score: 100/100 scripts, 8 s",
    ]


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=screen, force_terminal=True, width=120))
    with console.progress("score", total=10, unit="scripts") as advance:
        advance(10)
    assert "10/10" in screen.getvalue() and "scripts" in screen.getvalue()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = io.StringIO()
    monkeypatch.setattr(console, "stderr", Console(file=screen, force_terminal=True))
    console.error("wrong")
    assert "\x1b[31m" not in screen.getvalue() and "31m" not in screen.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (float("nan"), "-"), (True, "yes"), (0.12345, "0.123"), (1234.5, "1,234.5"), (7, "7"), ("x", "x")],
)
def test_cells_are_short_and_say_what_is_not_known(value: object, text: str) -> None:
    assert console.number(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_durations_read_at_a_glance(seconds: float, text: str) -> None:
    assert console.duration(seconds) == text


def test_markup_in_a_table_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit({}, as_json=False, render=lambda: console.table(["name", "n"], [["[red]x", 1]]))
    assert "[red]x" in capsys.readouterr().out
