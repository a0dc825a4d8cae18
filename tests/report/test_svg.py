import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.report.frame import extent, log_ticks, ticks, words
from wmrl_cli.report.svg import (
    MOST_POINTS,
    Bars,
    Line,
    Points,
    Section,
    bar_chart,
    figure,
    line_chart,
    page,
    paragraph,
    scatter_chart,
    table,
)

SAYS = {"title": "A & B", "description": "what <it> shows", "x_label": "step", "y_label": "reward"}
number = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan))
NAME = "{http://www.w3.org/2000/svg}"


def parse(chart):
    assert "nan" not in chart and "inf" not in chart
    return ElementTree.fromstring(chart)


@given(st.lists(st.tuples(number, number), max_size=20), st.booleans())
def test_any_numbers_give_a_well_formed_line_chart(points, step):
    x, y = [a for a, _ in points], [b for _, b in points]
    root = parse(line_chart([Line(x=x, y=y, low=y, high=y, step=step)], **SAYS))
    assert root.find(f"{NAME}title").text == "A & B" and root.find(f"{NAME}desc").text == "what <it> shows"


@given(st.lists(st.tuples(number, number), max_size=20))
def test_any_numbers_give_well_formed_scatter_and_bars(points):
    x, y = [a for a, _ in points], [b for _, b in points]
    parse(scatter_chart([Points(x=x, y=y, low=y, high=y)], diagonal=True, **SAYS))
    parse(bar_chart(["label"] * len(x), [Bars(values=y)], title="t", description="d", x_label="x"))


def test_a_line_goes_through_its_points_in_the_plots_units():
    root = parse(line_chart([Line(x=[0, 10], y=[0, 1])], y_range=(0, 1), **SAYS))
    path = root.find(f"{NAME}path").get("d")
    assert re.fullmatch(r"M62.0 292.0L622.0 12.0", path)


def test_a_step_line_goes_across_before_it_goes_up():
    path = (
        parse(line_chart([Line(x=[0, 10], y=[0, 1], step=True)], y_range=(0, 1), **SAYS)).find(f"{NAME}path").get("d")
    )
    assert path == "M62.0 292.0H622.0V12.0"


def test_an_unknown_value_is_a_gap():
    root = parse(line_chart([Line(x=[0, 1, 2, 3, 4], y=[0, 1, math.nan, 1, 0])], **SAYS))
    assert len(root.findall(f"{NAME}path")) == 2


def test_a_long_line_is_thinned_and_keeps_its_extremes():
    y = [0.0] * 100_000
    y[54_321] = 1.0
    chart = line_chart([Line(x=range(100_000), y=y)], y_range=(0, 1), **SAYS)
    path = parse(chart).find(f"{NAME}path").get("d")
    assert path.count("L") < MOST_POINTS and " 12.0" in path


def test_a_log_axis_spreads_fractions_evenly():
    root = parse(line_chart([Line(x=[0.01, 0.1, 1], y=[0, 1, 2], markers=True)], x_log=True, **SAYS))
    centres = [float(dot.get("cx")) for dot in root.findall(f"{NAME}circle")]
    assert centres == pytest.approx([62, 342, 622])


def test_a_bar_below_zero_lies_left_of_the_zero_line():
    root = parse(
        bar_chart(["bias"], [Bars(values=[-1.0], low=[-1.5], high=[0.5])], title="t", description="d", x_label="x")
    )
    bar = root.find(f"{NAME}rect")
    zero = [line for line in root.findall(f"{NAME}line") if line.get("stroke") == "var(--ink)"][-1]
    assert float(bar.get("x")) + float(bar.get("width")) == pytest.approx(float(zero.get("x1")), abs=0.11)


def test_several_series_are_named_and_told_apart_without_colour():
    root = parse(line_chart([Line(x=[0, 1], y=[0, 1], name="raw"), Line(x=[0, 1], y=[1, 0], name="mapped")], **SAYS))
    assert {"raw", "mapped"} <= {node.text for node in root.findall(f"{NAME}text")}
    dashes = [path.get("stroke-dasharray") for path in root.findall(f"{NAME}path")]
    assert dashes[0] != dashes[1]


@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e5))
def test_ticks_are_round_and_inside(low, width):
    found = ticks(low, low + width)
    assert 2 <= len(found) <= 13
    assert all(low - 1e-6 * width <= tick <= low + width + 1e-6 * width for tick in found)


def test_ticks_by_hand():
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert log_ticks(0.01, 0.5) == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
    assert [words(v) for v in (0.0, 0.12345, 12345.6, math.nan, 1e-9)] == ["0", "0.123", "12,346", "-", "1.0e-09"]
    assert extent([math.nan]) == (0.0, 1.0) and extent([2.0, 3.0], zero=True) == (0.0, 3.0)


def test_the_page_is_self_contained_and_escapes_what_it_is_given():
    chart = line_chart([Line(x=[0, 1], y=[0, 1])], **SAYS)
    html = page(
        "A <run>", [Section(heading="One", body=[figure(chart, "It <rises>."), paragraph("x & y")])], lead="Hi."
    )
    assert "A &lt;run&gt;" in html and "It &lt;rises&gt;." in html and "x &amp; y" in html
    assert "prefers-color-scheme:dark" in html
    outside = re.findall(r"""(?:src|href)=|@import|url\(""", html)
    assert outside == []


def test_a_table_shows_null_as_a_dash_and_text_as_text():
    html = table(["status", "pairs", "share"], [["<valid>", 1200, 0.12345], ["lost", None, math.nan]], shade=True)
    assert "&lt;valid&gt;" in html and "1,200" in html and "0.123" in html and html.count(">-<") == 2
