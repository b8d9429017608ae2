"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. What would end a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(each) for each in line)} |\n" for line in lines)


def code(text: object) -> str:
    """Text as code, whatever backticks it has."""
    shown = str(text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
