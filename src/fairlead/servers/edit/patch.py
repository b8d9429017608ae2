"""Unified diffs: reading a patch as models write them, and applying it to text.

Models miscount lines, so the numbers in hunk headers are a hint: a hunk fits where its context and removed
lines stand, nearest to where its header says. Nothing else is forgiven: every line must be the file's own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.errors import ToolFailed

MAX_HUNKS = 500

_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE = "/dev/null"
_GIT_HEADER = re.compile(r'diff --git (?:a/(.+) b/\1|"a/(.+)" "b/\2")')
_EXTENDED = (
    "rename from",
    "rename to",
    "copy from",
    "copy to",
    "new file mode",
    "deleted file mode",
    "new mode",
)
"""Lines of git's own header that count."""
_EXECUTABLE = "100755"
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """Hunk of a patch: its lines, without line breaks."""

    start: int | None
    """Line of the old file at which it should fit, from 1; None if the header does not say."""
    old: tuple[str, ...]
    """Context and removed lines."""
    new: tuple[str, ...]
    """Context and added lines."""
    old_ends_bare: bool = False
    """Whether the last old line is the file's last and has no line break."""
    new_ends_bare: bool = False


@dataclass(kw_only=True, slots=True)
class FilePatch:
    """Part of a patch about one file."""

    source: str | None
    """Path before; None for a file that is created."""
    target: str | None
    """Path after; None for a file that is deleted."""
    hunks: list[Hunk] = field(default_factory=list["Hunk"])
    is_copy: bool = False
    """Whether the source stays."""
    is_executable: bool = False
    """Whether a new file is one that can be run."""


def parse_patch(text: str) -> list[FilePatch]:
    """Parse a unified diff, as `git diff` or `diff -u` write it.

    Args:
        text: The patch. Words before the first header are skipped.

    Returns:
        One entry for each file, in order.

    Raises:
        ToolFailed: It is not a unified diff.
    """
    lines = text.removesuffix("\n").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    files = list(_Reader(lines).files())
    if not files:
        raise ToolFailed(
            "this is not a unified diff: no file header was found",
            hint="begin each file with `--- a/PATH` and `+++ b/PATH`, then `@@ -1,3 +1,4 @@` and the lines",
        )
    if sum(len(file.hunks) for file in files) > MAX_HUNKS:
        raise ToolFailed(f"the patch has more than {MAX_HUNKS} hunks", hint="apply it in parts")
    return files


