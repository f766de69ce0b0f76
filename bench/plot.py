"""A small plot as SVG text: panels side by side, lines over one logarithmic axis."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from attrs import frozen

COLOURS = ("#1b6ca8", "#c8553d", "#4a8f4a", "#7b5ea7")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 300, 200, 60, 52, 70


@frozen
class Panel:
    """One pair of axes; `lines` has the points (x, y) of each name, x above 0."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def svg(title: str, x_name: str, panels: Sequence[Panel]) -> str:
    """The picture. All panels share the range of x; each y begins at 0."""
    xs = sorted({x for panel in panels for points in panel.lines.values() for x, _ in points})
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    width = _LEFT + len(panels) * (_WIDTH + _GAP)
    height = _TOP + _HEIGHT + 70
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect {size} fill="white"/>',
        _text(_LEFT, 18, title, "start", 'font-size="13"'),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _LEFT + number * (_WIDTH + _GAP), xs, x_name, names)
    for number, name in enumerate(names):
        x, y = _LEFT + 110 * number, height - 12
        parts.append(f'<rect x="{x}" y="{y - 8}" width="14" height="4" fill="{_colour(number)}"/>')
        parts.append(_text(x + 20, y, name, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    panel: Panel, left: float, xs: Sequence[float], x_name: str, names: Sequence[str]
) -> list[str]:
    low, high = (math.log(xs[0]), math.log(xs[-1])) if xs else (0.0, 0.0)
    top = max((y for points in panel.lines.values() for _, y in points), default=0.0) or 1.0
    bottom = _TOP + _HEIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log(x) - low) / (high - low) if high > low else 0.5
        return left + share * _WIDTH, bottom - y / top * _HEIGHT

    parts = [_text(left, _TOP - 8, panel.title, "start")]
    for step in range(5):
        y = bottom - step * _HEIGHT / 4
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(_text(left - 6, y + 4, f"{top * step / 4:.3g}", "end"))
    parts += [_text(place(x, 0)[0], bottom + 16, f"{x:g}", "middle") for x in xs]
    parts.append(_text(left + _WIDTH / 2, bottom + 32, x_name, "middle"))
    for name, points in panel.lines.items():
        colour = _colour(names.index(name))
        placed = [place(x, y) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(words)}</text>'
