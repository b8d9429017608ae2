"""JSON values, streams and lines for the tests of the wire."""

from hypothesis import strategies as st

from fairlead.jsonrpc.frames import LineSplitter, UnusableLine

text = st.text(st.characters(exclude_categories=["Cs"]))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


lines = st.binary().filter(lambda data: b"\n" not in data)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces."""
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def split(data: bytes, places: list[int] | None = None) -> list[bytes]:
    splitter = LineSplitter()
    found = [line for piece in cut(data, places or []) for line in splitter.feed(piece)]
    return list(map(whole, [*found, *splitter.finish()]))


def whole(line: bytes | bytearray | UnusableLine) -> bytes:
    """A line that was within the limit."""
    assert not isinstance(line, UnusableLine)
    return bytes(line)