class _Reader:
    """Reads the lines of a patch, one after another."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._at = 0

    def files(self) -> Iterator[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                yield from self._git_file()
            elif self._is_file_header(self._at):
                yield self._file()
            elif line.startswith("@@ "):
                raise ToolFailed(
                    f"line {self._at + 1} of the patch is a hunk before any file header",
                    hint="begin each file with `--- a/PATH` and `+++ b/PATH`",
                )
            else:
                self._at += 1

    def _is_file_header(self, at: int) -> bool:
        following = self._lines[at + 1 : at + 2]
        return self._lines[at].startswith("--- ") and bool(following) and following[0].startswith("+++ ")

    def _git_file(self) -> Iterator[FilePatch]:
        """A file that begins with git's own header, which alone tells of renames and empty files."""
        header = self._lines[self._at]
        extended: dict[str, str] = {}
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if self._is_file_header(self._at):
                yield _with_header(self._file(), extended)
                return
            if line.startswith(("diff --git ", "@@ ")):
                break
            if line.startswith(("GIT binary patch", "Binary files ")):
                raise ToolFailed("binary patches cannot be applied")
            for key in _EXTENDED:
                if line.startswith(f"{key} "):
                    extended[key] = line[len(key) + 1 :]
            self._at += 1
        yield from _file_without_hunks(header, extended)

    def _file(self) -> FilePatch:
        source = _header_path(self._lines[self._at][4:], "a/")
        target = _header_path(self._lines[self._at + 1][4:], "b/")
        if source is None and target is None:
            raise ToolFailed(f"line {self._at + 1} of the patch names no file")
        self._at += 2
        file = FilePatch(source=source, target=target)
        while self._at < len(self._lines) and self._lines[self._at].startswith("@@"):
            file.hunks.append(self._hunk())
        return file

    def _hunk(self) -> Hunk:
        header = _HEADER.match(self._lines[self._at])
        self._at += 1
        counts = None
        if header:
            counts = tuple(1 if header[group] is None else int(header[group]) for group in (2, 4))
        body = self._read_counted_body(counts) if counts else None
        if body is None:
            body = self._body_by_marks()
        start = int(header[1]) if header else None
        return _make_hunk(body, start)

    def _read_counted_body(self, counts: tuple[int, ...]) -> list[str] | None:
        """The lines of a hunk by the counts of its header; None where the counts are wrong."""
        old, new = counts
        body: list[str] = []
        at = self._at
        while (old > 0 or new > 0) and at < len(self._lines):
            line = self._lines[at] or " "
            if line[0] not in " +-\\":
                return None
            old -= line[0] in " -"
            new -= line[0] in " +"
            body.append(line)
            at += 1
        if old or new:
            return None
        if at < len(self._lines) and self._lines[at].startswith("\\"):
            body.append(self._lines[at])
            at += 1
        if at < len(self._lines) and self._lines[at][:1] in {" ", "+"}:
            return None  # more of the hunk than was counted
        if at < len(self._lines) and self._lines[at].startswith("-") and not self._is_file_header(at):
            return None
        self._at = at
        return body

    def _body_by_marks(self) -> list[str]:
        body: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(("@@", "diff --git ")) or self._is_file_header(self._at):
                break
            if line and line[0] not in " +-\\":
                break
            body.append(line or " ")
            self._at += 1
        while body and not body[-1].strip():
            body.pop()  # blank lines between this hunk and what follows it
        return body


def _make_hunk(body: Sequence[str], start: int | None) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    bare = {" ": False, "-": False, "+": False}
    last = " "
    for line in body:
        mark, rest = line[0], line[1:]
        if mark == "\\":
            bare[last] = True
            continue
        if mark in " -":
            old.append(rest)
        if mark in " +":
            new.append(rest)
        last = mark
    if not old and not new:
        raise ToolFailed("the patch has a hunk without lines")
    return Hunk(
        start=start,
        old=tuple(old),
        new=tuple(new),
        old_ends_bare=bare["-"] or bare[" "],
        new_ends_bare=bare["+"] or bare[" "],
    )


def _with_header(file: FilePatch, extended: Mapping[str, str]) -> FilePatch:
    """A file's part with what git's own header says of it besides."""
    _require_content_only(extended)
    for kind in ("rename", "copy"):
        if file.source is not None and file.target is not None and f"{kind} from" in extended:
            file.source = _unquote(extended[f"{kind} from"])
            file.target = _unquote(extended.get(f"{kind} to", file.target))
            file.is_copy = kind == "copy"
    file.is_executable = extended.get("new file mode") == _EXECUTABLE
    return file


def _file_without_hunks(header: str, extended: Mapping[str, str]) -> Iterator[FilePatch]:
    """A file that is renamed or copied as it is, or an empty one."""
    _require_content_only(extended)
    for kind in ("rename", "copy"):
        if f"{kind} from" in extended and f"{kind} to" in extended:
            source, target = (_unquote(extended[f"{kind} {end}"]) for end in ("from", "to"))
            yield FilePatch(source=source, target=target, is_copy=kind == "copy")
            return
    both = _GIT_HEADER.fullmatch(header)
    if both is None:
        return
    name = both[1] or _unquote(f'"{both[2]}"')
    if "new file mode" in extended:
        is_executable = extended["new file mode"] == _EXECUTABLE
        yield FilePatch(source=None, target=name, is_executable=is_executable)
    elif "deleted file mode" in extended:
        yield FilePatch(source=name, target=None)


def _require_content_only(extended: Mapping[str, str]) -> None:
    if extended.get("new file mode", "100644") not in ("100644", _EXECUTABLE):
        raise ToolFailed("a patch cannot make links and submodules")
    if "new mode" in extended:
        raise ToolFailed(
            "the permissions of a file cannot be changed",
            hint="leave out the lines `old mode` and `new mode`",
        )


