"""A stdio MCP server that misbehaves on request. Standard library only, so that it starts in no time.

The arguments say what it does as a process before it serves, in order: `name` or `name=value`. The name of
the tool that is called says how it answers. It speaks the handshake era and refuses `server/discover`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


def write(data: bytes) -> None:
    """Write all of it to stdout."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def encoded(message: Message) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def send(message: Message) -> None:
    write(encoded(message) + b"\n")


def answer(request: Message, result: object) -> None:
    send({"id": request["id"], "result": result})


def answer_text(request: Message, text: str) -> None:
    answer(request, {"content": [{"type": "text", "text": text}]})


# ── as a process ──


def start_child(pid_file: str, *, own_session: bool = False) -> None:
    """Start a process that heeds SIGKILL only, and note its pid."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    argv = [sys.executable, "-I", "-S", "-c", code]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=own_session)
    assert child.stdout is not None
    child.stdout.read(1)
    with open(pid_file, "w") as file:
        file.write(str(child.pid))


def flood_stderr(lines: str) -> None:
    for number in range(int(lines)):
        os.write(2, b"\x1b[31mline %d\x1b[0m\x07 \x1b]0;title\x07end\r\n" % number)


def write_for_ever(chunk: str) -> None:
    while True:
        write(chunk.encode() * 65536)


def ask(count: str) -> None:
    for number in range(int(count)):
        send({"id": number, "method": "roots/list"})


def announce(count: str) -> None:
    for _ in range(int(count)):
        send({"method": "notifications/tools/list_changed"})


def serve(record_file: str) -> None:
    """Answer until stdin ends, and note in a file what came."""
    with open(record_file or os.devnull, "ab", buffering=0) as record:
        for line in sys.stdin.buffer:
            record.write(line)
            request = json.loads(line)
            if "method" in request:
                METHODS.get(request["method"], refuse)(request)


PROCESS: dict[str, Callable[[str], object]] = {
    "ignore-sigterm": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "stderr": lambda text: os.write(2, text.encode() + b"\n"),
    "stderr-flood": flood_stderr,
    "stdout": lambda text: write(text.encode()),
    "stdout-for-ever": write_for_ever,
    "grandchild": start_child,
    "escaped-grandchild": lambda pid_file: start_child(pid_file, own_session=True),
    "ask": ask,
    "announce": announce,
    "serve": serve,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "exit": lambda code: sys.exit(int(code)),
}


# ── as a server ──


def initialize(request: Message) -> None:
    info = {"name": "hostile", "version": "1"}
    answer(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})


def refuse(request: Message) -> None:
    if "id" in request:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


def call_tool(request: Message) -> None:
    name = request["params"]["name"]
    if name in RESULTS:
        write(b'{"jsonrpc": "2.0", "id": %d, "result": ' % request["id"] + RESULTS[name] + b"}\n")
    else:
        TOOLS.get(name, refuse)(request)


METHODS: dict[str, Callable[[Message], None]] = {
    "initialize": initialize,
    "ping": lambda request: answer(request, {}),
    "tools/call": call_tool,
    "tools/list": lambda request: answer(
        request, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    ),
}

RESULTS = {
    "deep": b'{"list": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "huge-float": b'{"number": 1e400}',
    "long-integer": b'{"number": ' + b"9" * 200_000 + b"}",
    "nan": b'{"number": NaN}',
    "not-an-object": b"[1, 2]",
    "not-utf8": b'{"content": [{"type": "text", "text": "caf\xe9"}]}',
    "surrogate": rb'{"text": "\ud800"}',
}


def after_garbage(request: Message) -> None:
    write(
        b"Listening on port 3000\n\x1b[32mready\x1b[0m\n\n{\n{'python': 'repr'}\n\xff\xfe\x00\n[]\n42\nnull\n"
    )
    answer_text(request, "fine")


def after_escapes(request: Message) -> None:
    write(b"\x1b[2J\x1b[32m")
    answer_text(request, "fine")


def byte_by_byte(request: Message) -> None:
    for byte in encoded({"id": request["id"], "result": {"content": []}}) + b"\n":
        write(bytes([byte]))


def open_files() -> list[str]:
    folder = "/proc/self/fd"
    names = [f"{folder}/{fd}" for fd in os.listdir(folder)]
    return [os.readlink(name) for name in names if os.path.exists(name)]


def with_progress(request: Message) -> None:
    params = request["params"]
    steps = params["arguments"]["steps"]
    for step in range(1, steps + 1):
        report = {"progressToken": params["_meta"]["progressToken"], "progress": step, "total": steps}
        send({"method": "notifications/progress", "params": {**report, "message": f"step {step}"}})
    answer_text(request, "done")


def crash(_: Message) -> None:
    os.write(2, b"Traceback: it is over\n")
    os.kill(os.getpid(), signal.SIGKILL)


def answer_and_exit(request: Message) -> None:
    write(encoded({"id": request["id"], "result": {"content": []}}))
    sys.exit(0)


TOOLS: dict[str, Callable[[Message], None]] = {
    "answer-and-exit": answer_and_exit,
    "arguments": lambda request: answer_text(request, json.dumps(sys.argv[1:])),
    "byte-by-byte": byte_by_byte,
    "close-stdout": lambda _: os.close(1),
    "crash": crash,
    "echo": lambda request: answer_text(request, json.dumps(request["params"]["arguments"])),
    "environment": lambda request: answer_text(request, json.dumps(dict(os.environ))),
    "escapes": after_escapes,
    "exit": lambda _: sys.exit(3),
    "files": lambda request: answer_text(request, json.dumps(open_files())),
    "float-id": lambda request: send({"id": float(request["id"]), "result": {"content": []}}),
    "garbage": after_garbage,
    "giant": lambda request: answer_text(request, "x" * request["params"]["arguments"]["bytes"]),
    "id-last": lambda request: write(b'{"result": {"number": NaN}, "id": %d}\n' % request["id"]),
    "progress": with_progress,
    "silence": lambda _: None,
    "string-id": lambda request: send({"id": str(request["id"]), "result": {"content": []}}),
}


if __name__ == "__main__":
    steps = [argument.partition("=") for argument in sys.argv[1:]]
    for name, _, value in steps:
        PROCESS[name](value)
    if not any(name == "serve" for name, _, _ in steps):
        serve("")
