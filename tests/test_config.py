"""Configuration: precedence, strictness, conversions, sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from wmrl_cli.config import build_config, load_config, with_flags
from wmrl_cli.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    rate: float = 0.5
    steps: int = 3
    mode: Literal["fast", "exact"] = "exact"
    folder: Path = Path("here")
    limit: int | None = None
    names: tuple[str, ...] = ()
    loud: bool = False
    inner: Inner = field(default_factory=Inner)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"`steps` must be at least 1: got {self.steps}")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, "rate = 0.25\nsteps = 5\n")
    settings = load_config(Settings, path, steps=7, limit=None)
    assert (settings.rate, settings.steps, settings.mode) == (0.25, 7, "exact")


def test_values_become_what_the_field_says(tmp_path: Path) -> None:
    path = written(tmp_path, 'rate = 1\nfolder = "there"\nnames = ["a", "b"]\nlimit = 2\n[inner]\ndepth = 4\n')
    settings = load_config(Settings, path)
    assert settings == Settings(rate=1.0, folder=Path("there"), names=("a", "b"), limit=2, inner=Inner(depth=4))
    assert isinstance(settings.rate, float) and isinstance(settings.folder, Path)


def test_an_unknown_key_names_the_nearest_and_all_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown keys: `stpes`") as caught:
        build_config(Settings, {"stpes": 1}, where="x.toml")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean `steps`?") and "`rate`" in caught.value.hint
    assert caught.value.exit_code == 2


def test_an_unknown_key_in_a_section_names_the_section() -> None:
    with pytest.raises(ConfigError, match=r"`x.toml\[inner\]` has unknown keys: `width`"):
        build_config(Settings, {"inner": {"width": 1}}, where="x.toml")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": True}, "a whole number"),
        ({"steps": 1.5}, "a whole number"),
        ({"rate": "fast"}, "a number"),
        ({"rate": True}, "a number"),
        ({"loud": 1}, "true or false"),
        ({"mode": "slow"}, "one of `fast`, `exact`"),
        ({"names": "a"}, "a list, each text"),
        ({"names": [1]}, "a list, each text"),
        ({"limit": "all"}, "a whole number"),
        ({"folder": 3}, "a path"),
        ({"inner": 3}, "a section"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_words(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(Settings, values)
    assert caught.value.message.endswith(f"which should be {words}")


def test_the_dataclass_own_checks_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="`steps` must be at least 1: got 0"):
        build_config(Settings, {"steps": 0})


def test_a_missing_file_and_a_file_that_is_no_toml_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(Settings, tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(Settings, written(tmp_path, "steps ="))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(Settings, binary)


def test_a_dotted_flag_sets_a_sections_key_and_leaves_the_rest_of_it():
    below = {"sandbox": {"slots": 2, "wall_s": 30.0}, "seed": 1}
    assert with_flags(below, {"sandbox.slots": 4, "seed": None, "model": "tiny"}) == {
        "sandbox": {"slots": 4, "wall_s": 30.0},
        "seed": 1,
        "model": "tiny",
    }
    assert below == {"sandbox": {"slots": 2, "wall_s": 30.0}, "seed": 1}


def test_a_flag_does_not_paper_over_a_file_that_is_wrong():
    assert with_flags({"sandbox": 3}, {"sandbox.slots": 4}) == {"sandbox": 3}
