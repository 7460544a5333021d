"""Scatter plot of measured and simulated completion times, as SVG."""

from collections.abc import Mapping, Sequence
from html import escape

_SIDE, _MARGIN = 360, 48
_COLORS = ("#3f51b5", "#e65100", "#00796b", "#ad1457", "#616161")
_TICKS = 5


def scatter(series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a plot of (measured, simulated) seconds, in one colour for each name."""
    most = max(value for points in series.values() for point in points for value in point)
    top = _TICKS * _round_up(most / _TICKS)
    size = _SIDE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}"'
        ' font-family="sans-serif" font-size="12" role="img">',
        "<title>Completion times of jobs: measured and simulated</title>",
        f'<rect width="{size}" height="{size}" fill="#fff"/>',
        _line(0, 0, top, top, top, "#bbb"),
        _line(0, 0, top, 0, top, "#333"),
        _line(0, 0, 0, top, top, "#333"),
    ]
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        x, y = _at(value, 0, top)
        parts.append(f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle">{value:g}</text>')
        x, y = _at(0, value, top)
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{value:g}</text>')
    for color, (number, (name, points)) in zip(_COLORS, enumerate(series.items()), strict=False):
        parts += [_dot(*_at(*point, top), color) for point in points]
        y = _MARGIN + 8 + 18 * number
        parts.append(_dot(_MARGIN + 14, y, color))
        parts.append(f'<text x="{_MARGIN + 24}" y="{y + 4}">{escape(name)}</text>')
    half = size / 2
    parts += [
        f'<text x="{half:.0f}" y="{size - 8}" text-anchor="middle">measured, s</text>',
        f'<text transform="translate(12 {half:.0f}) rotate(-90)" text-anchor="middle">'
        "simulated, s</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _round_up(step: float) -> int:
    return next(nice for nice in (1, 2, 5, 10, 20, 25, 50, 100, 200, 10**6) if nice >= step)


def _at(x: float, y: float, top: float) -> tuple[float, float]:
    return _MARGIN + _SIDE * x / top, _MARGIN + _SIDE * (1 - y / top)


def _line(x: float, y: float, to_x: float, to_y: float, top: float, color: str) -> str:
    (x1, y1), (x2, y2) = _at(x, y, top), _at(to_x, to_y, top)
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _dot(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}" fill-opacity="0.7"/>'
