"""Line, bar and scatter charts as SVG text, and the self-contained page that holds them.

The figures' colours are CSS variables that `page` sets, for light and dark. Every chart takes a title and a
description for screen readers. NaN is a gap, never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from wmrl_cli.report.frame import (
    CHARACTER,
    HEIGHT,
    WIDTH,
    Scale,
    axes,
    colour,
    dash,
    extent,
    legend,
    rule,
    svg,
    text,
    words,
)

MOST_POINTS = 800  # a line's; above, each bucket keeps its first, smallest, largest and last


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve; `low` and `high` draw a band around it."""

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    step: bool = False  # constant from each point to the next
    markers: bool = False


@dataclass(frozen=True, kw_only=True)
class Points:
    """One cloud of points; `sizes` are areas relative to each other, `low` and `high` vertical whiskers."""

    x: Sequence[float]
    y: Sequence[float]
    name: str = ""
    sizes: Sequence[float] | None = None
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One bar a label; `low` and `high` are whiskers."""

    values: Sequence[float]
    name: str = ""
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands below it: pieces of HTML from `paragraph`, `figure`, `table`."""

    heading: str
    body: Sequence[str]


Range = tuple[float, float]


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    x_range: Range | None = None,
    y_range: Range | None = None,
    x_log: bool = False,
    diagonal: bool = False,
) -> str:
    """Curves over a common axis as an <svg>; `diagonal` adds the line y = x."""
    keys, top = legend([line.name for line in lines], left=62, width=WIDTH - 80, lines=True)
    heights = [v for line in lines for values in (line.y, line.low, line.high) if values is not None for v in values]
    x, y = _scales([v for line in lines for v in line.x], heights, x_range, y_range, top, x_log)
    body = [keys, axes(x, y, x_label=x_label, y_label=y_label), _diagonal(x, y) if diagonal else ""]
    for index, line in enumerate(lines):
        body.append(_band(line, x, y, index))
        for run in _runs(line.x, line.y):
            path = _path(run, x, y, step=line.step)
            stroke = f'stroke="{colour(index)}" stroke-width="2"{dash(index)}'
            body.append(f'<path d="{path}" fill="none" {stroke}/>')
            if line.markers or len(run) == 1:
                body += [_dot(x(a), y(b), 3.5, index, f"{words(a)}, {words(b)}") for a, b in run]
    return svg("".join(body), title=title, description=description)


def scatter_chart(
    clouds: Sequence[Points],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    x_range: Range | None = None,
    y_range: Range | None = None,
    diagonal: bool = False,
) -> str:
    """Points over two axes as an <svg>; `diagonal` adds the line y = x."""
    keys, top = legend([cloud.name for cloud in clouds], left=62, width=WIDTH - 80, lines=False)
    heights = [v for c in clouds for values in (c.y, c.low, c.high) if values is not None for v in values]
    x, y = _scales([v for cloud in clouds for v in cloud.x], heights, x_range, y_range, top, False)
    body = [keys, axes(x, y, x_label=x_label, y_label=y_label), _diagonal(x, y) if diagonal else ""]
    for index, cloud in enumerate(clouds):
        largest = max(cloud.sizes, default=1.0) if cloud.sizes is not None else 1.0
        for i, (a, b) in enumerate(zip(cloud.x, cloud.y, strict=True)):
            if not (math.isfinite(a) and math.isfinite(b)):
                continue
            if cloud.low is not None and cloud.high is not None and math.isfinite(cloud.low[i] + cloud.high[i]):
                body.append(rule(x(a), y(cloud.low[i]), x(a), y(cloud.high[i]), stroke=colour(index)))
            radius = 4.0 if cloud.sizes is None else 2.5 + 9.5 * math.sqrt(cloud.sizes[i] / largest)
            note = "" if cloud.sizes is None else f" ({words(cloud.sizes[i])})"
            body.append(_dot(x(a), y(b), radius, index, f"{words(a)}, {words(b)}{note}", opacity=0.65))
    return svg("".join(body), title=title, description=description)


