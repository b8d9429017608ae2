"""From an open file to its text, or a part of it, without reading more of the disk than that takes.

The encoding is told by a byte order mark. Without one it is UTF-8, or Latin-1 where that cannot be: there
every byte is some character. Each part is judged by itself. A zero byte near the beginning means: no text.
"""

import codecs
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fairlead.errors import ToolFailed
from fairlead.servers.opened import OpenFile

Encoding = Literal[
    "utf-8",
    "utf-8-sig",
    "utf-8-replaced",
    "utf-16-le",
    "utf-16-be",
    "utf-32-le",
    "utf-32-be",
    "latin-1",
    "binary",
]

# Those of UTF-32 come first: one of them begins with that of UTF-16.
_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNITS = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
_NEVER_TEXT = (b"%PDF-", b"PK\x03\x04", b"\x1f\x8b")
_INSIDE_A_CHARACTER = re.compile(rb"[\x80-\xbf]{0,3}")

_HEAD_BYTES = 8192
_BLOCK_BYTES = 1 << 16
_FARTHEST_LINE = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What the beginning of a file tells about all of it."""

    encoding: Encoding
    mark: bytes = b""
    image_type: str | None = None

    @property
    def unit(self) -> int:
        """How many bytes the shortest character takes."""
        return _UNITS.get(self.encoding, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    """A part of a file's text."""

    text: str
    encoding: Encoding
    is_cut: bool
    """Whether there is more of what was asked for."""
    end: int | None
    """The offset at which it ends, where that is known."""


def read_head(file: OpenFile) -> Head:
    """Look at the beginning of a file."""
    data = read_bytes(file, _HEAD_BYTES)
    for magic, image_type in _IMAGES:
        if magic.match(data):
            return Head(encoding="binary", image_type=image_type)
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    if data.startswith(_NEVER_TEXT) or "\0" in data.decode(encoding, "ignore"):
        return Head(encoding="binary")
    return Head(encoding=encoding, mark=mark)


def read_bytes(file: OpenFile, count: int, start: int = 0) -> bytes:
    """Up to `count` bytes from `start`; fewer where the file ends."""
    os.lseek(file.fd, start, os.SEEK_SET)
    left = min(count, file.stat.st_size - start)
    blocks: list[bytes] = []
    while left > 0 and (block := os.read(file.fd, left)):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def read_part(file: OpenFile, head: Head, *, offset: int, max_bytes: int) -> Excerpt:
    """The text from an offset on, up to `max_bytes` of the file, in whole characters and at least one."""
    size = file.stat.st_size
    if offset > size:
        raise ToolFailed(f"offset {offset} is past the end: `{file.shown}` has {size} bytes")
    start = max(offset + -offset % head.unit, len(head.mark))
    data = read_bytes(file, max_bytes, start)
    is_cut = start + len(data) < size
    text, encoding, used = _decoded(data, head.encoding, is_cut=is_cut, may_begin_inside=offset > 0)
    if not used and len(data) == max_bytes:
        return read_part(file, head, offset=offset, max_bytes=max_bytes + 1)
    return Excerpt(text=text, encoding=encoding, is_cut=is_cut, end=start + used)


def read_lines(file: OpenFile, head: Head, *, first: int, last: int | None, max_bytes: int) -> Excerpt:
    """The text of some lines, counted from 1, up to `max_bytes` of it; all that follow without a last one."""
    blocks = _blocks(file, head)
    skipped, rest = _skip_lines(blocks, first - 1, file.shown)
    count = None if last is None else last - first + 1
    data, is_cut = _take_lines(itertools.chain([rest], blocks), count, max_bytes)
    if first > 1 and not data:
        raise _too_few_lines(file.shown, first - 1)
    if head.unit > 1:
        text, _, _ = _decoded(data, "utf-8", is_cut=is_cut)
        return Excerpt(text=text, encoding=head.encoding, is_cut=is_cut, end=None)
    text, encoding, used = _decoded(data, head.encoding, is_cut=is_cut)
    return Excerpt(text=text, encoding=encoding, is_cut=is_cut, end=len(head.mark) + skipped + used)


def _blocks(file: OpenFile, head: Head) -> Iterator[bytes]:
    """The file after its mark, a block at a time; in UTF-8 where a line break takes more than a byte."""
    decoder = codecs.getincrementaldecoder(head.encoding)("replace") if head.unit > 1 else None
    position = os.lseek(file.fd, len(head.mark), os.SEEK_SET)
    while block := os.read(file.fd, _BLOCK_BYTES):
        yield decoder.decode(block).encode() if decoder else block
        position += len(block)
        if position > _FARTHEST_LINE:
            raise ToolFailed(
                f"those lines are too far down in `{file.shown}` to be counted", hint="use an offset instead"
            )


def _skip_lines(blocks: Iterator[bytes], count: int, shown: str) -> tuple[int, bytes]:
    """How many bytes the first lines take, and what follows them in the block where they end."""
    found, length, block = 0, 0, b""
    for block in blocks:
        breaks = block.count(b"\n")
        if found + breaks >= count:
            rest = block.split(b"\n", count - found)[-1]
            return length + len(block) - len(rest), rest
        found, length = found + breaks, length + len(block)
    if count:
        raise _too_few_lines(shown, found + bool(block and not block.endswith(b"\n")))
    return 0, b""


def _take_lines(blocks: Iterator[bytes], count: int | None, max_bytes: int) -> tuple[bytes, bool]:
    """Some lines, or as much of them as is wanted, and whether that is not all."""
    taken = bytearray()
    for block in blocks:
        if count is not None and (breaks := block.count(b"\n")) < count:
            count -= breaks
            taken += block
        elif count is not None:
            taken += block[: len(block) - len(block.split(b"\n", count)[-1])]
            break
        else:
            taken += block
        if len(taken) > max_bytes:
            break
    return bytes(taken[:max_bytes]), len(taken) > max_bytes


def _too_few_lines(shown: str, count: int) -> ToolFailed:
    return ToolFailed(f"`{shown}` has only {count} {'line' if count == 1 else 'lines'}")


def _decoded(
    data: bytes, encoding: Encoding, *, is_cut: bool, may_begin_inside: bool = False
) -> tuple[str, Encoding, int]:
    """The text, how it was encoded, and how many bytes that took: a character that is cut off is left out."""
    if encoding in _UNITS:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        text = decoder.decode(data, final=not is_cut)
        return text, encoding, len(data) - len(decoder.getstate()[0])
    inside = _INSIDE_A_CHARACTER.match(data) if may_begin_inside else None
    begin = inside.end() if inside else 0
    try:
        text, used = codecs.utf_8_decode(data[begin:], "strict", not is_cut)
    except UnicodeDecodeError:
        return _decoded_anyway(data, is_cut=is_cut)
    return text, encoding, begin + used


def _decoded_anyway(data: bytes, *, is_cut: bool) -> tuple[str, Encoding, int]:
    """The text of what is not all UTF-8: UTF-8 with a few faults, or no UTF-8 at all."""
    text, used = codecs.utf_8_decode(data, "replace", not is_cut)
    faults = text.count("\N{REPLACEMENT CHARACTER}")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    if beyond_ascii > 2 * faults:
        return text, "utf-8-replaced", used
    return data.decode("latin-1"), "latin-1", len(data)
