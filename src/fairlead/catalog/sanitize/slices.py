"""Processing of JSON of any size in slices, so that the event loop is not blocked.

A function whose name ends in `_steps` returns a generator that pauses after `STEP_SECONDS`. In the event loop
`run` drives it and lets other tasks run in between; `finish` runs one to its end at once.
"""

import asyncio
import json
import math
import re
import secrets
import string
import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import msgspec

from fairlead.config.untyped import is_object

MAX_VALUES = 20_000
"""Most JSON values that are parsed at once. More would block the event loop too long."""
MAX_OPENED_BYTES = 16 * 1024 * 1024
"""A larger message is never parsed: the result would take several times as much memory."""
MAX_PARSED_BYTES = 2 * 1024 * 1024
"""Bytes of any JSON that a native parser reads within a step. Long strings are taken out before."""
STEP_SECONDS = 0.002
SLICE_BYTES = 65_536
TEXT_AT_ONCE = 8192
_LONG_LITERAL = 4096

ResultT = TypeVar("ResultT")
Steps = Generator[None, None, ResultT]


def finish(steps: "Steps[ResultT]") -> ResultT:
    """Run steps to their end, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def run(steps: "Steps[ResultT]") -> ResultT:
    """Run steps to their end, and let the event loop serve other tasks in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)


class SliceTimer:
    """Clock of one step."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + STEP_SECONDS

    def is_over(self) -> bool:
        """Whether it is time to pause. The next step begins with this answer."""
        now = time.perf_counter()
        if now < self._until:
            return False
        self._until = now + STEP_SECONDS
        return True


def decode(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON, even where its strings hold lone surrogates or invalid UTF-8."""
    if not has_slow_numbers(raw):
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # the other parser reports the error, if it cannot parse it either
    return json.loads(raw.decode(errors="replace"), strict=False, parse_constant=_refuse)


