"""Size limits of messages on any transport. Imports nothing, for commands that only read a stream."""

MAX_LINE_BYTES = 8 * 1024 * 1024

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Longest request, notification or error. A result is passed on as bytes and may be longer."""

MAX_DECODED_BYTES = 1024 * 1024
"""Longest notification, and longest answer that is decoded whole on the event loop (a handshake).

Decoding as many bytes of escaped characters takes some 10 ms.
"""

MAX_VALUES = 50_000
"""Most JSON values in anything that is decoded on the event loop; parsing them takes some 20 ms."""

MAX_REQUEST_VALUES = 20_000
"""Most JSON values in a server's request: after decoding, they are repaired and validated as well."""


class LineTooLong(Exception):
    """A line exceeded the limit. Where this is raised, the stream cannot be followed any further."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is longer than the limit of {limit} bytes")
        self.limit = limit
