"""A server process whose lists misbehave: `listing_stdio.py '{"tools/list": "huge-pages", …}'`, or `@FILE`.

Lists that are not named are short and sound. Each behaviour yields the pages of a list; `hang` never answers.
"""

import itertools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FIELDS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
SOUND: dict[str, dict[str, Any]] = {
    "tools/list": {"name": "echo", "inputSchema": {"type": "object"}},
    "resources/list": {"name": "notes", "uri": "memo:notes"},
    "resources/templates/list": {"name": "any", "uriTemplate": "memo:{name}"},
    "prompts/list": {"name": "greet"},
}


EMPTY: dict[str, Any] = {}


def _padded(method: str, number: int, size: int) -> dict[str, Any]:
    entry = {**SOUND[method], "name": f"n{number}", "description": "x" * size}
    if "uri" in entry:
        entry["uri"] = f"memo:{number}"
    return entry


Pages = Iterator[list[dict[str, Any]]]


def _huge_pages(method: str) -> Pages:
    yield [SOUND[method]]
    for number in range(98):
        yield [_padded(method, number * 10 + i, 780_000) for i in range(10)]


BEHAVIOURS: dict[str, Callable[[str], Pages]] = {
    "sound": lambda method: iter([[SOUND[method]]]),
    "huge-pages": _huge_pages,
    "two-pages": lambda method: iter([[SOUND[method]], [_padded(method, 1, 0)]]),
    "one-huge-page": lambda method: iter(
        [[SOUND[method], *(_padded(method, number, 300_000) for number in range(25))]]
    ),
    "one-large": lambda method: iter([[_padded(method, 0, 7_900_000), SOUND[method]]]),
    "tiny": lambda method: iter([[SOUND[method], *(_padded(method, n, 0) for n in range(60_000))]]),
    "duplicates": lambda method: iter([[SOUND[method]] * 50_000]),
    "empty-objects": lambda method: iter([[SOUND[method], *([EMPTY] * 100_000)]]),
    "dense": lambda _: iter([[EMPTY] * 2_000_000]),
    "dense-later": lambda method: iter([[SOUND[method]], [EMPTY] * 2_000_000]),
    "empty-pages": lambda _: ([] for _ in itertools.count()),
    "many-pages": lambda method: ([_padded(method, number, 10)] for number in itertools.count()),
}

_lock = threading.Lock()
_pages: dict[str, Pages] = {}


def _send(message: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
    with _lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _list(message: dict[str, Any], behaviour: str) -> None:
    method, request_id = message["method"], message["id"]
    no_lists: dict[str, Any] = {
        "null": None,
        "no-list": {},
        "null-list": {FIELDS[method]: None},
        "not-a-list": {FIELDS[method]: "none"},
    }
    if behaviour == "hang":
        return
    if behaviour == "error" or (behaviour == "error-later" and "cursor" in (message.get("params") or {})):
        _send({"id": request_id, "error": {"code": -32000, "message": "the database is down"}})
    elif behaviour in no_lists:
        _send({"id": request_id, "result": no_lists[behaviour]})
    elif behaviour == "same-cursor":
        _send({"id": request_id, "result": {FIELDS[method]: [SOUND[method]], "nextCursor": "again"}})
    elif behaviour == "error-later" and "cursor" not in (message.get("params") or {}):
        _send({"id": request_id, "result": {FIELDS[method]: [SOUND[method]], "nextCursor": "2"}})
    elif behaviour == "exit":
        os._exit(3)
    else:
        if "cursor" not in (message.get("params") or {}):
            _pages[method] = BEHAVIOURS[behaviour](method)
        page, rest = next(_pages[method]), itertools.tee(_pages[method], 1)[0]
        following = next(rest, None)
        result: dict[str, Any] = {FIELDS[method]: page}
        if following is not None:
            _pages[method] = itertools.chain([following], rest)
            result["nextCursor"] = os.urandom(8).hex()
        _send({"id": request_id, "result": result})


def _answer(message: dict[str, Any], behaviours: dict[str, str]) -> None:
    method = message["method"]
    if method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "listing", "version": "1"},
            "instructions": behaviours.get("instructions", ""),
        }
        _send({"id": message["id"], "result": result})
    elif method in FIELDS:
        _list(message, behaviours.get(method, "sound"))
    elif method == "tools/call":
        _send({"id": message["id"], "result": {"content": [{"type": "text", "text": "echoed"}]}})
    else:
        _send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    said = sys.argv[1]
    behaviours: dict[str, str] = json.loads(Path(said[1:]).read_text() if said[:1] == "@" else said)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            _answer(message, behaviours)
        elif message.get("method") == "notifications/initialized" and "storm" in behaviours:
            for _ in range(1000):
                _send({"method": "notifications/tools/list_changed"})


if __name__ == "__main__":
    main()
