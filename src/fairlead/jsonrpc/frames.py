"""JSON-RPC framing without I/O: a byte stream becomes lines, and a line becomes frames.

`params`, `result` and `error` stay the bytes received until they are needed, so a result can be passed on
without a model or a dict being built. Nothing a peer sends can break `parse`: a line is a `Frame` or an
`UnusableLine`, which names the request it was meant to answer where that shows, because a caller that gets an
error at once is better off than one that waits.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import (
    CONSTANT_NOTE,
    finish,
    has_more_values,
    may_have_constants,
    without_constants_steps,
    without_lone_surrogates,
)
from fairlead.jsonrpc.limits import (
    MAX_DECODED_BYTES,
    MAX_LINE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_VALUES,
    LineTooLong,
)

RequestId: TypeAlias = str | int
"""The SDK has the same type; it is not imported, since commands that read a stream load no SDK."""

MAX_BATCH_BYTES = 1024 * 1024
MAX_BATCH_MESSAGES = 1_000
"""Largest batch (2025-03-26 has them): all of one is processed at once."""

_EXCERPT_BYTES = 2_000
"""Bytes kept of an invalid line, without those that masking a secret at its end needs."""
_HEAD_BYTES, _TAIL_BYTES = 4096, 512
_LARGE_BYTES = 256 * 1024
_LONG_TEXT_BYTES = 64 * 1024
_MAX_REPAIRED_BYTES = 256 * 1024
_MAX_SURROGATE_BYTES, _MAX_SURROGATES = 1024 * 1024, 20_000
"""In larger data, or with more lone surrogates, they stay: replacing them would block the event loop."""
_SPLIT_BYTES = 16 * 1024
"""Up to this size data may be nothing but newlines: larger data is split before it comes here."""
MAX_SKIPPED = 32
"""Most bytes of a message that are skipped, in multiples of the limit; beyond it the stream has failed."""
_MESSAGE_BEGINS = re.compile(rb"\s*\{")


class LineSplitter:
    """Splits a byte stream at newlines, in linear time and within a limit, in any chunking.

    A message past the limit costs only itself: only as much of it is kept as shows which request it answers.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._skipped = 0
        """Bytes dropped of the current line; more than zero once it is past the limit."""
        self.completed = 0
        """Lines that ended in the last chunk, empty ones included."""

    def feed(self, data: bytes) -> Iterator["bytes | bytearray | UnusableLine"]:
        """Yield the lines that `data` completes, without newline and without empty ones.

        Raises:
            LineTooLong: A line past the limit is no message, or does not end, so that the stream cannot be
                followed any further. Raised after the lines before it.
        """
        lines = _split(data)
        tail = lines.pop()
        self.completed = len(lines)
        if lines and self._partial:
            self._partial += lines[0]
            lines[0], self._partial = self._partial, bytearray()
        for line in lines:
            if self._skipped or len(line) > self._limit:
                yield self._long_line(bytearray(line))
                self._skipped = 0
            elif line:
                yield line
        if tail:
            self._partial += tail
            if self._skipped or len(self._partial) > self._limit:
                self._partial = self._ends_of(self._partial)

    def finish(self) -> Iterator["bytes | bytearray | UnusableLine"]:
        """Yield the last line, if the stream ended without a newline."""
        partial, self._partial = self._partial, bytearray()
        if partial:
            yield self._long_line(partial) if self._skipped else partial

    def _long_line(self, line: bytearray) -> "UnusableLine":
        return too_long(self._ends_of(line), self._limit)

    def _ends_of(self, line: bytearray) -> bytearray:
        """Beginning and end of a line past the limit."""
        # Only what any chunking has kept of it by now: the answer must not depend on how the bytes arrived.
        if not _MESSAGE_BEGINS.match(line, 0, min(self._limit + 1, _HEAD_BYTES)):
            raise LineTooLong(self._limit)
        ends = ends_of(line)
        self._skipped += len(line) - len(ends)
        if self._skipped > MAX_SKIPPED * self._limit:
            raise LineTooLong(self._limit)
        return ends


def ends_of(message: bytes | bytearray) -> bytearray:
    """Beginning and end of a message past the limit: enough to see which request it answers."""
    return bytearray(message[:_HEAD_BYTES]) + message[max(_HEAD_BYTES, len(message) - _TAIL_BYTES) :]


def too_long(ends: bytes | bytearray, limit: int) -> "UnusableLine":
    """Unusable line for a message past the limit, given its ends (`ends_of`), with the request it answers."""
    return _unusable(ends, str(LineTooLong(limit)))


