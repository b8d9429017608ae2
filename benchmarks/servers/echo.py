"""A server that says what it is told: `python -m benchmarks.servers.echo modern|legacy MARK`.

What one read brings is answered in an order of chance, so that an answer which goes to the wrong question
shows. MARK is for whoever looks for the process.
"""

import os
import random
import sys

import msgspec

_TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]},
}
_COMPLETE = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "private"}
_RESULTS: dict[str, dict[str, object]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "echo", "version": "1"},
    },
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **_COMPLETE},
    "tools/list": {"tools": [_TOOL], **_COMPLETE},
}
_NOT_OF = {"modern": "initialize", "legacy": "server/discover"}


class _Params(msgspec.Struct):
    arguments: dict[str, str] = {}


class _Request(msgspec.Struct):
    method: str = ""
    id: msgspec.Raw = msgspec.Raw()
    params: _Params = msgspec.field(default_factory=_Params)


_decode = msgspec.json.Decoder(_Request).decode


def _answer(line: bytes, unknown: str) -> bytes | None:
    request = _decode(line)
    if not request.id:
        return None
    if request.method == "tools/call":
        content = [{"type": "text", "text": request.params.arguments["token"]}]
        outcome: dict[str, object] = {"result": {"content": content, "resultType": "complete"}}
    elif request.method in _RESULTS and request.method != unknown:
        outcome = {"result": _RESULTS[request.method]}
    else:
        outcome = {"error": {"code": -32601, "message": "Method not found"}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, **outcome})


def main() -> None:
    """Answer until stdin ends."""
    unknown = _NOT_OF[sys.argv[1]]
    partial = b""
    while data := os.read(0, 1 << 16):
        *lines, partial = (partial + data).split(b"\n")
        found = [answer for line in lines if (answer := _answer(line, unknown)) is not None]
        random.shuffle(found)
        waiting = memoryview(b"\n".join([*found, b""]))
        while waiting:
            waiting = waiting[os.write(1, waiting) :]


if __name__ == "__main__":
    main()
