"""Output of commands: data to stdout, everything else to stderr; plain where that is no terminal.

Spinners and progress bars are hidden while the user is prompted.
"""

import json
import os
import shlex
import shutil
import sys
import unicodedata
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import click

from fairlead.config.document.files import reserve_standard_descriptors
from fairlead.errors import ConfigError, ConfigInvalid, FairleadError, Problem, Remedy
from fairlead.terminal.colors import STATE_COLUMNS, color_of_state, paint, use_color
from fairlead.wording import join_clauses

if TYPE_CHECKING:
    from fairlead.actions.config_edits import EditOutcome
    from fairlead.actions.context import Notice

Row = Sequence[str]

_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    """A text with every invisible and control character spelled out: what a file says is not trusted."""
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
    """Redirect what is left in a stream, and all that follows, to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


MAX_MESSAGES = 1000
"""Messages that the JSON document of a command holds: the last ones."""


class _JsonReport:
    """The JSON document of a command that prints words, and whether anything was printed."""

    def __init__(self) -> None:
        self.is_collecting = False
        """Whether stdout gets one document at the end, in place of what the command prints."""
        self.has_output = False
        self.fields: dict[str, Any] = {}
        self.messages: deque[str] = deque(maxlen=MAX_MESSAGES)  # a gateway that runs for weeks says much
        self.texts: list[str] = []
        self.error: FairleadError | None = None
        """The last error that was printed without ending the command."""
        self.failed_call: FairleadError | None = None
        """The last error of a call: for it, `delivery` is shown."""


_report = _JsonReport()


JSON_ASKED: Final = "fairlead.json"
"""Key of a command line's context: `--json` stood before the name of the command."""


def start_report() -> None:
    """Begin to collect what the command prints as one JSON document, printed by `finish_report`."""
    _report.is_collecting = True


def report(**fields: object) -> None:
    """Add fields to the JSON document of a command that prints words; nothing without `--json`."""
    _report.fields.update(fields)


def finish_report(status: int, *, as_json: bool) -> None:
    """Print the JSON document of a command that prints words, or its failure: for `--json`.

    Args:
        status: The exit status.
        as_json: Whether the command line has `--json`.
    """
    found, failed = _report, status != 0
    if found.is_collecting and (found.error is None or not failed):
        document: dict[str, Any] = {"ok": not failed, **found.fields}
        if found.texts:
            document["output"] = "\n".join(found.texts)
        document["messages"] = [*found.messages]
        _echo_json(document)
    elif as_json and failed and not found.has_output:
        error = found.error or FairleadError(join_clauses(*found.messages) or "the command failed")
        print_error_json(error, status)
    reset_report()


def reset_report() -> None:
    """Forget what was collected: another command begins."""
    global _report
    _report = _JsonReport()


def option_of(remedy: Remedy) -> str:
    """The option of the command line that is the input of an action."""
    value = "" if remedy.value is None else f" {shlex.quote(remedy.value)}"
    return f"`--{remedy.input.replace('_', '-')}{value}`"


def hint_of(error: FairleadError) -> str | None:
    """The hint of an error, with the option that settles it."""
    if not isinstance(error, ConfigError) or error.remedy is None:
        return error.hint
    option = f"add {option_of(error.remedy)}"
    return f"{error.hint}: {option}" if error.hint else option


def error_as_json(error: FairleadError, status: int) -> dict[str, Any]:
    """An error as a JSON object."""
    from fairlead.catalog.sanitize import gate

    shown: dict[str, Any] = {
        "code": error.code,
        "message": printable_lines(gate.error_text(error)),
        "hint": printable_lines(hint) if (hint := hint_of(error)) else None,
        "exit_status": int(status),
    }
    if error is _report.failed_call:
        shown["delivery"] = error.delivery
    if notes := notes_of(error):
        shown["notes"] = [*notes]
    if isinstance(server_id := getattr(error, "server_id", None), str):
        shown["server"] = server_id
    if isinstance(error, ConfigInvalid):
        shown["problems"] = [problem_as_json(problem) for problem in error.problems]
    return shown


