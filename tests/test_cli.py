"""The command as a user meets it: the real entry point, its exit codes, its streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wmrl_cli import __main__ as entry
from wmrl_cli import __version__
from wmrl_cli.cli import app, options
from wmrl_cli.errors import ConfigError, StageError, TableError, UnavailableError, WmrlError


def wmrl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "wmrl_cli", *arguments], capture_output=True, text=True)


def test_without_arguments_the_overview_is_shown() -> None:
    result = wmrl()
    assert result.returncode == 0 and result.stderr == ""
    for name in app.COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_the_version_is_the_packages() -> None:
    assert wmrl("--version").stdout == f"wmrl {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (["simulat"], "No such command 'simulat'. Did you mean 'simulate'?", "`wmrl --help`"),
        (["--loud"], "No such option: --loud", "`wmrl --help`"),
        (["train", "--stepz", "3"], "No such option: --stepz", "`wmrl train --help`"),
        (["train", "--steps", "none"], "Invalid value for '--steps'", "`wmrl train --help`"),
        (["train", "--anchor-frac", "1.5"], "a fraction lies in [0, 1]: got `1.5`", "0.1 means"),
        (["report"], "Missing argument 'RUN'", "`wmrl report --help`"),
    ],
)
def test_wrong_usage_is_a_sentence_a_hint_and_code_2(arguments: list[str], words: str, hint: str) -> None:
    result = wmrl(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    assert words in result.stderr and "\n\nhint: " in result.stderr and hint in result.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (WmrlError("a"), 1),
        (StageError("a"), 1),
        (ConfigError("a"), 2),
        (TableError("a", "b"), 3),
        (UnavailableError("a"), 4),
        (KeyboardInterrupt(), 130),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 4),
        (ModuleNotFoundError("No module named 'vllm.engine'", name="vllm.engine"), 4),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise raised

    monkeypatch.setattr(app, "load", lambda name: failing(fail))
    assert entry.run(["doctor"]) == code
    assert capsys.readouterr().err.startswith("error: ")


def failing(function: object) -> object:
    import typer

    single = typer.Typer(add_completion=False)
    single.command("doctor")(lambda: function())  # type: ignore[operator]
    return typer.main.get_command(single)


def test_a_programming_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(app, "load", lambda name: failing(fail))
    with pytest.raises(RuntimeError, match="bug"):
        entry.run(["doctor"])


def test_a_missing_package_of_our_own_is_a_programming_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'wmrl_cli.nothing'", name="wmrl_cli.nothing")

    monkeypatch.setattr(app, "load", lambda name: failing(fail))
    with pytest.raises(ModuleNotFoundError):
        entry.run(["doctor"])


def test_no_summary_in_the_overview_is_cut_at_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert entry.run(["--help"]) == 0
    assert "..." not in capsys.readouterr().out.split("Commands:")[1]


def test_every_command_has_help_with_a_summary_and_an_example() -> None:
    for name, command in app.COMMANDS.items():
        text = (app.load(name).help or "").replace("\b", "")
        first, _, rest = text.partition("\n\n")
        assert first == command.summary, f"the overview and `wmrl {name} --help` say different things"
        assert f"    wmrl {name}" in rest, f"`wmrl {name} --help` has no example"


def test_every_option_says_what_it_is_for() -> None:
    for name in app.COMMANDS:
        for parameter in app.load(name).params:
            if parameter.param_type_name == "option":
                assert parameter.help, f"`wmrl {name}` does not explain {parameter.opts}"


def test_an_example_is_not_wrapped() -> None:
    text = app.keep_examples("Do it\n\nExample:\n\n    wmrl do it\n\nMore\n")
    assert text == "Do it\n\nExample:\n\n\b\n    wmrl do it\n\nMore\n"


def test_shards_are_parsed_strictly() -> None:
    assert options.parse_shard(None) == (0, 1)
    assert options.parse_shard("3/4") == (3, 4)
    for text in ("4/4", "1", "a/b", "-1/2", "1/0", "1/"):
        with pytest.raises(ConfigError, match="is not `i/n`"):
            options.parse_shard(text)


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    command = f"{sys.executable} -m wmrl_cli --help | head -n 0"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in result.stderr


def test_ctrl_c_is_a_sentence_and_130(tmp_path: Path) -> None:
    code = (
        "import sys, time, signal, os\n"
        "from wmrl_cli import __main__ as m\nfrom wmrl_cli.cli import app\nimport typer\n"
        "single = typer.Typer(add_completion=False)\n"
        "@single.command('doctor')\n"
        "def wait():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "app.load = lambda name: typer.main.get_command(single)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv = ['wmrl', 'doctor']\nm.main()\n"
    )
    for sent, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            os.kill(child.pid, sent)
            _, err = child.communicate(timeout=30)
        assert child.returncode == expected
        assert "Traceback" not in err
        assert ("interrupted" in err) == (sent == signal.SIGINT)