def _header_path(text: str, prefix: str) -> str | None:
    path = _unquote(text.split("\t", 1)[0].strip())
    return None if path == _NO_FILE else path.removeprefix(prefix)


def _unquote(text: str) -> str:
    """A path as it is: git quotes one with letters that are not ASCII, as a string of C."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text

    def unescape(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8) & 0xFF]) if code.isdigit() else _ESCAPES.get(code, code)

    path = _ESCAPE.sub(unescape, text[1:-1].encode())
    try:
        return path.decode()
    except UnicodeDecodeError as exc:
        raise ToolFailed("the patch names a file whose name is no text") from exc


def apply_hunks(text: str, hunks: Sequence[Hunk], shown: str) -> str:
    """The text after all hunks.

    Args:
        text: The file's text, with its line breaks as they are.
        hunks: The hunks, in the order of the file.
        shown: The path, for errors.

    Returns:
        The changed text. Added lines get the line break that most lines of the file have.

    Raises:
        ToolFailed: A hunk fits nowhere after those before it.
    """
    lines = _LINE.findall(text)
    file = _Lines(lines)
    line_break = "\r\n" if sum(line.endswith("\r\n") for line in lines) * 2 > len(lines) else "\n"
    result: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks, 1):
        at = file.find(hunk, done)
        if at is None:
            raise ToolFailed(
                f"hunk {number} of {len(hunks)} does not fit `{shown}`: {file.first_miss(hunk, done)}",
                hint="read the file again and write the patch for what it holds now",
            )
        end = at + len(hunk.old)
        result += lines[done:at]
        result += _replace(lines[at:end], hunk, line_break)
        if end == len(lines) and result and _ends_bare(lines, hunk):
            result[-1] = result[-1].rstrip("\r\n")
        done = end
    return "".join(result + lines[done:])


def _replace(old_lines: Sequence[str], hunk: Hunk, line_break: str) -> list[str]:
    """The new lines of a hunk, each with a line break: its own where the line stays."""
    kept: dict[str, list[str]] = {}
    for plain, line in zip(hunk.old, old_lines, strict=True):
        if line.endswith("\n"):
            kept.setdefault(plain, []).append(line)
    return [kept[plain].pop(0) if kept.get(plain) else plain + line_break for plain in hunk.new]


def _ends_bare(lines: Sequence[str], hunk: Hunk) -> bool:
    """Whether a file whose end a hunk replaces has no line break there afterwards.

    A patch that does not mention that the last line has none leaves that as it is.
    """
    was_bare = bool(lines) and not lines[-1].endswith("\n")
    return hunk.new_ends_bare or (was_bare and not hunk.old_ends_bare)


class _Lines:
    """The lines of a file, to find hunks in. Each hunk is looked for by its rarest line."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._plain = [line.removesuffix("\n").removesuffix("\r") for line in lines]
        self._places: dict[str, list[int]] = {}
        for at, line in enumerate(self._plain):
            self._places.setdefault(line, []).append(at)

    def find(self, hunk: Hunk, first: int) -> int | None:
        """Index of the line at which a hunk fits, nearest to where its header says; None if nowhere."""
        if not hunk.old:
            # Lines to add and no context: after the line that the header names (0 is the beginning).
            return min(len(self._plain), max(first, hunk.start or 0))
        wanted = first if hunk.start is None else max(first, hunk.start - 1)
        offset = min(range(len(hunk.old)), key=lambda index: len(self._places.get(hunk.old[index], ())))
        starts = [at - offset for at in self._places.get(hunk.old[offset], ()) if at - offset >= first]
        for at in sorted(starts, key=lambda start: abs(start - wanted)):
            if tuple(self._plain[at : at + len(hunk.old)]) == hunk.old:
                return at
        return None

    def first_miss(self, hunk: Hunk, first: int) -> str:
        """The first line that keeps a hunk from fitting, for an error."""
        for line in hunk.old:
            if max(self._places.get(line, (-1,))) < first:
                where = " after the hunk before" if first else ""
                return f"there is no line `{line.strip()[:120]}`{where}"
        return "its lines do not stand together there"
