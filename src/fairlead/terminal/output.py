"""Where words go: data to stdout, everything else to stderr; plain where the output is no terminal.

What moves on the terminal, such as a spinner or a bar: it gives way while a person is asked.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from fairlead.config.document.files import reserve_standard_descriptors
from fairlead.errors import ConfigInvalid, FairleadError, Problem

if TYPE_CHECKING:
    from fairlead.actions.config_edits import EditOutcome
    from fairlead.actions.context import Notice

Row = Sequence[str]

_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    """A text with everything invisible or steering spelled out: what a file says is not ours to trust."""
    if text.isascii() and text.isprintable():
        return text
    from fairlead.catalog.sanitize.text import reveal_hidden  # only what is not ASCII needs it

    shown = "".join(
        character if unicodedata.category(character) not in _HIDDEN else _escape_character(character)
        for character in text
    )
    return reveal_hidden(shown)  # variation selectors and fillers, which no category tells from letters


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii") if ord(character) < 0x110000 else character


def open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed, where Python leaves `sys.stdin` None."""
    reserve_standard_descriptors()
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115 - as long as the process


def discard_stream(stream: TextIO) -> None:
    """Send what is left in a stream, and all that follows, to the null device: it takes nothing any more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def say(words: str = "") -> None:
    """Say something to the person: stderr, so that data can be piped."""
    try:
        click.echo(words, err=True)
    except OSError:
        discard_stream(sys.stderr)  # words that reach no one are no reason to fail; data would be


def warn(words: str, hint: str | None = None) -> None:
    """Say what might be wrong."""
    say(f"{_style('warning:', 'yellow')} {printable_lines(words)}")
    if hint:
        say(f"  {_style('hint:', 'cyan')} {printable_lines(hint)}")


def print_data(text: str) -> None:
    """Print data to stdout."""
    click.echo(text)


def print_json(data: object) -> None:
    """Print data as JSON to stdout."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table: drawn on a terminal, aligned plain text in a pipe."""
    shown = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _draw(columns, shown)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *shown, strict=True)]
    for row in ([column.upper() for column in columns], *shown):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(columns: Sequence[str], rows: Sequence[Row]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def print_error(error: FairleadError) -> None:
    """Print one error the way every command prints errors."""
    if isinstance(error, ConfigInvalid):
        many = len(error.problems)
        count = "a problem" if many == 1 else f"{many} problems"
        say(f"{_style('error:', 'red')} the configuration has {count}")
        print_problems(error.problems)
        return
    from fairlead.catalog.sanitize import gate  # which only a command that failed has a use for

    say(f"{_style('error:', 'red')} {printable_lines(gate.error_text(error))}")
    for note in notes_of(error):
        say(f"\n{_style('note:', 'cyan')} {note}")
    if error.hint:
        say(f"\n{_style('hint:', 'cyan')} {printable_lines(error.hint)}")


@contextmanager
def noting_delivery() -> Generator[None]:
    """Have errors of a call say how far it got: whether the server may have carried it out."""
    try:
        yield
    except FairleadError as exc:
        if (notice := exc.delivery_notice) is not None and notice not in notes_of(exc):
            exc.add_note(notice)
        raise


def notes_of(error: FairleadError) -> Sequence[str]:
    """What was noted of an error where it happened."""
    return getattr(error, "__notes__", ())


def print_usage_error(error: click.ClickException) -> None:
    """Print what is wrong with the command line itself, and where to read how it goes."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return
    say(f"{_style('error:', 'red')} {printable_lines(error.format_message())}")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        say(f"\n{_style('hint:', 'cyan')} run `{context.command_path} --help`")


def print_problems(problems: Sequence[Problem]) -> None:
    """Print what is wrong in a configuration, each with its place and what to do."""
    for problem in problems:
        label = _style("warning: ", "yellow") if problem.severity == "warning" else ""
        subject = f"{problem.json_path}: " if problem.path else ""
        place = _style(printable(problem.where), bold=True)
        say(f"  {place}  {label}{printable_lines(subject + problem.message)}")
        if problem.hint:
            say(f"      {_style('hint:', 'cyan')} {printable_lines(problem.hint)}")


def print_notices(notices: "Iterable[Notice]") -> None:
    """Print what the user should know about an action."""
    for notice in notices:
        warn(notice.message, notice.hint)


def print_edit(outcome: "EditOutcome") -> None:
    """Print what became of an edit of a configuration file."""
    if outcome.problems:
        say()
        print_problems(outcome.problems)
    print_notices(outcome.notices)


def problem_as_json(problem: Problem) -> dict[str, Any]:
    """A problem for programs."""
    return {
        "severity": problem.severity,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.json_path,
        "message": problem.message,
        "hint": problem.hint,
    }


def printable_lines(text: str) -> str:
    """Like `printable`, for text whose line breaks are ours."""
    return "\n".join(map(printable, text.split("\n")))


def plural(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def on_one_line(text: str | None, limit: int = 80) -> str:
    """A server's words in a cell of a table."""
    line = " ".join((text or "").split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def display_path(path: Path) -> str:
    """A path as people write it: relative where it is near, `~` where it is at home."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        pass
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def is_interactive() -> bool:
    """Is a person there to be asked?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_watched() -> bool:
    """Is there a terminal on which progress can be shown?"""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def confirm(question: str) -> bool:
    """Ask the user yes or no; without a terminal the answer is no."""
    return is_interactive() and click.confirm(question, err=True)


def _style(text: str, color: str | None = None, *, bold: bool = False) -> str:
    style: Callable[..., str] = click.style
    plain = os.environ.get("NO_COLOR") or not sys.stderr.isatty()
    return text if plain else style(text, fg=color, bold=bold or color is not None)


class Display(Protocol):
    """Something that draws by itself between `start` and `stop`."""

    def start(self) -> None:
        """Draw."""
        ...

    def stop(self) -> None:
        """Draw no more."""
        ...


class _Terminal:
    """The terminal, of which a program has but one."""

    def __init__(self) -> None:
        self.shown: list[Display] = []
        self.stills = 0
        """How many want nothing to move."""


_terminal = _Terminal()


@contextmanager
def showing(display: Display) -> Generator[None]:
    """Show a display for the length of the block, except while everything has to be still."""
    _terminal.shown.append(display)
    if not _terminal.stills:
        display.start()
    try:
        yield
    finally:
        display.stop()
        _terminal.shown.remove(display)


@contextmanager
def still() -> Generator[None]:
    """Have nothing move for the length of the block."""
    if not _terminal.stills:
        for display in _terminal.shown:
            display.stop()
    _terminal.stills += 1
    try:
        yield
    finally:
        _terminal.stills -= 1
        if not _terminal.stills:
            for display in _terminal.shown:
                display.start()
