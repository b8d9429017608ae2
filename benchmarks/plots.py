"""Plots of tables as SVG: bars for the rows of a table, or lines where its rows are a growing number."""

from collections.abc import Sequence
from html import escape
from typing import Final

_STYLE: Final = (
    "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.bar{fill:#8fa3b8}.ours{fill:#0b6e4f}"
    ".axis{stroke:#d0d7de}.line{fill:none;stroke:#0b6e4f;stroke-width:2}.dot{fill:#0b6e4f}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar{fill:#56657a}.ours,.dot{fill:#3fb98a}"
    ".line{stroke:#3fb98a}.axis{stroke:#3d444d}}</style>"
)
_WIDTH: Final = 760
_LABELS: Final = 230
_ROW: Final = 26
_TOP: Final = 40


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


def line(title: str, across: str, up: str, points: Sequence[tuple[float, float]]) -> str:
    """Return a line through points, both axes from zero: what grows with the work is seen as a slope.

    Args:
        title: What is measured.
        across: The name of the first number of each point.
        up: The name of the second.
        points: The points, in their order.
    """
    height, left, right = 240, 60, _WIDTH - 40
    most_x = max((x for x, _ in points), default=1.0) or 1.0
    most_y = max((y for _, y in points), default=1.0) or 1.0
    placed = [
        (left + (right - left) * x / most_x, _TOP + height - height * y / most_y, x, y) for x, y in points
    ]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in placed)
    parts = [
        f'<text x="0" y="18" font-weight="600">{escape(title)}: {escape(up)} by {escape(across)}</text>',
        f'<path class="axis" fill="none" d="M{left} {_TOP}V{_TOP + height}H{right}"/>',
        f'<polyline class="line" points="{path}"/>',
    ]
    for px, py, x, y in placed:
        parts += [
            f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="4"/>',
            f'<text x="{px:.1f}" y="{py - 8:.1f}" text-anchor="middle">{_number(y)}</text>',
            f'<text x="{px:.1f}" y="{_TOP + height + 18}" text-anchor="middle">{_number(x)}</text>',
        ]
    return _svg(title, _TOP + height + 30, parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
    return f'{head} aria-label="{escape(title, quote=True)}">{_STYLE}\n' + "\n".join(parts) + "\n</svg>\n"
