"""How long one message may be, on any transport. Loads nothing, for those who only read a stream."""

MAX_LINE_BYTES = 8 * 1024 * 1024


class LineTooLong(Exception):
    """A line went past the limit, so the stream cannot be followed any further."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is longer than the limit of {limit} bytes")
        self.limit = limit
