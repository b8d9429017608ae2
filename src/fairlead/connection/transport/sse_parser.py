"""Parser of server-sent events without I/O, in linear time and within a size limit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.jsonrpc.frames import MAX_SKIPPED, ends_of
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong

MAX_ID_BYTES = 1024
"""The longest event id that is remembered: it travels back in a header."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MESSAGE_BEGINS = re.compile(rb"(?:data:)?\s*\{|:")
"""How an event, a line of one or a comment begins that may be skipped: all else is no message."""
_MAX_RETRY_DIGITS = 12  # more would be an endless wait, and slow to parse


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event that carries data. Its lines are joined by newlines."""

    name: str
    data: bytes | bytearray
    is_too_long: bool = False
    """It went past the limit: `data` are its two ends."""


class SseParser:
    """Cuts a byte stream into events, however it arrives.

    `last_id` and `retry_ms` are what the stream has said so far about resuming it. They also come in events
    without data, which are not handed out.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES, *, last_id: str = "", skips: bool = False) -> None:
        """Begin at the start of a stream.

        Args:
            limit: The most bytes of an event.
            last_id: What the stream said last about resuming it.
            skips: An event past the limit costs only itself, if it looks like a message and ends some time.
        """
        self.last_id = last_id
        self.retry_ms: int | None = None
        self._limit = limit
        self._at_start = True
        self._after_return = False
        self._partial = bytearray()
        self._name = ""
        self._id = last_id
        self._data: bytes | bytearray | None = None
        self._skips = skips
        self._skipped = 0
        """How many bytes of the event under way were dropped."""
        self._is_line_cut = False
        self._is_too_long = False

    def restart(self) -> None:
        """Reset for another connection. Only the last event id and retry time stay."""
        self._at_start = True
        self._after_return = False
        self._partial = bytearray()
        self._name = ""
        self._id = self.last_id
        self._data = None
        self._skipped = 0
        self._is_line_cut = self._is_too_long = False

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that `chunk` completes.

        Raises `LineTooLong` where an event goes past the limit, after the events before it.
        """
        # CR LF is one line end, even if the chunks were cut between the two.
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        lines = chunk.splitlines()
        unfinished = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            if (event := self._line(self._complete_line(line))) is not None:
                yield event
        self._partial += unfinished
        if len(self._partial) > self._limit:
            self._partial = self._ends_of(self._partial)
            self._is_line_cut = True

    def _complete_line(self, line: bytes) -> bytes | bytearray:
        whole: bytes | bytearray = line
        if self._partial:
            whole, self._partial = self._partial, bytearray()
            whole += line
        if len(whole) > self._limit:
            whole = self._ends_of(whole)
            self._is_line_cut = True
        if self._at_start:
            self._at_start = False
            if whole.startswith(_BYTE_ORDER_MARK):
                return whole[len(_BYTE_ORDER_MARK) :]
        return whole

    def _line(self, line: bytes | bytearray) -> ServerSentEvent | None:
        is_cut, self._is_line_cut = self._is_line_cut, False
        if not line:
            return self._finish_event()
        colon = line.find(b":")
        field = bytes(line if colon < 0 else line[:colon])
        value = _rest(line, len(line) if colon < 0 else colon + 1)
        match field:
            case b"data":
                self._is_too_long |= is_cut
                self._add(value)
            case b"event":
                self._name = value.decode(errors="replace")
            # The specification ignores ids with NUL; long ones would not fit into `Last-Event-ID`.
            case b"id" if len(value) <= MAX_ID_BYTES and b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                self.retry_ms = int(value[:_MAX_RETRY_DIGITS])
            case _:
                pass  # a comment (no name at all), or an unknown field
        return None

    def _add(self, value: bytes | bytearray) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            self._data = self._ends_of(self._data)
            self._is_too_long = True

    def _ends_of(self, part: bytes | bytearray) -> bytearray:
        """The ends of a line or of an event's data past the limit. Raises `LineTooLong`."""
        if not (self._skips and _MESSAGE_BEGINS.match(part)):
            raise LineTooLong(self._limit)
        ends = ends_of(part)
        self._skipped += len(part) - len(ends)
        if self._skipped > MAX_SKIPPED * self._limit:
            raise LineTooLong(self._limit)
        return ends

    def _finish_event(self) -> ServerSentEvent | None:
        # Also without data: servers send such events to mark where a stream can be resumed.
        self.last_id = self._id
        name, data, is_too_long = self._name, self._data, self._is_too_long
        self._name, self._data, self._is_too_long, self._skipped = "", None, False, 0
        return ServerSentEvent(name or "message", data, is_too_long) if data else None


def _rest(line: bytes | bytearray, start: int) -> bytes | bytearray:
    """Return `line` from `start`, less one space, without a copy where a long line makes that worth it."""
    if line[start : start + 1] == b" ":
        start += 1
    if isinstance(line, bytearray):
        del line[:start]
        return line
    return line[start:]