def decode_finite(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON as strictly as `msgspec`, in bounded time: a number beyond the range of floats is refused.

    Raises:
        ValueError: It is not JSON, or has such a number.
        RecursionError: It is nested too deeply.
    """
    if not has_slow_numbers(raw):
        return msgspec.json.decode(raw)
    return json.loads(raw.decode(), parse_float=_read_float, parse_constant=_refuse)


def _read_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def has_slow_numbers(raw: bytes) -> bool:
    """Whether JSON has so many numbers of a costly kind that `msgspec` parses it slowly.

    It takes 16 µs for a number near the limits of a double such as `1e300`, and so two seconds for a megabyte
    of them, in which no other thread can run; and as long for one of hundreds of digits. Python's own parser
    takes a fiftieth of that. Exponents of two digits cost nothing.
    """
    if len(raw) <= _QUICK_BYTES:
        return False
    # A tenth of what a regular expression takes. Without most letters there is less to search; that some text
    # looks like numbers then costs a little time, and nothing else.
    numbers = raw.translate(_NUMBERS, _SIGNS_AND_LETTERS)
    return numbers.count(b"0e000") > _MAX_EXPONENTS or numbers.count(_LONG_NUMBER) > _MAX_LONG_NUMBERS


_NUMBERS = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNS_AND_LETTERS = b"+-" + bytes(set(string.ascii_letters.encode()) - set(b"abcdefABCDEF"))
"""Left out of the search. The letters that stay are in digests, where they keep digits apart."""
_QUICK_BYTES = 4096
_MAX_EXPONENTS = 500
_LONG_NUMBER = b"0" * 128
_MAX_LONG_NUMBERS = 1000


def has_more_values_steps(text: bytes | bytearray | memoryview, limit: int) -> "Steps[bool]":
    """Whether JSON text has more than `limit` values, without decoding it.

    Decoding time depends on the number of values, not on their size: 8 MiB of `[],` take seconds. Brackets
    and commas outside strings are counted, and the strings; invalid text gives some number, in bounded time.
    """
    turn, count, quotes, carried = SliceTimer(), 0, 0, b""
    for start in range(0, len(text), SLICE_BYTES):
        piece = carried + bytes(text[start : start + SLICE_BYTES])
        carried = b""
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, carried = piece[:-1], b"\\"
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        quotes += len(parts) - 1
        if count + quotes // 2 > limit:
            return True
        if turn.is_over():
            yield
    return False


def has_more_values(text: bytes | bytearray | memoryview, limit: int) -> bool:
    """Like `has_more_values_steps`, at once, for a message of bounded size."""
    return finish(has_more_values_steps(text, limit))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def boundary(raw: bytes, place: int) -> int:
    """The offset, or the nearest before it that splits no UTF-8 character."""
    if place >= len(raw):
        return len(raw)
    for back in range(4):
        if raw[place - back] & 0xC0 != 0x80:
            return place - back
    return place  # no UTF-8


class SlicedDocument:
    """JSON document parsed in two parts: its long strings in pieces, and all else at once.

    `short` is the document with a random placeholder for each long string.
    """

    def __init__(self, raw: bytes) -> None:
        self.short = raw
        self._raw = raw
        self._word = f"long-{secrets.token_hex(8)}-"
        self._places: dict[str, tuple[int, int]] = {}

    def take_out_steps(self) -> "Steps[bool]":
        """Take the long strings out. False where the rest is still too large to be parsed."""
        if len(self._raw) <= _LONG_LITERAL:
            return True
        turn, parts, start, count = SliceTimer(), list[bytes](), 0, 0
        for begin, end in literals(self._raw):
            if turn.is_over():
                yield
            if begin < 0:
                continue
            count += 1 + _structure(self._raw, start, begin)
            if count > MAX_VALUES:
                return False
            if end - begin > _LONG_LITERAL:
                word = f"{self._word}{len(self._places)}"
                self._places[word] = (begin, end)
                parts += (self._raw[start:begin], b'"%b"' % word.encode())
                start = end
            else:
                parts.append(self._raw[start:end])
                start = end
        parts.append(self._raw[start:])
        self.short = b"".join(parts)
        return (
            count + _structure(self._raw, start, len(self._raw)) <= MAX_VALUES
            and len(self.short) <= MAX_PARSED_BYTES
            and not has_slow_numbers(self.short)
        )

    def has_any(self, raw: bytes) -> bool:
        """Whether a part of `short` has any placeholder."""
        return bool(self._places) and self._word.encode() in raw

    def stands_in(self, text: str) -> bool:
        """Whether this text is a placeholder."""
        return text in self._places

    def size(self, word: str) -> int:
        """Size of the long text in JSON, in bytes."""
        begin, end = self._places[word]
        return end - begin

    def pieces(self, word: str) -> Iterator[str]:
        """The long text of a placeholder, in pieces."""
        return self.pieces_of(*self._places[word])

    def pieces_of(self, begin: int, end: int) -> Iterator[str]:
        """Text of the string between two offsets, in pieces."""
        start, last = begin + 1, end - 1
        while start < last:
            place = _safe_cut(self._raw, start, start + 4 * TEXT_AT_ONCE, last)
            piece: object = decode(b'"%b"' % self._raw[start:place])
            yield str(piece)
            start = place


def _structure(raw: bytes, start: int, end: int) -> int:
    return raw.count(b",", start, end) + raw.count(b"[", start, end) + raw.count(b"{", start, end)


def _safe_cut(raw: bytes, start: int, place: int, last: int) -> int:
    """Offset at which a JSON string can be cut: not in an escape, a character or a surrogate pair."""
    if place >= last:
        return last
    place = boundary(raw, place)
    slash = raw.rfind(b"\\", max(start, place - 12), place)
    if slash >= 0:
        slashes = _slashes_before(raw, start, slash + 1)
        place = slash + 1 - slashes
        if place <= start:
            return start + slashes // 2 * 2 if slashes > 1 else min(start + 12, last)
    if place - 6 > start and _HIGH_SURROGATE.match(raw, place - 6):
        place -= 6
    return place


_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]")


def literals(raw: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each string of a JSON document; (-1, -1) where finding an end took long."""
    turn = SliceTimer()
    end = 0
    while (begin := raw.find(b'"', end)) >= 0:
        end = begin + 1
        while True:
            end = raw.find(b'"', end) + 1
            if end == 0:
                return  # unterminated
            if raw[end - 2] != 0x5C or _slashes_before(raw, begin + 1, end - 1) % 2 == 0:
                break
            if turn.is_over():
                yield -1, -1
        yield begin, end


def _slashes_before(raw: bytes, begin: int, place: int) -> int:
    size = 64
    while True:  # no further back than the run of backslashes: there may be as many runs as quotes
        start = max(begin, place - size)
        other = len(raw[start:place].rstrip(b"\\"))
        if other or start == begin:
            return place - start - other
        size *= 4


CONSTANT_NOTE = "[NaN and Infinity are not JSON: null stands in for them]"
_CONSTANT = re.compile(rb"-?\b(?:NaN|Infinity)\b")


def may_have_constants(raw: bytes) -> bool:
    """Whether there may be `NaN` or `Infinity` in text that should be JSON. In a string they are valid."""
    # Looking for one byte takes a fiftieth of the time of several.
    return (b"N" in raw and b"NaN" in raw) or (b"I" in raw and b"Infinity" in raw)


def without_constants_steps(raw: bytes) -> "Steps[bytes]":
    """Replace each `NaN` and `Infinity` by `null`; returns the same object where there is none.

    Python's `json.dumps` writes them, and a strict parser refuses all of a message that has one.
    """
    for start in range(0, len(raw), 16 * SLICE_BYTES):
        if may_have_constants(raw[start : start + 16 * SLICE_BYTES + len(b"Infinity")]):
            break
        yield
    else:
        return raw
    turn, parts, start, kept = SliceTimer(), list[bytes](), 0, 0
    for begin, end in _literals_to_end(raw):
        if turn.is_over():
            yield
        if begin < 0:
            continue
        if begin - start > 2 and _CONSTANT.search(raw, start, begin):
            parts += (raw[kept:start], _CONSTANT.sub(b"null", raw[start:begin]))
            kept = begin
        start = end
    return b"".join((*parts, raw[kept:])) if parts else raw


_HIGH, _LOW = rb"[89abAB][0-9a-fA-F]{2}", rb"[c-fC-F][0-9a-fA-F]{2}"
# Begins with the common prefix of both, which is found ten times as fast.
_LONE_SURROGATE = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)