def _split(data: bytes) -> list[bytes | bytearray]:
    """Split at newlines like `split`, which visits every byte; `find` runs at memory speed."""
    if len(data) <= _SPLIT_BYTES:
        return [*data.split(b"\n")]
    lines: list[bytes | bytearray] = []
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        lines.append(data[start:end])
        start = end + 1
    lines.append(data[start:])
    return lines


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as received: a request (`method` and `id`), a notification (`method`) or an answer (`id`).

    An absent member is empty. A float is no valid id, yet `1.0` finds the call `1` and can be echoed, so it
    is accepted.
    """

    id: int | float | str | None = None
    """None for a notification, and for an invalid request with the id null (see `has_null_id`)."""
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, kw_only=True, slots=True)
class UnusableLine:
    """A line that is no usable message.

    `answers` is the id of the request of ours it was meant for, `asks` that of one the peer waits for.
    """

    reason: str
    excerpt: bytes
    answers: RequestId | None = None
    asks: RequestId | None = None


_decode_frame = msgspec.json.Decoder(Frame).decode
_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode

# What may precede a message on its line: a byte order mark, terminal escape sequences, blanks.
_LEFTOVERS = re.compile(rb"(?:\xef\xbb\xbf|\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x20])*")
_SCALAR = rb'(?:"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*|[a-zA-Z]+)'
_MEMBER = re.compile(rb'\s*[{,]\s*"(\w+)"\s*:\s*(' + _SCALAR + rb")?")
_LAST_MEMBERS = re.compile(rb'(?:,\s*"(?:jsonrpc|id|method)"\s*:\s*' + _SCALAR + rb"\s*)+\}\s*\Z")
_LISTS = frozenset(("tools", "resources", "resourceTemplates", "prompts", "contents", "messages"))
"""Members of answers with many parts, of which one bad number must not cost the others."""
_CONSTANT_NOTE = {"type": "text", "text": CONSTANT_NOTE}
_RESULT_BEGINS = re.compile(
    rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*' + _SCALAR + rb'\s*,\s*)*"result"\s*:\s*(?=\{)'
)
_USUAL_ANSWER = re.compile(rb'\{"jsonrpc": ?"2\.0", ?"id": ?(0|[1-9][0-9]{0,14}), ?"result": ?(?=\{)')
_RESULT_ENDS = re.compile(rb'(?<=\})\s*(?:,\s*"(?:jsonrpc|id)"\s*:\s*' + _SCALAR + rb"\s*)*\}\s*\Z")


def parse(line: bytes | bytearray) -> list[Frame | UnusableLine]:
    """Parse one line: usually one message, several in a batch, none if it is blank."""
    is_large = len(line) > _LARGE_BYTES
    if is_large or _is_long_text(line):
        line = _without_lone_surrogates(line)  # here and not on failure: nothing decodes it here
        if (answer := _large_answer(line)) is not None:
            return [answer]
    if is_large and (message := _large_message(line)) is not None:
        return [message]
    try:
        if not line.isascii():
            line = _repair_utf8(line)
        return [_decode_frame(line)]
    except (ValueError, RecursionError) as exc:
        sound = _without_lone_surrogates(line)
        return parse(sound) if sound is not line else _salvage(line, str(exc))


def _is_long_text(line: bytes | bytearray) -> bool:
    """Whether this is nearly nothing but one long string. Then nothing in it can be nested or many."""
    end = len(line) - _TAIL_BYTES
    return (
        end > _LONG_TEXT_BYTES
        and line.find(b"[", _HEAD_BYTES, end) < 0
        and line.find(b"{", _HEAD_BYTES, end) < 0
    )


def _large_message(line: bytes | bytearray) -> Frame | UnusableLine | None:
    """Parse a large message: an answer without its result, all else only where it can be decoded quickly.

    The envelope is always decoded natively; parameters of a request or notification, to objects.
    """
    try:
        frame = _decode_frame(line if line.isascii() else _repair_utf8(line))
    except (ValueError, RecursionError):
        frame = None
    if frame is not None and frame.method is None:
        return frame
    most = MAX_DECODED_BYTES if frame is not None and frame.id is None else MAX_MESSAGE_BYTES
    if len(line) > most:
        return _unusable(line, f"it is longer than {most} bytes and not a plain answer")
    if has_more_values(line, MAX_VALUES):
        return _unusable(line, f"it has more than {MAX_VALUES} values")
    return frame


def _large_answer(line: bytes | bytearray) -> Frame | None:
    """Frame of an answer with a large result, parsed from both of its ends.

    Parsing all of it would block the event loop noticeably. An error inside shows when the result is parsed,
    as in a small one.
    """
    usual = _USUAL_ANSWER.match(line, 0, _HEAD_BYTES)
    if usual is not None and line.endswith(b"}}"):
        # The id comes first and nothing after the result: parsing these ends takes a tenth of the time.
        return Frame(id=int(usual[1]), result=msgspec.Raw(memoryview(line)[usual.end() : -1]))
    head = _RESULT_BEGINS.match(line, 0, _HEAD_BYTES)
    end = _RESULT_ENDS.search(line, len(line) - _TAIL_BYTES)
    request_id = _request_id(_outer_members(line).get(b"id", b""))
    if head is None or end is None or request_id is None:
        return None
    return Frame(id=request_id, result=msgspec.Raw(memoryview(line)[head.end() : end.start()]))


def _repair_utf8(line: bytes | bytearray) -> bytes | bytearray:
    try:
        line.decode()
    except UnicodeDecodeError:
        if len(line) > _MAX_REPAIRED_BYTES:
            raise
        return line.decode(errors="replace").encode()
    return line


def _without_lone_surrogates(line: bytes | bytearray) -> bytes | bytearray:
    """Replace each escape of a lone surrogate by U+FFFD; returns the same object if there is none."""
    return line if len(line) > _MAX_SURROGATE_BYTES else without_lone_surrogates(line, _MAX_SURROGATES)


def _salvage(line: bytes | bytearray, reason: str) -> list[Frame | UnusableLine]:
    found = _LEFTOVERS.match(line, 0, _HEAD_BYTES)
    text = line[found.end() :] if found else line
    match text[:1], len(text) < len(line):
        case b"", _:
            return []
        case b"{", True:
            return parse(text)
        case b"{", False:
            return [_answer_with_constants(text) or _unusable(text, reason)]
        case b"[", _:
            return _batch(text, reason)
        case _:
            return [UnusableLine(reason=reason, excerpt=_excerpt(line))]


def _answer_with_constants(text: bytes | bytearray) -> Frame | None:
    """Parse an answer with `null` for its values that are `NaN` or `Infinity`.

    Python's `json.dumps` writes them. One number must not cost a whole result, nor one default in a schema a
    whole list. In a tool's result a text says so. In a request they stay an error.
    """
    if len(text) > _MAX_REPAIRED_BYTES or not may_have_constants(bytes(text)):
        return None
    try:
        frame = _decode_frame(finish(without_constants_steps(bytes(text))))
        if frame.method is not None or frame.id is None:
            return None
        fields = msgspec.json.decode(frame.result, type=dict[str, msgspec.Raw])
        blocks = _decode_batch(fields["content"]) if "content" in fields else None
    except (ValueError, RecursionError):
        return None
    if blocks is None:
        return frame if _LISTS & {*fields} else None
    fields["content"] = msgspec.Raw(_encode([*blocks, _CONSTANT_NOTE]))
    return Frame(id=frame.id, result=msgspec.Raw(_encode(fields)))


def _batch(text: bytes | bytearray, reason: str) -> list[Frame | UnusableLine]:
    if len(text) > MAX_BATCH_BYTES:
        reason = f"a batch is longer than the limit of {MAX_BATCH_BYTES} bytes"
        return [UnusableLine(reason=reason, excerpt=_excerpt(text))]
    try:
        messages = [bytes(message) for message in _decode_batch(text)]
    except (ValueError, RecursionError):
        messages = []
    is_sound = 0 < len(messages) <= MAX_BATCH_MESSAGES
    if not is_sound or not all(message.startswith(b"{") for message in messages):
        return [UnusableLine(reason=reason, excerpt=_excerpt(text))]
    return [item for message in messages for item in parse(message)]


def _excerpt(line: bytes | bytearray) -> bytes:
    return bytes(line[: _EXCERPT_BYTES + gate.secret_reach()])


def _unusable(text: bytes | bytearray, reason: str) -> UnusableLine:
    members = _outer_members(text)
    request_id = _request_id(members.get(b"id", b""))
    asks = b"method" in members
    answers = not asks and (b"result" in members or b"error" in members)
    return UnusableLine(
        reason=reason,
        excerpt=_excerpt(text),
        answers=request_id if answers else None,
        asks=request_id if asks else None,
    )


def _outer_members(text: bytes | bytearray) -> dict[bytes, bytes]:
    """Outermost members of a broken object, as far as they show without parsing the nested ones.

    Servers write the id before the result or after it: both ends are searched, without what lies between.
    """
    head, tail = bytes(text[:_HEAD_BYTES]), bytes(text[-_TAIL_BYTES:])
    members: dict[bytes, bytes] = {}
    last = _LAST_MEMBERS.search(tail)
    for end in (head, last.group() if last else b""):
        position = 0
        while found := _MEMBER.match(end, position):
            members.setdefault(found[1], found[2] or b"")
            position = found.end() if found[2] else len(end)
    return members


def _request_id(scalar: bytes) -> RequestId | None:
    try:
        value = msgspec.json.decode(scalar, type=int | float | str)
    except ValueError:
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


_encode = msgspec.json.Encoder().encode
