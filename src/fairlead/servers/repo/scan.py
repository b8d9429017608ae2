"""Search in pure Python, where ripgrep is missing: the same files and lines in the same order.

It runs as a process of its own, because some expressions keep `re` busy for ever and nothing but a signal
stops it then: the parent process ends it when its time is up. It prints what it finds as ripgrep
would, so there is one reader for both. It imports little, for it has to start quickly.

What differs from ripgrep is in `patterns`, and this: an ignore file that is a link is not read here, and
before version 14 ripgrep did not apply the rules of a repository to another one inside it.
"""

import codecs
import json
import os
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.errors import ToolFailed
from fairlead.servers.repo.folders import OpenFolder, Root, is_private
from fairlead.servers.repo.ignores import FILES, IgnoreFiles, IgnoreRules
from fairlead.servers.repo.patterns import LinePattern, PatternInvalid, line_pattern

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Larger files are not searched."""

MAX_RULES_BYTES = 256 * 1024
"""A larger ignore file is not read."""

MAX_DEPTH = 100
"""Files deeper down than this are not searched."""

MAX_COLUMNS = 2_000
"""How much of a line is printed at most."""

FAILED = 2
"""The exit status when the query cannot be used, with the reason on stderr."""

_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "import fairlead.servers.repo.scan as scan; scan.main(sys.argv[2])"
)
_BLOCK = 64 * 1024
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanQuery:
    """Search to run below one folder."""

    query: str
    is_fixed: bool
    is_sensitive: bool
    context: int
    """How many lines around each match to print."""
    limit: int
    """How many matching lines to print at most; ripgrep counts them file by file."""
    narrowing: tuple[str, ...]
    """Lines of an ignore file that no other outdoes."""
    with_hidden: bool


def command(folder: OpenFolder, search: ScanQuery, *, lifetime: int = 60) -> list[str]:
    """The command that searches a folder, for so many seconds at most.

    The folder's descriptor, if it has one, must be passed on.
    """
    request = {"fd": folder.fd, "path": str(folder.path), "search": asdict(search), "lifetime": lifetime}
    package = str(Path(__file__).parents[3])
    return [sys.executable, "-I", "-S", "-c", _START, package, json.dumps(request)]


def main(request: str) -> None:
    """Run one search, described as JSON, and print the matches."""
    job = json.loads(request)
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        # If the processes that should end it are gone, it ends by itself, even inside of `re`.
        signal.alarm(job["lifetime"])
    root = Root(name="", path=Path(job["path"]), prefix="", fd=None)
    folder = OpenFolder(root=root, names=(), fd=job["fd"])
    try:
        for line in find_lines(folder, ScanQuery(**job["search"])):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    except PatternInvalid as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is how it answers
        sys.exit(FAILED)


def find_lines(folder: OpenFolder, search: ScanQuery) -> Generator[bytes]:
    """Find the lines to print. Raises `PatternInvalid`."""
    pattern = line_pattern(search.query, is_fixed=search.is_fixed, is_sensitive=search.is_sensitive)
    left = search.limit
    for path, text in _Files(search).below(folder, IgnoreFiles()):
        for is_match, line in _iter_printed_lines(os.fsencode(path), text, pattern, search.context):
            left -= is_match
            if left < 0:
                return
            yield line


# ── files ──


class _Files:
    """The files to search, in ripgrep's order: folder by folder, each by the bytes of its names."""

    def __init__(self, search: ScanQuery) -> None:
        self._narrowing = IgnoreRules(search.narrowing)
        self._with_hidden = search.with_hidden

    def below(self, folder: OpenFolder, ignores: IgnoreFiles) -> Iterator[tuple[str, str]]:
        """The path and the text of each file that has any."""
        are_folders = _entries(folder)
        above = "".join(f"{name}/" for name in folder.names)
        own = {name: _rules(folder, name) for name in FILES if are_folders.get(name) is False}
        ignores = ignores.with_folder(own, len(above))
        for name in sorted(are_folders, key=os.fsencode):
            path = above + name
            if is_private(name) or self._leaves_out(path, ignores, is_folder=are_folders[name]):
                continue
            if are_folders[name]:
                yield from self._inside(folder, name, ignores)
            elif text := _text(_content(folder, name, MAX_FILE_BYTES)):
                yield path, text

    def _inside(self, folder: OpenFolder, name: str, ignores: IgnoreFiles) -> Iterator[tuple[str, str]]:
        if len(folder.names) + 1 >= MAX_DEPTH:
            return
        try:
            inner = folder.enter(name)
        except ToolFailed:
            return
        try:
            yield from self.below(inner, ignores)
        finally:
            inner.close()

    def _leaves_out(self, path: str, ignores: IgnoreFiles, *, is_folder: bool) -> bool:
        if self._narrowing.verdict(path, is_folder=is_folder):
            return True
        ignored = ignores.verdict(path, is_folder=is_folder)
        if ignored is None:
            return not self._with_hidden and path.startswith(".", path.rfind("/") + 1)
        return ignored


