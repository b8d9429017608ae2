"""A server that floods its stdout or stderr beside its answers: `endless_stdio.py <flood> <record>`.

The file `record` says how many bytes of the flood were taken by the other side.
"""

import itertools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_BATCH = b"[" + b",".join([b'{"jsonrpc":"2.0","method":"a"}'] * 2000) + b"]\n"

FLOODS: dict[str, Callable[[int], bytes]] = {
    "logs": lambda n: b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%d}}\n' % n * 100,
    "blank-lines": lambda _: b"\n" * 4000,
    "garbage": lambda _: b"{not json\n" * 400,
    "answers": lambda n: b'{"jsonrpc":"2.0","id":"never-%d","result":{}}\n' % n * 100,
    "requests": lambda n: b'{"jsonrpc":"2.0","id":"r%d","method":"sampling/createMessage"}\n' % n * 50,
    "batches": lambda _: _BATCH,
    "stderr": lambda _: b"a line of a log\n" * 4000,
}

_lock = threading.Lock()


def _write(descriptor: int, data: bytes) -> None:
    with _lock:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]


def _flood(flood: str, record: str) -> None:
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT, 0o600)
    sent = 0
    for number in itertools.count():
        piece = FLOODS[flood](number)
        _write(2 if flood == "stderr" else 1, piece)
        sent += len(piece)
        os.pwrite(descriptor, b"%d" % sent, 0)


def _answer_to(method: str) -> dict[str, Any]:
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "endless", "version": "1"},
        },
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
    }
    if method in results:
        return {"result": results[method]}
    return {"error": {"code": -32601, "message": "no such method"}}


def main() -> None:
    threading.Thread(target=_flood, args=(sys.argv[1], sys.argv[2]), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_answer_to(message["method"])}
            _write(1, json.dumps(answer).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