def bar_chart(
    labels: Sequence[str],
    bars: Sequence[Bars],
    *,
    title: str,
    description: str,
    x_label: str,
    x_range: Range | None = None,
) -> str:
    """Horizontal bars from zero as an <svg>: one row a label, one bar a series in it."""
    left = min(240.0, 24 + CHARACTER * max((len(label) for label in labels), default=0))
    keys, top = legend([series.name for series in bars], left=left, width=WIDTH - left - 16, lines=False)
    thick = 14.0
    row = thick * len(bars) + 10
    bottom = top + row * max(1, len(labels))
    values = [v for s in bars for column in (s.values, s.low, s.high) if column is not None for v in column]
    low, high = x_range or extent(values, zero=True)
    x = Scale(low, high, left, WIDTH - 56)
    y = Scale(0.0, 1.0, bottom, bottom)
    body = [keys]
    for tick in x.ticks:
        body += [rule(x(tick), top, x(tick), bottom), text(x(tick), bottom + 18, words(tick))]
    for i, label in enumerate(labels):
        middle = top + row * i + row / 2
        body.append(text(left - 8, middle + 4, _cut(label, left), anchor="end"))
        for index, series in enumerate(bars):
            body.append(_bar(series, i, x, top + row * i + 5 + thick * index, thick, index))
    zero = min(max(0.0, low), high)
    body += [
        rule(x(zero), top, x(zero), bottom, stroke="var(--ink)"),
        text((x.start + x.end) / 2, bottom + 37, x_label),
    ]
    return svg("".join(body), title=title, description=description, height=y.start + 48)


