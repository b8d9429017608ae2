"""How deep JSON is nested: parsers of clients give up at about 200 objects and lists inside each other."""

from itertools import accumulate
from typing import Final

MAX_DEPTH: Final = 100
"""Deepest nesting that clients are sent."""
LEAST_DEEP: Final = 2 * (MAX_DEPTH + 1)
"""Fewest bytes that can be nested deeper."""
TOO_DEEP: Final = f"is nested more than {MAX_DEPTH} levels deep"

_MAX_MARKS: Final = 256 * 1024
"""Limit of brackets and quotes that are counted: more would block the event loop."""
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_MARKS: Final = bytes(set(range(256)) - set(b'[{]}"'))


def is_deep(raw: bytes) -> bool:
    """Whether a JSON value is nested more than `MAX_DEPTH` levels deep."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    # Without escapes every other piece between quotes is a string.
    marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    plain = b"".join(marks[:_MAX_MARKS].split(b'"')[::2])
    steps = memoryview(plain.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0) > MAX_DEPTH
