"""Incremental parser of the matches that a search prints."""

import os
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fairlead.servers.framework.tools import ToolModel

LINE_CHARACTERS = 500
"""How much of a line is handed on."""

MAX_CHARACTERS = 1_000_000
"""How much of all lines together is handed on."""


class Match(ToolModel):
    """A line that matches."""

    file_path: str
    line_number: int
    line_text: str
    before: list[str] | None = None
    """The lines above it, if requested."""
    after: list[str] | None = None
    """The lines below it, if requested."""


_RECORD = re.compile(rb"([^\0]*)\0(\d+)([:-])([^\n]*)\n")
# ripgrep says so on stdout, without a zero byte, when it stops in mid-file.
_WARNING = re.compile(rb".*?: WARNING: stopped searching binary file [^\n]*\n", re.DOTALL)
_CONTROLS = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


@dataclass(slots=True)
class _Hit:
    file: bytes
    path: str
    number: int
    text: str
    before: list[str]
    after: list[str] = field(default_factory=list[str])


class MatchReader:
    r"""Collects the matches in the output of successive searches, up to a limit.

    That is `path\0number:text\n` for a line that matches, and `path\0number-text\n` for one around it.
    """

    def __init__(self, *, limit: int, context: int) -> None:
        self.is_full = False
        """Whether there are more matches than it takes."""
        self.is_done = False
        """Whether it is full, and has all that belongs to the last match."""
        self._limit = limit
        self._context = context
        self._hits: list[_Hit] = []
        self._characters = 0
        self._pending: list[bytes] = []
        self._shown: Callable[[str], str | None] = str
        self._file = b""
        self._path: str | None = None
        self._recent: deque[tuple[int, str]] = deque(maxlen=context)

    @property
    def matches(self) -> list[Match]:
        """The matches so far."""
        has_context = self._context > 0
        return [
            Match(
                file_path=hit.path,
                line_number=hit.number,
                line_text=hit.text,
                before=hit.before if has_context else None,
                after=hit.after if has_context else None,
            )
            for hit in self._hits
        ]

    def begin(self, shown: Callable[[str], str | None]) -> None:
        """Begin another search. `shown` displays its paths; None for a path that is not shown."""
        self._shown = shown
        self._file = b""
        self._pending = []

    def feed(self, data: bytes) -> None:
        """Parse the next part of the output."""
        self._pending.append(data)
        if b"\n" not in data:
            return
        output = b"".join(self._pending)
        position = 0
        while not self.is_done and (record := _RECORD.match(output, position)):
            position = record.end()
            file, number, mark, text = record.groups()
            if file != self._file:
                self._enter(_WARNING.sub(b"", file, count=1))
            if self._path is not None and not self.is_done:
                self._line(self._path, int(number), clean_line(_decode_line(text)), is_match=mark == b":")
        self._pending = [output[position:]]

    def fork(self, *, limit: int | None = None) -> "MatchReader":
        """Another reader for the same search, to read with and then perhaps to `join`."""
        room = self._limit - len(self._hits)
        other = MatchReader(limit=room if limit is None else limit, context=self._context)
        other.begin(self._shown)
        return other

    def join(self, other: "MatchReader") -> None:
        """Take over the matches of another reader, whose files came in any order, in that of their paths."""
        hits = sorted(other._hits, key=lambda hit: hit.file.split(b"/"))
        room = self._limit - len(self._hits)
        self._hits += hits[:room]
        self.is_full = other.is_full or len(hits) > room

    def _enter(self, file: bytes) -> None:
        self._file = file
        self._path = self._shown(os.fsdecode(file).removeprefix("./"))
        self._recent.clear()
        self.is_done = self.is_full

    def _line(self, path: str, number: int, text: str, *, is_match: bool) -> None:
        self._characters += len(text)
        for hit in self._hits[-self._context :] if self._context else ():
            if hit.path == path and number <= hit.number + self._context:
                hit.after.append(text)
        if is_match and (len(self._hits) >= self._limit or self._characters > MAX_CHARACTERS):
            self.is_full = True
        elif is_match and not self.is_full:
            before = [line for above, line in self._recent if above >= number - self._context]
            self._hits.append(_Hit(self._file, path, number, text, before))
        self._recent.append((number, text))
        last = self._hits[-1] if self._hits else None
        is_near_last = last is not None and last.path == path and number < last.number + self._context
        self.is_done = self.is_full and not is_near_last


def _decode_line(raw: bytes) -> str:
    return raw[: 4 * (LINE_CHARACTERS + 1)].decode("utf-8", "replace").rstrip("\r")


def clean_line(text: str) -> str:
    """A line for display: cut, and without control characters."""
    cut = text if len(text) <= LINE_CHARACTERS else f"{text[:LINE_CHARACTERS]}…"
    return cut.translate(_CONTROLS)


def as_text(matches: Iterable[Match]) -> str:
    """Matches as `grep` would print them: `path:12: text`, and lines around them as `path-11- text`."""
    lines: dict[tuple[str, int], str] = {}
    has_context = False
    for match in matches:
        path, number = match.file_path, match.line_number
        has_context = has_context or match.before is not None
        above, below = match.before or [], match.after or []
        for place, text in enumerate(above, number - len(above)):
            lines.setdefault((path, place), f"{path}-{place}- {text}")
        lines[path, number] = f"{path}:{number}: {match.line_text}"
        for place, text in enumerate(below, number + 1):
            lines.setdefault((path, place), f"{path}-{place}- {text}")
    return "\n".join(_with_gaps(lines) if has_context else lines.values())


def _with_gaps(lines: dict[tuple[str, int], str]) -> Iterable[str]:
    previous: tuple[str, int] | None = None
    for (path, number), line in lines.items():
        if previous is not None and previous != (path, number - 1):
            yield "--"
        previous = (path, number)
        yield line
