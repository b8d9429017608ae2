"""What the measured servers answer: a call costs them one decode and one join of bytes."""

import functools

import msgspec

PAGE_SIZE = 1_000

_COMPLETE: dict[str, object] = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "private"}
_FOUND: dict[str, object] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **_COMPLETE}
_INITIALIZED: dict[str, object] = {
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1"},
}


class _Arguments(msgspec.Struct, frozen=True):
    size: int = 5


class _Params(msgspec.Struct, frozen=True):
    arguments: _Arguments = _Arguments()
    cursor: str = "0"
    version: str = msgspec.field(name="protocolVersion", default="2025-11-25")


class _Request(msgspec.Struct, frozen=True):
    method: str = ""
    id: msgspec.Raw = msgspec.Raw()
    params: _Params = _Params()


_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.encode


class Answers:
    """Answers requests as a server with `tools` tools: the first takes a `size` and gives that much text."""

    def __init__(self, tools: int) -> None:
        self._tools = tools

    def answer(self, message: bytes) -> bytes | None:
        """Return the answer's bytes; None for a notification."""
        request = _decode(message)
        if not request.id:
            return None
        match request.method:
            case "tools/call":
                outcome = b'"result":' + _text(request.params.arguments.size)
            case "tools/list":
                outcome = b'"result":' + self._page(int(request.params.cursor))
            case "server/discover":
                outcome = b'"result":' + _encode(_FOUND)
            case "initialize":
                # Whatever version the client speaks: it is the client that is measured.
                outcome = b'"result":' + _encode({"protocolVersion": request.params.version} | _INITIALIZED)
            case _:
                outcome = b'"error":{"code":-32601,"message":"Method not found"}'
        return b'{"jsonrpc":"2.0","id":%b,%b}' % (bytes(request.id), outcome)

    def _page(self, start: int) -> bytes:
        end = min(start + PAGE_SIZE, self._tools)
        more = {"nextCursor": str(end)} if end < self._tools else {}
        return _encode({"tools": [definition(number) for number in range(start, end)], **_COMPLETE, **more})


@functools.lru_cache(maxsize=4)
def _text(size: int) -> bytes:
    return b'{"content":[{"type":"text","text":"%b"}],"resultType":"complete"}' % (b"x" * size)


def definition(number: int) -> dict[str, object]:
    """A tool of ordinary length: about 500 bytes."""
    described = "Looks things up in a place where many things are, and says what it found. " * 2
    properties = {
        "size": {"type": "integer", "description": "How much of it is wanted.", "minimum": 0},
        "query": {"type": "string", "description": "What to look for, in plain words."},
        "labels": {"type": "array", "items": {"type": "string"}, "description": "Only what has all of them."},
    }
    schema = {"type": "object", "properties": properties, "required": ["size"], "additionalProperties": False}
    return {"name": f"tool_{number}", "description": described, "inputSchema": schema}
