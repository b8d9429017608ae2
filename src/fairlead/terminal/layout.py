"""Lay out a table in the width of a terminal without breaking a word.

Columns shrink to what their longest word needs. Long ids, paths and URLs fold after a punctuation mark. Where
even that does not fit, each row becomes a block with a line for each column.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

GAP: Final = 2
_COMFORTABLE: Final = 14
"""A column of text is not made narrower than this, or than it is."""
_PIECE: Final = re.compile(r"[^\s/\\_.:,;@=?&#|+-]*[/\\_.:,;@=?&#|+-]+|[^\s/\\_.:,;@=?&#|+-]+")
"""Part of a word that is not broken: up to a punctuation mark, with it."""

Paint = Callable[[int, str], str]
"""Colors a line of a cell, by the number of its column."""


def display_width(text: str) -> int:
    """Number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def fold(text: str, width: int) -> list[str]:
    """Fold a text into lines: between words, and in longer words after a punctuation mark.

    A part of a word that is longer still stays whole, and its line is too long.
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if display_width(joined) <= width:
            line = joined
            continue
        if line and display_width(word) <= width:
            lines.append(line)
            line = word
            continue
        line = f"{line} " if line else ""
        for piece in _PIECE.findall(word):
            if line.strip() and display_width(line + piece) > width:
                lines.append(line.rstrip())
                line = ""
            line += piece
    return [*lines, line] if line or not lines else lines


def _least_width(text: str) -> int:
    return max((display_width(piece) for piece in _PIECE.findall(text)), default=0)


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    paint: Paint | None = None,
    emphasize: Callable[[str], str] = str,
) -> list[str]:
    """The lines of a table, no wider than `width` unless a single word is.

    Args:
        columns: Their headings.
        rows: The cells, without line breaks.
        width: Columns of the terminal.
        paint: Colors the cells; its result counts as wide as the plain text.
        emphasize: Makes headings stand out, in the same way.
    """
    widths = _column_widths(columns, rows, width)
    colored = paint or _leave_plain
    if widths is None:
        return _stack_rows(columns, rows, width, colored, emphasize)
    lines = _row_lines(columns, widths, lambda _column, text: emphasize(text))
    lines.append("─" * (sum(widths) + GAP * (len(widths) - 1)))
    for row in rows:
        lines += _row_lines(row, widths, colored)
    return lines


def _leave_plain(_column: int, text: str) -> str:
    return text


def _column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of each column; None where not every column gets what it needs."""
    table = [list(column) for column in zip(columns, *rows, strict=True)]
    natural = [max(map(display_width, cells)) for cells in table]
    room = width - GAP * (len(columns) - 1)
    if sum(natural) <= room:
        return natural
    least = [
        max(min(wanted, _COMFORTABLE), *map(_least_width, cells))
        for wanted, cells in zip(natural, table, strict=True)
    ]
    if sum(least) > room:
        return None
    widths, left = list(least), room - sum(least)
    while left:  # one for each column in turn that wants more, so that short ones are whole first
        wanting = [number for number, wanted in enumerate(natural) if widths[number] < wanted]
        for number in wanting[:left]:
            widths[number] += 1
        left -= min(left, len(wanting))
    return widths


def _row_lines(row: Sequence[str], widths: Sequence[int], paint: Paint) -> list[str]:
    cells = [fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines: list[str] = []
    for number in range(max(map(len, cells))):
        line = ""
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            text = cell[number] if number < len(cell) else ""
            line += paint(column, text) + " " * (width - display_width(text) + GAP)
        lines.append(line.rstrip())
    return lines


def _stack_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    paint: Paint,
    emphasize: Callable[[str], str],
) -> list[str]:
    """Each row as a block: its first cell, and below it the others with their headings."""
    lines: list[str] = []
    label = max((display_width(column) for column in columns[1:]), default=0)
    for position, row in enumerate(rows):
        if position:
            lines.append("")
        lines += [emphasize(line) for line in fold(row[0], width)]
        for number, (column, cell) in enumerate(zip(columns[1:], row[1:], strict=True), 1):
            if cell in ("", "-"):
                continue
            indent = label + GAP * 2
            first, *rest = fold(cell, max(width - indent, 8))
            lines.append(f"  {column}{' ' * (label - display_width(column) + GAP)}{paint(number, first)}")
            lines += [" " * indent + paint(number, line) for line in rest]
    return lines
