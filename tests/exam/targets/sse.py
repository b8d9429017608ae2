"""Server-sent events: any chunking gives the same events, and these are those of the specification."""

import re
from collections.abc import Iterable

from fairlead.connection.transport.sse_parser import MAX_ID_BYTES, ServerSentEvent, SseParser
from fairlead.jsonrpc.limits import LineTooLong
from tests.exam.targets import split

SMALL_LIMIT = 64


def check(data: bytes) -> None:
    """Parse the content in one piece and in the chunks that the first line chooses."""
    choices, stream = split(data)
    if choices.number(2):
        # So that a small input reaches what is cut out of a long line.
        stream = stream.replace(b"\x01", b"x" * 5_000, 4)
    chunks = choices.chunks(stream)
    for limit, skips in ((1 << 20, False), (SMALL_LIMIT, False), (SMALL_LIMIT, True)):
        whole, parts = SseParser(limit, skips=skips), SseParser(limit, skips=skips)
        found = _events(whole, [stream], limit)
        assert found == _events(parts, chunks, limit)
        if not any(event is None for event in found):
            assert (whole.last_id, whole.retry_ms) == (parts.last_id, parts.retry_ms)
        if limit > SMALL_LIMIT:
            assert (found, whole.last_id) == _read_by_the_book(stream)


def _events(parser: SseParser, chunks: Iterable[bytes], limit: int) -> list[tuple[str, bytes] | None]:
    """The events as values; None at the end where one was too long for the parser to go on."""
    found: list[tuple[str, bytes] | None] = []
    try:
        for chunk in chunks:
            found += (_value(event, limit) for event in parser.feed(chunk))
    except LineTooLong:
        found.append(None)
    return found


def _value(event: ServerSentEvent, limit: int) -> tuple[str, bytes]:
    data = bytes(event.data)
    if event.is_too_long:
        # Its ends alone are kept, and how much of them depends on the chunks.
        return f"{event.name} (cut)", data[:limit] + data[-limit:]
    assert len(data) <= limit
    return event.name, data


def _read_by_the_book(stream: bytes) -> tuple[list[tuple[str, bytes] | None], str]:
    """Parse a stream as the specification of server-sent events says, with our limit on ids."""
    lines = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]
    events: list[tuple[str, bytes] | None] = []
    name, values, next_id, last_id = "", list[bytes](), "", ""
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if b"\n".join(values):
                events.append((name or "message", b"\n".join(values)))
            name, values, last_id = "", [], next_id
        elif field == b"data":
            values.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value and len(value) <= MAX_ID_BYTES:
            next_id = value.decode(errors="replace")
    return events, last_id
