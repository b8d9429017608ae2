"""Plots of tables as SVG: bars for the rows of a table, or lines where its rows are a growing number."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.bar{fill:#8fa3b8}.ours{fill:#0b6e4f}"
    ".axis{stroke:#d0d7de}.line{fill:none;stroke:#0b6e4f;stroke-width:2}.dot{fill:#0b6e4f}"
    ".line.other{stroke:#8fa3b8}.dot.other{fill:#8fa3b8}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar{fill:#56657a}.ours,.dot{fill:#3fb98a}"
    ".line{stroke:#3fb98a}.axis{stroke:#3d444d}}</style>"
)
_WIDTH: Final = 760
_LABELS: Final = 230
_ROW: Final = 26
_TOP: Final = 40

Points = Sequence[tuple[float, float]]


def bars(title: str, unit: str, values: Sequence[tuple[str, float]], ours: Sequence[str] = ()) -> str:
    """Return a bar for each value, those of ours in another colour.

    Args:
        title: What is measured.
        unit: The name of the numbers' column.
        values: A label and a number for each bar.
        ours: How the labels of our own begin.
    """
    most = max((value for _, value in values), default=1.0) or 1.0
    space = _WIDTH - _LABELS - 90
    parts = [f'<text x="0" y="18" font-weight="600">{escape(title)} — {escape(unit)}</text>']
    for index, (label, value) in enumerate(values):
        y = _TOP + index * _ROW
        kind = "ours" if label.startswith(tuple(ours)) else "bar"
        width = max(1.0, space * value / most)
        parts += [
            f'<text x="{_LABELS - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{kind}" x="{_LABELS}" y="{y}" width="{width:.1f}" height="18" rx="2"/>',
            f'<text x="{_LABELS + width + 6:.1f}" y="{y + 14}">{_number(value)}</text>',
        ]
    return _svg(title, _TOP + len(values) * _ROW, parts)


def lines(title: str, across: str, up: str, series: Mapping[str, Points], ours: Sequence[str] = ()) -> str:
    """Return a line for each series: what grows with the work is seen as a slope.

    Both axes are from zero. Where the first numbers span more than two decades, and the second more than one,
    both are logarithmic, and the title says so.

    Args:
        title: What is measured.
        across: The name of the first number of each point.
        up: The name of the second.
        series: The points of each line, in their order.
        ours: How the names of our own begin.
    """
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    is_log = min([*xs, *ys], default=0.0) > 0 and max(xs) / min(xs) > 100 and max(ys) / min(ys) > 10
    place_x, place_y = _scale(xs, is_log=is_log), _scale(ys, is_log=is_log)
    height, left, right = 240, 60, _WIDTH - (40 if len(series) == 1 else _LABELS - 20)
    head = f"{title}: {up} by {across}{', both axes logarithmic' if is_log else ''}"
    parts = [
        f'<text x="0" y="18" font-weight="600">{escape(head)}</text>',
        f'<path class="axis" fill="none" d="M{left} {_TOP}V{_TOP + height}H{right}"/>',
    ]
    parts += [
        f'<text x="{left + (right - left) * place_x(x):.1f}" y="{_TOP + height + 18}" text-anchor="middle">'
        f"{_number(x)}</text>"
        for x in sorted({*xs})
    ]
    ends: list[tuple[float, str, str]] = []
    for name, points in series.items():
        kind = "" if len(series) == 1 or name.startswith(tuple(ours)) else " other"
        placed = [
            (left + (right - left) * place_x(x), _TOP + height * (1 - place_y(y)), y) for x, y in points
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in placed)
        parts.append(f'<polyline class="line{kind}" points="{path}"/>')
        for x, y, value in placed:
            parts.append(f'<circle class="dot{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
            if len(series) == 1:
                number = _number(value)
                parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{number}</text>')
        ends.append((placed[-1][1], name, _number(points[-1][1])))
    if len(series) > 1:
        parts += _names_beside(ends, right + 10)
    # Of many lines that end low, the names go on below the axis.
    lowest = max((y for y, _ in _spread(ends)), default=0.0) if len(series) > 1 else 0.0
    return _svg(title, max(_TOP + height + 30, int(lowest) + 10), parts)


def _scale(values: Sequence[float], *, is_log: bool) -> Callable[[float], float]:
    """Where between 0 and 1 a value is on an axis."""
    most = max(values, default=1.0) or 1.0
    if not is_log:
        return lambda value: value / most
    least = min(values) / 1.5
    return lambda value: math.log(value / least) / math.log(most / least)


def _names_beside(ends: Sequence[tuple[float, str, str]], x: float) -> list[str]:
    """The names of lines beside their ends with the last number of each, none over another."""
    return [f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>' for y, text in _spread(ends)]


def _spread(ends: Sequence[tuple[float, str, str]]) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    lowest = -math.inf
    for y, name, number in sorted(ends):
        lowest = max(y + 4, lowest + 16)
        found.append((lowest, f"{name}: {number}"))
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
    return f'{head} aria-label="{escape(title, quote=True)}">{_STYLE}\n' + "\n".join(parts) + "\n</svg>\n"