def print_error_json(error: FairleadError, status: int) -> None:
    """Print an error as one line of JSON to stdout: after lines of JSON it is one more."""
    _echo_json({"error": error_as_json(error, status)}, indent=None)


def print_usage_error_json(error: click.ClickException, status: int) -> None:
    """Print what is wrong with the command line as one line of JSON to stdout."""
    needs_command = isinstance(error, click.exceptions.NoArgsIsHelpError)
    message = "a command is missing" if needs_command else usage_message(error)
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"run `{context.command_path} --help`" if context is not None else None
    shown = {"code": "usage", "message": printable_lines(message), "hint": hint, "exit_status": int(status)}
    _echo_json({"error": shown}, indent=None)


def _echo_json(data: object, *, indent: int | None = 2) -> None:
    click.echo(json.dumps(data, indent=indent, ensure_ascii=False))


def say(words: str = "") -> None:
    """Print a message for the user to stderr, so that data can be piped."""
    if plain := click.unstyle(words).strip():
        _report.messages.append(plain)
    try:
        click.echo(words, err=True, color=use_color(sys.stderr))
    except OSError:
        discard_stream(sys.stderr)  # words that reach no one are no reason to fail; data would be


def warn(words: str, hint: str | None = None) -> None:
    """Print a warning to stderr."""
    say(f"{_style('warning:', 'yellow')} {printable_lines(words)}")
    if hint:
        say(f"  {_style('hint:', 'cyan')} {printable_lines(hint)}")


def print_data(text: str) -> None:
    """Print data to stdout."""
    _report.has_output = True
    if _report.is_collecting:
        _report.texts.append(text)
    else:
        click.echo(text, color=use_color(sys.stdout))


def print_json(data: object) -> None:
    """Print data as JSON to stdout."""
    _report.has_output = True
    _echo_json(data)


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table: on a terminal in its width, in a pipe as aligned plain text with a line for each row."""
    shown = [[printable(cell) for cell in row] for row in rows]
    colored = use_color(sys.stdout)

    def paint_cell(column: int, text: str) -> str:
        color = color_of_state(text) if columns[column] in STATE_COLUMNS else None
        return paint(text, color) if colored and color else text

    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from fairlead.terminal.layout import table_lines

        width = shutil.get_terminal_size().columns
        for line in table_lines(columns, shown, width, paint_cell, _bold if colored else str):
            print_data(line)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *shown, strict=True)]
    print_data("  ".join(map(str.ljust, map(str.upper, columns), widths)).rstrip())
    for row in shown:
        cells = zip(row, widths, strict=True)
        padded = (paint_cell(at, cell) + " " * (width - len(cell)) for at, (cell, width) in enumerate(cells))
        print_data("  ".join(padded).rstrip())


def print_error(error: FairleadError) -> None:
    """Print one error the way every command prints errors."""
    _report.error = error
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
    if hint := hint_of(error):
        say(f"\n{_style('hint:', 'cyan')} {printable_lines(hint)}")


@contextmanager
def noting_delivery() -> Generator[None]:
    """Add to errors of a call how far it got: whether the server may have carried it out."""
    try:
        yield
    except FairleadError as exc:
        if (notice := exc.delivery_notice) is not None and notice not in notes_of(exc):
            exc.add_note(notice)
        _report.failed_call = exc
        raise


def notes_of(error: FairleadError) -> Sequence[str]:
    """The notes that were added to an error where it happened."""
    return getattr(error, "__notes__", ())


def print_usage_error(error: click.ClickException) -> None:
    """Print an error of the command line itself, with the command that shows its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return
    say(f"{_style('error:', 'red')} {printable_lines(usage_message(error))}")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        say(f"\n{_style('hint:', 'cyan')} run `{context.command_path} --help`")


def usage_message(error: click.ClickException) -> str:
    """What is wrong with the command line; of a word that is not known, with the one that is meant."""
    if isinstance(error, click.BadParameter) and (message := _choice_message(error)) is not None:
        return message
    if not isinstance(error, click.NoSuchOption | click.exceptions.NoSuchCommand):
        return _in_plain_words(error.format_message())
    of = f" of `{error.ctx.command_path}`" if error.ctx is not None and error.ctx.parent is not None else ""
    if isinstance(error, click.NoSuchOption):
        message = f"there is no option `{error.option_name}`{of}."
    else:
        message = f"there is no command `{error.command_name}`{of}."
    near = " or ".join(f"`{word}`" for word in error.possibilities or ())
    return f"{message} Did you mean {near}?" if near else message