def _entries(folder: OpenFolder) -> dict[str, bool]:
    """The names of files and folders, and whether each is a folder. Links are neither."""
    try:
        with folder.scan() as entries:
            return {
                entry.name: is_folder
                for entry in entries
                if (is_folder := entry.is_dir(follow_symlinks=False)) or entry.is_file(follow_symlinks=False)
            }
    except OSError:
        return {}


def _rules(folder: OpenFolder, name: str) -> IgnoreRules:
    return IgnoreRules(_content(folder, name, MAX_RULES_BYTES).decode("utf-8-sig", "replace").split("\n"))


def _content(folder: OpenFolder, name: str, max_bytes: int) -> bytes:
    """Content of a file; empty if it is too large, plainly binary, or cannot be read."""
    try:
        with folder.file(name) as file:
            if file.stat.st_size > max_bytes:
                return b""
            blocks = [os.read(file.fd, _BLOCK)]
            if b"\0" in blocks[0] and not blocks[0].startswith(_UTF16):
                return b""
            left = max_bytes - len(blocks[0])
            while left > 0 and len(blocks[-1]) >= _BLOCK:
                blocks.append(os.read(file.fd, min(left, file.stat.st_size)))
                left -= len(blocks[-1])
            return b"".join(blocks)
    except (ToolFailed, OSError):
        return b""


def _text(content: bytes) -> str:
    """A file's text, as far as it is text.

    ripgrep reads 64 KB at a time and stops where one of these blocks has a zero byte in it.
    """
    if content.startswith(_UTF16):
        text = content.decode("utf-16", "replace")
    else:
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    zero = text.find("\0")
    if zero < 0:
        return text
    return text[: text.rfind("\n", 0, zero // _BLOCK * _BLOCK) + 1]


# ── lines ──


def _matching_lines(text: str, pattern: LinePattern) -> Iterator[int]:
    """Offsets of the lines that the pattern matches."""
    search = pattern.expression.search
    last = len(text) - text.endswith("\n")
    # To find fixed texts is many times faster than `re` is.
    searched = text if pattern.is_sensitive or not pattern.literals else _lower_case(text)
    candidates = _Candidates(searched, pattern.literals) if pattern.literals and searched else None
    position = 0
    while position <= last:
        if candidates:
            hit = candidates.after(position)
        else:
            found = search(text, position, last)
            hit = found.start() if found else -1
        if hit < 0:
            return
        start = text.rfind("\n", position, hit) + 1 or position
        end = text.find("\n", hit, last)
        end = last if end < 0 else end
        if not candidates or search(text, start, end):
            yield start
        position = end + 1


class _Candidates:
    """The places in a text where one of several fixed texts is."""

    def __init__(self, text: str, literals: tuple[str, ...]) -> None:
        self._text = text
        self._next = {literal: text.find(literal) for literal in literals}

    def after(self, position: int) -> int:
        """Position of the next candidate, or -1. Positions must not go back."""
        for literal, hit in self._next.items():
            if 0 <= hit < position:
                self._next[literal] = self._text.find(literal, position)
        return min((hit for hit in self._next.values() if hit >= 0), default=-1)


def _lower_case(text: str) -> str | None:
    """The text in lower case, place by place, with all that is one letter to a search without case."""
    lowered = text.lower()
    if not text.isascii():
        lowered = lowered.replace("ſ", "s")  # noqa: RUF001 - the long s it is
    return lowered if len(lowered) == len(text) else None


class _FileLines:
    """The lines of a file, each printed at most once, and in order."""

    def __init__(self, path: bytes, text: str) -> None:
        self.position = 0
        self._path = path
        self._text = text
        self._number = 1

    def skip_to(self, start: int) -> None:
        self._number += self._text.count("\n", self.position, start)
        self.position = start

    def print(self, mark: str) -> bytes:
        end = self._text.find("\n", self.position)
        end = len(self._text) if end < 0 else end
        shown = self._text[self.position : min(end, self.position + MAX_COLUMNS)]
        line = f"{self._number}{mark}{shown}\n".encode("utf-8", "surrogateescape")
        self._number += 1
        self.position = end + 1
        return self._path + b"\0" + line


def _iter_printed_lines(
    path: bytes, text: str, pattern: LinePattern, context: int
) -> Iterator[tuple[bool, bytes]]:
    """Each line to print, and whether it is one that matches."""
    lines = _FileLines(path, text)
    after = 0
    for start in _matching_lines(text, pattern):
        while after and lines.position < start:
            after -= 1
            yield False, lines.print("-")
        lines.skip_to(max(lines.position, _lines_above(text, start, context)))
        while lines.position < start:
            yield False, lines.print("-")
        yield True, lines.print(":")
        after = context
    while after and lines.position < len(text):
        after -= 1
        yield False, lines.print("-")


def _lines_above(text: str, start: int, count: int) -> int:
    """Offset of the line that is so many lines above the one that starts here, or of the first line."""
    for _ in range(count):
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return start