def without_lone_surrogates(raw: bytes | bytearray, most: int = 0) -> bytes | bytearray:
    """Replace each escape of a lone surrogate by U+FFFD; the same object if there is none, or `most` are.

    JavaScript writes such escapes where it cut a text inside an emoji, Python for a file name that is not
    UTF-8, and no strict parser takes them.
    """
    if b"\\" not in raw or b"\0" in raw or (b"\\ud" not in raw and b"\\uD" not in raw):
        return raw
    # Every backslash left after this begins an escape.
    escapes = raw.replace(b"\\\\", b"\0\0")
    sound, count = _LONE_SURROGATE.subn(rb"\\ufffd", escapes, most)
    return sound.replace(b"\0\0", b"\\\\") if count and count != most else raw


def without_lone_surrogates_steps(raw: bytes) -> "Steps[bytes]":
    """Replace each escape of a lone surrogate in JSON of any size; the same object if there is none."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw
    parts, start = list[bytes | bytearray](), 0
    while start < len(raw):
        end = _safe_cut(raw, start, start + SLICE_BYTES, len(raw))
        parts.append(without_lone_surrogates(raw[start:end]))
        start = end
        yield
    sound = b"".join(parts)
    return sound if sound != raw else raw


def _literals_to_end(raw: bytes) -> Iterator[tuple[int, int]]:
    yield from literals(raw)
    yield len(raw), len(raw)


def join_steps(pieces: Iterator[str]) -> "Steps[str]":
    """Join the pieces of a text."""
    turn, joined = SliceTimer(), list[str]()
    for piece in pieces:
        joined.append(piece)
        if turn.is_over():
            yield
    return "".join(joined)


def encode_steps(value: Any) -> "Steps[bytes]":  # noqa: ANN401 - any JSON value
    """Encode a value whose texts may be long. The value is consumed: its long texts are taken out of it."""
    if isinstance(value, str):
        return b"".join((yield from literal_steps(value)))
    word, long = f"long-{secrets.token_hex(8)}-", list[str]()
    waiting: list[Any] = [value] if isinstance(value, (dict, list)) else []
    while waiting:
        holder = waiting.pop()
        items: Any = holder.items() if is_object(holder) else enumerate(holder)
        for place, item in [*items]:
            if isinstance(item, str) and len(item) > SLICE_BYTES:
                holder[place] = f"{word}{len(long)}"
                long.append(item)
            elif isinstance(item, (dict, list)):
                waiting.append(item)
    encoded = msgspec.json.encode(value)
    if not long:
        return encoded
    parts = re.split(rb'"%b(\d+)"' % word.encode(), encoded)
    whole: list[bytes] = []
    for place, part in enumerate(parts):
        whole += (yield from literal_steps(long[int(part)])) if place % 2 else (part,)
    yield
    return b"".join(whole)


def literal_steps(text: str) -> "Steps[list[bytes]]":
    """Encode a text of any length as a JSON string, in parts."""
    if len(text) <= SLICE_BYTES:
        return [msgspec.json.encode(text)]
    turn, parts = SliceTimer(), [b'"']
    for start in range(0, len(text), SLICE_BYTES):
        parts.append(msgspec.json.encode(text[start : start + SLICE_BYTES])[1:-1])
        if turn.is_over():
            yield
    return [*parts, b'"']


_FEW_QUOTES = 48


def mentions(raw: bytes, *names: bytes) -> bool:
    """Whether any of these strings, given with quotes, is in the JSON."""
    if len(raw) > _FEW_QUOTES * _FEW_QUOTES:
        # From quote to quote, at memory speed: a large result is mostly one long string.
        place = -1
        for _ in range(_FEW_QUOTES):
            place = raw.find(b'"', place + 1)
            if place < 0:
                return False
            if raw.startswith(names, place):
                return True
    for name in names:  # noqa: SIM110 - a loop, and from the end: both take a third of the time
        if raw.rfind(name) >= 0:
            return True
    return False


def may_have_string(raw: bytes, *quoted: bytes) -> bool:
    """Whether one of these strings, given with quotes, may be in JSON as a key or a value. A no is certain.

    It may be spelled with escapes. One byte is found at memory speed, so a text without a backslash, as most
    are, is not searched for them.
    """
    return mentions(raw, *quoted) or (raw.find(b"\\") >= 0 and raw.rfind(b"\\u00") >= 0)