def _in_plain_words(message: str) -> str:
    """A message of the option parser without the names of its types, and with choices on one line."""
    message = message.replace("is not a valid integer range.", "is not a whole number.")
    message = message.replace("is not a valid integer.", "is not a whole number.")
    before, choose, choices = message.partition("Choose from:\n")
    return f"{before}{choose.rstrip()} {' '.join(choices.split())}." if choose else message


def _choice_message(error: click.BadParameter) -> str | None:
    """What is wrong with a word of which there are a few; None for other errors."""
    choices = error.param.type if error.param is not None else None
    given, is_other, _ = error.message.partition(" is not ")
    if not isinstance(choices, click.Choice) or not is_other:
        return None
    from fairlead.config.faults import suggestion  # which only a wrong word has a use for

    given, known = given.strip("'\""), [str(each) for each in choices.choices]
    where = f"`{error.param.opts[0]}`: " if isinstance(error.param, click.Option) else ""
    message = f"{where}`{given}` is not one of {', '.join(f'`{each}`' for each in known)}."
    hint = suggestion(given, known)
    return f"{message} D{hint[1:]}" if hint else message


def print_problems(problems: Sequence[Problem]) -> None:
    """Print the problems of a configuration, each with its place and hint."""
    for problem in problems:
        label = _style("warning: ", "yellow") if problem.severity == "warning" else ""
        subject = f"{problem.json_path}: " if problem.path else ""
        place = _style(printable(problem.where), bold=True)
        say(f"  {place}  {label}{printable_lines(subject + problem.message)}")
        if problem.hint:
            say(f"      {_style('hint:', 'cyan')} {printable_lines(problem.hint)}")


def print_notices(notices: "Iterable[Notice]") -> None:
    """Print the notices of an action."""
    for notice in notices:
        warn(notice.message, notice.hint)


def print_edit(outcome: "EditOutcome") -> None:
    """Print the outcome of an edit of a configuration file."""
    if outcome.created is not None:
        say(f"created {display_path(outcome.created)}: no project file was here or in a folder above")
    if outcome.problems:
        say()
        print_problems(outcome.problems)
    print_notices(outcome.notices)


def problem_as_json(problem: Problem) -> dict[str, Any]:
    """A problem as a JSON object."""
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
    """Like `printable`, for text whose line breaks are trusted."""
    return "\n".join(map(printable, text.split("\n")))


def plural(number: int, what: str) -> str:
    """A number with its noun: `1 tool`, `2 tools`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def on_one_line(text: str | None, limit: int = 80) -> str:
    """A server's text on one line, for a cell of a table."""
    line = " ".join((text or "").split())
    if len(line) <= limit:
        return line
    cut = line[:limit]
    words = cut[:-1] if " " not in cut[limit // 2 :] else cut.rpartition(" ")[0]
    return f"{words} …" if words != cut[:-1] and len(words) < limit - 1 else f"{words}…"


def display_path(path: Path) -> str:
    """A path in its short form: relative where it is near, with `~` in the home folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        pass
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def is_interactive() -> bool:
    """Whether the user can be prompted: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_watched() -> bool:
    """Whether progress can be shown on a terminal."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def confirm(question: str) -> bool:
    """Ask the user yes or no; without a terminal the answer is no."""
    return is_interactive() and click.confirm(question, err=True)


def _style(text: str, color: str | None = None, *, bold: bool = False) -> str:
    if not use_color(sys.stderr):
        return text
    return paint(text, *(("bold",) if bold or color else ()), *((color,) if color else ()))


def _bold(text: str) -> str:
    return paint(text, "bold")


class Display(Protocol):
    """A progress display that draws itself between `start` and `stop`."""

    def start(self) -> None:
        """Begin to draw."""
        ...

    def stop(self) -> None:
        """Stop drawing."""
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
    """Show a display for the length of the block, except within `still`."""
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
    """Pause all displays for the length of the block."""
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
