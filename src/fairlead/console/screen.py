"""Output of the console: lines above the prompt, without control sequences from servers."""

import os
from collections.abc import Callable, Sequence
from shutil import get_terminal_size

import click

from fairlead.console.hints import console_hint
from fairlead.errors import ConfigInvalid, FairleadError
from fairlead.terminal.colors import STATE_COLUMNS, color_of_state, paint
from fairlead.terminal.layout import table_lines
from fairlead.terminal.output import Row, hint_of, notes_of, printable

Write = Callable[[str], None]
"""Puts whole lines on the terminal."""


class Screen:
    """Shows messages, data, tables and errors, sanitized."""

    def __init__(self, write: Write = click.echo) -> None:
        self._write = write

    def say(self, words: str = "") -> None:
        """Print a message or foreign text: tabs become spaces, hidden characters visible."""
        self._write("\n".join(printable(line) for line in words.expandtabs(4).split("\n")))

    def data(self, text: str) -> None:
        """Print data that the user requested: a result, a resource."""
        self.say(text)

    def words_of(self, words: str) -> None:
        """Print a server's text, marked so that it cannot be taken for Fairlead's own."""
        for line in words.split("\n"):
            self.say(f"  | {line}")

    def warn(self, words: str, hint: str | None = None) -> None:
        """Print a warning."""
        self._write_labelled("warning:", "yellow", words)
        if hint:
            self._write_labelled("  hint:", "cyan", console_hint(hint))

    def error(self, error: FairleadError) -> None:
        """Print an error with its hint. Secrets in it are masked."""
        from fairlead.catalog.sanitize import gate

        if isinstance(error, ConfigInvalid):
            self._write_labelled("error:", "red", "the configuration cannot be used")
            for problem in error.problems:
                self.say(f"  {problem}")
                if problem.hint:
                    self._write_labelled("      hint:", "cyan", console_hint(problem.hint))
            return
        self._write_labelled("error:", "red", gate.error_text(error))
        for note in notes_of(error):
            self._write_labelled("note:", "cyan", note)
        if hint := hint_of(error):
            self._write_labelled("hint:", "cyan", console_hint(hint))

    def table(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Show a table in the width of the terminal, with colors for states."""
        colored = not os.environ.get("NO_COLOR")

        def paint_cell(column: int, text: str) -> str:
            color = color_of_state(text) if columns[column] in STATE_COLUMNS else None
            return paint(text, color) if colored and color else text

        shown = [[printable(cell) for cell in row] for row in rows]
        lines = table_lines(
            columns, shown, get_terminal_size().columns, paint_cell, _bold if colored else str
        )
        self._write("\n".join(lines))

    def raw(self, text: str) -> None:
        """Write control sequences to the terminal. Nothing from a server may be passed here unchanged."""
        self._write(text)

    def _write_labelled(self, label: str, color: str, words: str) -> None:
        safe = "\n".join(printable(line) for line in words.split("\n"))
        self._write(f"{style_text(label, color)} {safe}")


def _bold(text: str) -> str:
    return paint(text, "bold")


def style_text(text: str, color: str | None = None) -> str:
    """A text with emphasis, unless colors are off."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=color, bold=True)
