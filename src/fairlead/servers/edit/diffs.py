"""Diffs of changes, for the user who decides about them: no change is left out without a word."""

import codecs
import difflib
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from fairlead.servers.edit.changes import Change

MAX_DIFF_LINES: Final = 400
MAX_DIFF_CHARACTERS: Final = 20_000
_MAX_COMPARED_LINES: Final = 20_000
"""The time of a comparison grows with the square of the lines."""
_CONTEXT_LINES: Final = 3
_HUNK: Final = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def moves_in(changes: Sequence[Change]) -> list[tuple[Change, Change]]:
    """Pairs of a deleted and a new file with the same content, in any form of a change.

    Args:
        changes: The changes of one step.
    """
    pairs: list[tuple[Change, Change]] = []
    created = [change for change in changes if change.before is None]
    for gone in (change for change in changes if change.after is None):
        new = next((change for change in created if change.after == gone.before), None)
        if new is not None:
            created.remove(new)
            pairs.append((gone, new))
    return pairs


def render_diff(changes: Sequence[Change]) -> tuple[str, bool]:
    """The changes as a unified diff, and whether it was cut.

    Args:
        changes: The changes; a file that is moved unchanged is left out.
    """
    lines: list[str] = []
    size = 0
    moved = {change.names for pair in moves_in(changes) for change in pair}
    for change in changes:
        if change.names in moved:
            continue
        found, is_cut = _diff_lines(change)
        for line in found:
            size += len(line) + 1
            if len(lines) >= MAX_DIFF_LINES or size > MAX_DIFF_CHARACTERS:
                return "\n".join(lines), True
            lines.append(line)
        if is_cut:
            return "\n".join(lines), True
    return "\n".join(lines), False


def _diff_lines(change: Change) -> tuple[list[str], bool]:
    """The lines of a file's diff, and whether more differs than they show."""
    old, new = _lines_of(change)
    if old is None or new is None:
        return [f"Binary file {change.shown} differs"], False
    names = (
        "/dev/null" if change.before is None else f"a/{change.shown}",
        "/dev/null" if change.after is None else f"b/{change.shown}",
    )
    first, is_cut = 0, False
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        first, old, new = _without_common_ends(old, new)
        is_cut = len(old) + len(new) > _MAX_COMPARED_LINES
        if is_cut:
            old, new = old[:MAX_DIFF_LINES], new[:MAX_DIFF_LINES]
    lines = list(difflib.unified_diff(old, new, *names, lineterm=""))
    lines = lines or [f"--- {names[0]}", f"+++ {names[1]}"]  # an empty file, new or deleted
    return [_HUNK.sub(partial(_shift_head, first), line) if first else line for line in lines], is_cut


def _shift_head(count: int, hunk: re.Match[str]) -> str:
    """The head of a hunk, moved so many lines further down."""
    old, new = int(hunk[1]) + count, int(hunk[3]) + count
    return f"@@ -{old}{hunk[2] or ''} +{new}{hunk[4] or ''} @@"


def _lines_of(change: Change) -> tuple[list[str] | None, list[str] | None]:
    """The lines before and after, such that they differ wherever the bytes do; None for what is no text."""
    old, new = (_text_of(data) for data in (change.before, change.after))
    if old is None or new is None:
        return None, None
    if all(text.count("\n") == text.count("\r\n") for text in (old, new)):
        old, new = (text.replace("\r\n", "\n") for text in (old, new))  # nothing to tell line by line
    return _split_lines(old), _split_lines(new)


def _text_of(data: bytes | None) -> str | None:
    data = data or b""
    encoding = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)
    if encoding is None and b"\0" in data:
        return None
    try:
        return data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # every byte is a character of its own


def _split_lines(text: str) -> list[str]:
    # Not `splitlines`, for which many characters end a line that end none for other programs.
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _without_common_ends(old: list[str], new: list[str]) -> tuple[int, list[str], list[str]]:
    """Lines between a common beginning and end, with some context, and the number left out before."""
    shorter = min(len(old), len(new))
    begin = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    most = shorter - begin
    end = next((at for at in range(most) if old[-1 - at] != new[-1 - at]), most)
    begin, end = max(begin - _CONTEXT_LINES, 0), max(end - _CONTEXT_LINES, 0)
    return begin, old[begin : len(old) - end], new[begin : len(new) - end]