def page(title: str, sections: Iterable[Section], *, lead: str = "") -> str:
    """A whole HTML page, readable without network: `lead` is a first paragraph in plain text."""
    body = [f"<h1>{escape(title)}</h1>", paragraph(lead, kind="lead") if lead else ""]
    for section in sections:
        body.append(f"<section><h2>{escape(section.heading)}</h2>{''.join(section.body)}</section>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def standalone(chart: str) -> str:
    """A chart as the text of an SVG file of its own, with the page's colours for light and dark."""
    head, rest = chart.split(">", 1)
    ground = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return f"{head}><style>{_STYLE}</style>{ground}{rest}\n"


def paragraph(content: str, *, kind: str = "") -> str:
    """Plain text as a paragraph; `kind` is a CSS class (`lead`, `warning`)."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(content)}</p>"


def figure(chart: str, caption: str) -> str:
    """A chart with the sentence that says what it shows for these data."""
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, shade: bool = False) -> str:
    """An HTML table: numbers to the right, null as a dash; `shade` tints number cells by their share of the largest."""
    numbers = [float(c) for row in rows for c in row if isinstance(c, int | float) and math.isfinite(c)]
    largest = max(numbers, default=0.0) if shade else 0.0
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = ["<tr>" + "".join(_cell(cell, largest) for cell in row) + "</tr>" for row in rows]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(cell: object, largest: float) -> str:
    if not isinstance(cell, int | float) or isinstance(cell, bool):
        return f"<td>{escape('-' if cell is None else str(cell))}</td>"
    tint = f' style="--share:{cell / largest:.3f}" data-tint' if largest > 0 and math.isfinite(cell) else ""
    shown = f"{cell:,}" if isinstance(cell, int) else words(cell)
    return f'<td class="number"{tint}>{shown}</td>'


def _scales(
    xs: Sequence[float], ys: Sequence[float], x_range: Range | None, y_range: Range | None, top: float, log: bool
) -> tuple[Scale, Scale]:
    if log:
        xs = [v for v in xs if v > 0]
    x_low, x_high = x_range or extent(xs)
    if log and x_low <= 0:
        x_low = x_high / 100
    low, high = y_range or extent(ys)
    room = 0.0 if y_range else 0.04 * (high - low)
    bottom = low if low >= 0 > low - room else low - room  # zero stays the ground where nothing is below it
    return Scale(x_low, x_high, 62, WIDTH - 18, log), Scale(bottom, high + room, HEIGHT - 48, top)


def _diagonal(x: Scale, y: Scale) -> str:
    low, high = max(x.low, y.low), min(x.high, y.high)
    if low >= high:
        return ""
    return rule(x(low), y(low), x(high), y(high), stroke="var(--ink)", extra=' stroke-dasharray="3 4" opacity="0.6"')


def _runs(x: Sequence[float], y: Sequence[float]) -> list[list[tuple[float, float]]]:
    """The curve cut where a value is not finite, each piece thinned."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in zip(x, y, strict=True):
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [_thin(run) for run in runs if run]


def _thin(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(run) <= MOST_POINTS:
        return run
    size = math.ceil(len(run) / (MOST_POINTS // 4))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(run), size):
        bucket = range(start, min(start + size, len(run)))
        smallest, largest = min(bucket, key=lambda i: run[i][1]), max(bucket, key=lambda i: run[i][1])
        kept += [run[i] for i in sorted({bucket[0], smallest, largest, bucket[-1]})]
    return kept


def _path(run: Sequence[tuple[float, float]], x: Scale, y: Scale, *, step: bool) -> str:
    parts = [f"M{x(run[0][0]):.1f} {y(run[0][1]):.1f}"]
    for a, b in run[1:]:
        parts.append(f"H{x(a):.1f}V{y(b):.1f}" if step else f"L{x(a):.1f} {y(b):.1f}")
    return "".join(parts)


def _band(line: Line, x: Scale, y: Scale, index: int) -> str:
    if line.low is None or line.high is None:
        return ""
    lower = dict(zip(line.x, line.low, strict=True))
    parts = []
    for run in _runs(
        line.x, [h if math.isfinite(lower[a]) else math.nan for a, h in zip(line.x, line.high, strict=True)]
    ):
        there = [f"{x(a):.1f},{y(b):.1f}" for a, b in run]
        back = [f"{x(a):.1f},{y(lower[a]):.1f}" for a, _ in reversed(run)]
        parts.append(f'<polygon points="{" ".join(there + back)}" fill="{colour(index)}" opacity="0.16"/>')
    return "".join(parts)


def _dot(at_x: float, at_y: float, radius: float, index: int, note: str, *, opacity: float = 1.0) -> str:
    return (
        f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="{radius:.1f}" fill="{colour(index)}" opacity="{opacity}">'
        f"<title>{escape(note)}</title></circle>"
    )


def _bar(series: Bars, i: int, x: Scale, top: float, thick: float, index: int) -> str:
    value = series.values[i]
    if not math.isfinite(value):
        return text(x(min(max(0.0, x.low), x.high)) + 4, top + thick - 3, "-", anchor="start")
    zero, end = x(min(max(0.0, x.low), x.high)), x(value)
    shape = f'x="{min(zero, end):.1f}" y="{top:.1f}" width="{abs(end - zero):.1f}" height="{thick - 3:.1f}"'
    parts = [f'<rect {shape} fill="{colour(index)}"><title>{words(value)}</title></rect>']
    right = end
    if series.low is not None and series.high is not None and math.isfinite(series.low[i] + series.high[i]):
        middle = top + (thick - 3) / 2
        parts.append(rule(x(series.low[i]), middle, x(series.high[i]), middle, stroke="var(--ink)"))
        right = max(end, x(series.high[i]))
    parts.append(text(max(right, zero) + 5, top + thick - 4, words(value), anchor="start", extra=' class="small"'))
    return "".join(parts)


def _cut(label: str, room: float) -> str:
    most = int((room - 20) / CHARACTER)
    return label if len(label) <= most else label[: most - 1] + "…"


_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1d2530;--soft:#5a6676;--grid:#dde2e8;
--c1:#0b62a4;--c2:#c2410c;--c3:#1b7f5c;--c4:#7a3fa0;--c5:#8a6d00;--c6:#667085;--warn:#9a3412}
@media(prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e4e9ef;--soft:#9aa7b5;--grid:#313a44;
--c1:#6cb2f0;--c2:#ff9f68;--c3:#5fd3a6;--c4:#c99af0;--c5:#e3c34a;--c6:#98a2b3;--warn:#fdba74}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:46rem;margin:0 auto;padding:2rem 1rem 4rem}h1{line-height:1.2}h2{margin-top:2.5rem}
figure{margin:1.5rem 0}svg{width:100%;height:auto;font:12px system-ui,sans-serif}svg text{fill:var(--ink)}
svg .small{font-size:11px;fill:var(--soft)}figcaption{color:var(--soft)}.lead{font-size:1.1rem}
.warning{border-left:4px solid var(--warn);padding-left:.8rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--grid)}
td.number{text-align:right;font-variant-numeric:tabular-nums}
td[data-tint]{background:color-mix(in srgb,var(--c1) calc(var(--share)*45%),transparent)}
"""
