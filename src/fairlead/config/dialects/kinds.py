"""What a field may hold, and how its value goes from one format to another and back."""

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fairlead.config.dialects.dialect import Note
from fairlead.config.dialects.references import LITERAL, Style, Unfit
from fairlead.config.shapes import is_list, is_object

LONGEST_MS = 86_400_000

_GLOB = re.compile(r"[*?\[]")
_NEEDS_A_SHELL = re.compile(r"[^\w\s./:@,+-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Spot:
    """A field of one server on its way from one format to another. What does not fit is noted here."""

    server_id: str | None
    field: str
    notes: list[Note]

    def note(self, message: str) -> None:
        """Report something about this field."""
        self.notes.append(Note(server_id=self.server_id, field=self.field, message=message))

    def inside(self, name: str) -> "Spot":
        """The same for a field of this field."""
        return Spot(self.server_id, f"{self.field}.{name}" if self.field else name, self.notes)


class Malformed(Exception):
    """A value of the wrong type. The whole entry is left out: half of it would be a guess."""

    def __init__(self, message: str, spot: Spot | None = None) -> None:
        super().__init__(message)
        self.spot = spot


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read from a format and written to it. None means there is nothing to say."""

    read: Callable[[object, Spot], Any]
    write: Callable[[object, Spot], Any]


def text(style: Style) -> Kind:
    """A string, with references in that style."""
    return Kind(
        read=lambda value, _: style.read(string(value)),
        write=lambda value, _: style.write(string(value)),
    )


def texts(style: Style) -> Kind:
    """A list of strings."""
    return Kind(
        read=lambda value, _: [style.read(item) for item in strings(value)],
        write=lambda value, _: [style.write(item) for item in strings(value)],
    )


def table(style: Style, *, numbers: bool = False) -> Kind:
    """Strings (and numbers, where a format takes them) by name. What does not fit is left out alone."""
    textual = _number_as_text if numbers else string
    return Kind(
        read=lambda value, spot: _each(value, spot, lambda item: style.read(textual(item))),
        write=lambda value, spot: _each(value, spot, lambda item: style.write(string(item))),
    )


def _each(value: object, spot: Spot, convert: Callable[[object], str]) -> dict[str, str] | None:
    items = {name: item for name, item in mapping(value).items() if item is not None}
    kept: dict[str, str] = {}
    for name, item in items.items():
        try:
            kept[name] = convert(item)
        except Unfit as exc:
            spot.inside(name).note(f"{exc}; left out")
    return kept or (None if items else {})


def word(meanings: Mapping[str, str]) -> Kind:
    """One of a few words, theirs to ours. Where two of theirs mean the same, the first is written."""
    back = {ours: theirs for theirs, ours in reversed(list(meanings.items()))}
    return Kind(
        read=lambda value, _: _equivalent(meanings, value),
        write=lambda value, _: _equivalent(back, value),
    )


def _equivalent(meanings: Mapping[str, str], value: object) -> str:
    meaning = meanings.get(string(value))
    if meaning is None:
        raise Malformed(f"is `{value}`, which has no equivalent")
    return meaning


def duration(unit_ms: int) -> Kind:
    """A time, counted in `unit_ms` there and in milliseconds here."""

    def read(value: object, spot: Spot) -> int | None:
        milliseconds = round(_number(value) * unit_ms)
        if milliseconds < 1:
            spot.note(f"is {value}: no such time can be set here")
            return None
        if milliseconds > LONGEST_MS:
            spot.note(f"is longer than a day; set to {LONGEST_MS} ms")
        return min(milliseconds, LONGEST_MS)

    def write(value: object, _: Spot) -> int | float:
        amount = _number(value) / unit_ms
        return int(amount) if amount.is_integer() else amount

    return Kind(read=read, write=write)


def scopes(style: Style) -> Kind:
    """OAuth scopes: a list there, words with spaces between them here."""
    return Kind(
        read=lambda value, _: " ".join(style.read(item) for item in strings(value)) or None,
        write=lambda value, _: style.write(string(value)).split(),
    )


def _flag(value: object, _: Spot) -> bool:
    if not isinstance(value, bool):
        raise Malformed("must be true or false")
    return value


def _negated(value: object, spot: Spot) -> bool:
    return not _flag(value, spot)


def _port(value: object, _: Spot) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise Malformed("must be a port number")
    return value


def _tool_names(value: object, spot: Spot) -> list[str] | None:
    """Exact names only: a pattern on one side is a plain name on the other, so its meaning would change."""
    names = strings(value)
    for name in filter(is_pattern, names):
        spot.note(f"has `{name}`, a pattern on one side and a plain name on the other; left out")
    return [name for name in names if not is_pattern(name)] or None


def _argv(value: object, _: Spot) -> list[str] | None:
    """A shell's command line as argv: its words where a shell does no more, else all of it for a shell."""
    line = string(value).strip()
    if not line:
        return None
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise Malformed(f"is not a command: {exc}") from None
    plain = "=" not in words[0] and (shlex.join(words) == line or not _NEEDS_A_SHELL.search(line))
    return [LITERAL.read(item) for item in (words if plain else ["sh", "-c", line])]


def _command_line(value: object, _: Spot) -> str:
    argv = [LITERAL.write(item) for item in strings(value)]
    if "=" in argv[0]:
        raise Unfit("begins with what a shell there would take for a variable")
    return shlex.join(argv)


FLAG = Kind(read=_flag, write=_flag)
NEGATED = Kind(read=_negated, write=_negated)
PORT = Kind(read=_port, write=_port)
MILLISECONDS = duration(1)
SECONDS = duration(1000)
TOOL_NAMES = Kind(read=_tool_names, write=_tool_names)
COMMAND_LINE = Kind(read=_argv, write=_command_line)


def is_pattern(name: str) -> bool:
    """Would this be a pattern where names of tools may be one?"""
    return _GLOB.search(name) is not None


def mapping(value: object) -> dict[str, Any]:
    """The value, if it is an object with strings for keys."""
    if not is_object(value) or not all(isinstance(key, str) for key in cast("dict[object, Any]", value)):
        raise Malformed("must be an object")
    return value


def items(value: object) -> list[Any]:
    """The value, if it is a list."""
    if not is_list(value):
        raise Malformed("must be a list")
    return value


def strings(value: object) -> list[str]:
    """The value, if it is a list of strings."""
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise Malformed("must be a list of strings")
    return value


def string(value: object) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise Malformed("must be a string")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Malformed("must be a number")
    return float(value)


def _number_as_text(value: object) -> str:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else string(value)
