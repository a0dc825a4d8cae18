"""The report of a run: self-contained, complete, and right in what its sentences say."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.made_runs import make_evaluations, make_run
from wmrl_cli.__main__ import run as wmrl
from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.report.run import report_page, summary, write_report
from wmrl_cli.report.run_data import read_run
from wmrl_cli.tables import ANCHOR_PAIRS, read_table


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("runs") / "made")
    make_evaluations(folder)
    return folder


class Balance(HTMLParser):
    """Every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_the_page_needs_nothing_from_outside_and_closes_its_tags(finished: Path) -> None:
    page = report_page(read_run(finished))
    assert not re.search(r"(?:src|href)=|url\(|@import|<script", page)
    balance = Balance()
    balance.feed(page)
    assert balance.open == []


def test_a_finished_run_has_every_section_and_every_figure_a_title_and_a_sentence(finished: Path) -> None:
    page = report_page(read_run(finished))
    assert headings(page) == [
        "In short",
        "Before and after, by real execution",
        "Reward by source",
        "What is predicted, what happens, and the map between",
        "Error before and after the map",
        "What a simulated group is worth",
        "Groups that teach nothing",
        "Which failures the world model sees",
        "Where the time went",
        "Is learning sound",
        "Configuration",
    ]
    assert page.count("<svg") == page.count("<h3>") == page.count("<figcaption>") >= 10
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page).lower().replace("nance", "")


def test_the_sentences_say_what_the_tables_hold(finished: Path) -> None:
    page = report_page(read_run(finished))
    pairs = read_table(ANCHOR_PAIRS, finished / "anchor_pairs.parquet").to_pandas()
    bias = (pairs["predicted"] - pairs["real"]).mean()
    assert f"Over {len(pairs)} pairs the world model is {bias:.3f} too high on average" in page
    right = (pairs["status_predicted"] == pairs["status_real"]).mean()
    assert f"The status was predicted right for {right:.0%} of {len(pairs)} trajectories" in page
    after = pairs[pairs["map_version"] > 0]
    gap = (after["calibrated"] - after["real"]).mean()
    assert f"to {gap:+.3f}." in page
    assert "The mean reward rose by 0.100, and the interval of that difference excludes zero" in page
    assert "1 trajectory was lost" in page


def test_the_cost_estimate_is_by_hand(finished: Path) -> None:
    # 12 steps: 16 scripts of 2 s on 2 slots each, plus 1 s to generate and 1 s to train; 3 s a step as it ran
    numbers = summary(read_run(finished))
    assert numbers["seconds"] == pytest.approx(36.0)
    assert numbers["seconds_if_all_executed"] == pytest.approx(12 * (16.0 + 2.0))
    assert numbers["speed_up"] == pytest.approx(6.0)
    assert (numbers["scripts_executed"], numbers["scripts_simulated"]) == (48, 192)


def test_a_run_that_executes_everything_has_no_world_model_to_speak_of(tmp_path: Path) -> None:
    page = report_page(read_run(make_run(tmp_path / "grpo", steps=3, anchors=4)))
    assert "What a simulated group is worth" not in headings(page)
    assert "Which failures the world model sees" not in headings(page)
    assert "every script was really executed" in page


def test_a_run_without_anchors_says_that_nothing_was_executed(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "wm", steps=3, anchors=0))
    page = report_page(run)
    assert summary(run)["speed_up"] is None
    assert "0 scripts were really executed and 48 were simulated." in page
    assert "Reward by source" in headings(page)


def test_a_run_of_one_step_can_be_looked_at(tmp_path: Path) -> None:
    page = report_page(read_run(make_run(tmp_path / "young", steps=1)))
    assert "No pair has been judged by a fitted map yet" in page
    assert "Warm-up is not over" in page


def test_an_evaluation_that_decides_nothing_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "flat", steps=2)
    make_evaluations(folder, gain=0.0)
    assert "includes zero: these data do not decide" in report_page(read_run(folder))


def test_writing_returns_the_numbers_and_leaves_one_file(finished: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    numbers = write_report(finished, target)
    assert numbers["report"] == str(target) and numbers["steps"] == 12
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert target.read_text().startswith("<!doctype html>")


def test_figures_are_files_of_their_own_with_their_colours(finished: Path, tmp_path: Path) -> None:
    write_report(finished, tmp_path / "r.html", tmp_path / "figures")
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert "reward-by-task.svg" in names and "seconds-by-stage.svg" in names and len(names) >= 10
    for name in names:
        root = ElementTree.parse(tmp_path / "figures" / name).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "--c1" in (root.find("{http://www.w3.org/2000/svg}style").text or "")  # type: ignore[union-attr]


def test_the_command_prints_json(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wmrl(["report", str(finished), "-o", str(tmp_path / "r.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 48


def test_what_is_no_run_is_a_sentence(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        read_run(tmp_path / "none")
    with pytest.raises(ConfigError, match="is not a run folder"):
        read_run(tmp_path)
    young = tmp_path / "young"
    young.mkdir()
    shutil.copy(finished / "config.json", young)
    with pytest.raises(ConfigError, match="no finished step yet"):
        read_run(young)
    damaged = tmp_path / "damaged"
    shutil.copytree(finished, damaged)
    (damaged / "calibration.json").write_text("{")
    with pytest.raises(TableError, match="is not JSON"):
        read_run(damaged)


def test_a_reversed_world_model_is_named(tmp_path: Path) -> None:
    from wmrl_cli.report.run_scores import _order_words

    pairs = read_run(make_run(tmp_path / "made", steps=6)).pairs
    good = int(re.search(r"(\d+)%", _order_words(pairs)).group(1))  # type: ignore[union-attr]
    pairs["predicted"] = 1 - pairs["predicted"]
    bad = int(re.search(r"(\d+)%", _order_words(pairs)).group(1))  # type: ignore[union-attr]
    assert good > 80 and np.isclose(good + bad, 100, atol=2)
