"""The ground that a figure is drawn on: scales, ticks, axes, legend, as SVG text without any dependency.

Colours are CSS variables (`--ink`, `--grid`, `--c1` ... `--c6`) that the page sets for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = 6
DASHES = ("", "7 4", "2 4", "10 4 2 4", "4 2", "1 3")  # a second sign beside the colour
WIDTH, HEIGHT = 640, 340
CHARACTER = 7.0  # mean width of a label's character, px at 12 px


def words(value: float) -> str:
    """A tick's or a value's text: three significant digits, thousands as 1,000."""
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return "0" if text == "-0" else text
    return f"{value:.1e}"


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) inside [low, high]."""
    if high - low < 1e-100:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten inside [low, high]."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [f * 10.0**p for p in powers for f in (1, 2, 5) if low * 0.999 <= f * 10.0**p <= high * 1.001]


def extent(values: Sequence[float], *, zero: bool = False) -> tuple[float, float]:
    """Smallest and largest finite value, with room where both are equal; (0, 1) without any."""
    kept = [value for value in values if math.isfinite(value)] + ([0.0] if zero else [])
    if not kept:
        return 0.0, 1.0
    low, high = min(kept), max(kept)
    if high - low <= max(1e-12 * max(abs(low), abs(high)), 1e-100):  # equal, but for rounding
        room = abs(low) * 0.1 or 0.5
        return low - (0.0 if zero and low == 0 else room), high + room
    return low, high


@dataclass(frozen=True)
class Scale:
    """Data to pixels along one axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        if self.log:
            found = log_ticks(self.low, self.high)
            return found if len(found) >= 2 else [self.low, self.high]
        return ticks(self.low, self.high)


def colour(index: int) -> str:
    return f"var(--c{index % COLOURS + 1})"


def dash(index: int) -> str:
    pattern = DASHES[index % len(DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def text(x: float, y: float, content: str, *, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, *, stroke: str = "var(--grid)", extra: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{extra}/>'


def axes(x: Scale, y: Scale, *, x_label: str, y_label: str) -> str:
    """Grid, ticks and labels of two numeric axes."""
    parts = []
    for tick in y.ticks:
        parts += [rule(x.start, y(tick), x.end, y(tick)), text(x.start - 8, y(tick) + 4, words(tick), anchor="end")]
    for tick in x.ticks:
        at = x(tick)
        parts += [rule(at, y.start, at, y.start + 5, stroke="var(--ink)"), text(at, y.start + 19, words(tick))]
    parts.append(rule(x.start, y.start, x.end, y.start, stroke="var(--ink)"))
    parts.append(text((x.start + x.end) / 2, y.start + 38, x_label))
    middle = (y.start + y.end) / 2
    parts.append(text(14, middle, y_label, extra=f' transform="rotate(-90 14 {middle:.1f})"'))
    return "".join(parts)


def legend(names: Sequence[str], *, left: float, width: float, lines: bool) -> tuple[str, float]:
    """The series' names above the plot, wrapped, and the height they take; nothing for a single unnamed one."""
    if not any(names):
        return "", 12.0
    parts, x, y = [], left, 16.0
    for index, name in enumerate(names):
        need = 34 + CHARACTER * len(name)
        if x > left and x + need > left + width:
            x, y = left, y + 18
        if lines:
            parts.append(rule(x, y - 4, x + 22, y - 4, stroke=colour(index), extra=f' stroke-width="2.5"{dash(index)}'))
        else:
            parts.append(f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2" fill="{colour(index)}"/>')
        parts.append(text(x + (28 if lines else 18), y, name, anchor="start"))
        x += need
    return "".join(parts), y + 12


def svg(body: str, *, title: str, description: str, height: float = HEIGHT) -> str:
    """The whole figure; `title` and `description` are read out by screen readers."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )
