"""A hostile MCP server over stdio: well-behaved up to one step, where its mode takes over.

Run as `python -I -S stdio_program.py MODE PID_FILE`. Standard library only, so that it starts quickly. Modes
are in `MODES`, by name: the step at which they act, and what they do with the request of that step. The file
`PID_FILE.attacked` says that it came to that.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Act = Callable[[Message], None]
Body = bytes | Callable[[], bytes]
"""Bytes, or how to make them: most modes never run in a process, and some bodies are large."""
MIB = 1024 * 1024


def made(body: Body) -> bytes:
    return body if isinstance(body, bytes) else body()


def write(data: bytes, fd: int = 1) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:MIB]) :]


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def result_line(request: Message, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (request["id"], result)


def error_line(request: Message, error: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"error":%b}\n' % (request["id"], error)


def text_result(text: str = "done") -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}]}).encode()


def answer(request: Message) -> None:
    write(result_line(request, text_result()))


def note(method: str, params: str = "{}") -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params.encode())


def ask(number: int, method: str, params: str = "{}") -> bytes:
    head = b'{"jsonrpc":"2.0","id":"s%d","method":"%b"' % (number, method.encode())
    return head + b',"params":%b}\n' % params.encode()


# What a mode does with a request.


def then_answer(*data: Body) -> Act:
    """Write something, then answer as if nothing had happened."""

    def act(request: Message) -> None:
        for part in data:
            write(made(part))
        answer_well(request)

    return act


def only(*data: Body) -> Act:
    """Write something, and never answer."""

    def act(_: Message) -> None:
        for part in data:
            write(made(part))

    return act


def result(body: Body) -> Act:
    """Answer with these bytes as the result."""
    return lambda request: write(result_line(request, made(body)))


def structured(body: Body) -> Act:
    """Answer with these bytes as structured content."""
    return result(within(b'{"content":[],"structuredContent":{"a":', body, b"}}"))


def text(body: Body) -> Act:
    """Answer with these bytes between the quotes of a text."""
    return result(within(b'{"content":[{"type":"text","text":"', body, b'"}]}'))


def long_message(size: int, head: bytes = b'{"method":"x"') -> Body:
    return lambda: head + b',"params":{"a":"' + b"a" * size + b'"}}\n'


def within(before: bytes, body: Body, after: bytes) -> Body:
    return lambda: before + made(body) + after


def error(body: Body) -> Act:
    return lambda request: write(error_line(request, made(body)))


def whole(template: bytes) -> Act:
    """Answer with a line of its own making, where `%d` is the request's id."""
    return lambda request: write(template.replace(b"%d", b"%d" % request["id"]) + b"\n")


def endless(data: bytes) -> Act:
    def act(_: Message) -> None:
        while True:
            write(data)

    return act


def endless_notes(_: Message) -> None:
    number = 0
    while True:
        number += 500
        write(b"".join(note("notifications/message", log(n)) for n in range(number, number + 500)))


def log(number: int) -> str:
    return json.dumps({"level": "info", "data": f"line {number}"})


def storm(count: int, make: Callable[[int], bytes]) -> Act:
    """Send many messages, then answer."""

    def act(request: Message) -> None:
        for start in range(0, count, 500):
            write(b"".join(make(number) for number in range(start, min(start + 500, count))))
        answer_well(request)

    return act


def progress_storm(request: Message) -> None:
    token = request["params"].get("_meta", {}).get("progressToken", request["id"])
    storm(
        50_000, lambda n: note("notifications/progress", json.dumps({"progressToken": token, "progress": n}))
    )(request)


def slowly(request: Message) -> None:
    for byte in result_line(request, text_result()):
        os.write(1, bytes((byte,)))
        time.sleep(0.002)


def too_slowly(request: Message) -> None:
    for byte in result_line(request, text_result("x" * 10_000)):
        os.write(1, bytes((byte,)))
        time.sleep(0.05)


def close(fd: int) -> Act:
    def act(_: Message) -> None:
        os.close(fd)
        time.sleep(600)

    return act


def flood_stderr(data: bytes, count: int) -> Act:
    def act(request: Message) -> None:
        for _ in range(count):
            write(data, 2)
        answer_well(request)

    return act


def leave(code: int) -> Act:
    def act(_: Message) -> None:
        os._exit(code)

    return act


def half_an_answer(request: Message) -> None:
    write(result_line(request, text_result())[:20])
    os._exit(3)


def answer_without_newline_and_exit(request: Message) -> None:
    write(result_line(request, text_result()).rstrip(b"\n"))
    os._exit(0)


def kill(number: int) -> Act:
    return lambda _: os.kill(os.getpid(), number)


def ignore_signals(request: Message) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    answer_well(request)
    global immortal
    immortal = True


def leave_a_child(request: Message) -> None:
    if os.fork() == 0:
        time.sleep(600)
    answer_well(request)
    os._exit(0)


def hang(_: Message) -> None:
    time.sleep(600)


def tools_page(tools: Body, cursor: bytes = b"") -> Act:
    return result(within(b'{"tools":[', tools, b"]" + (b',"nextCursor":' + cursor if cursor else b"") + b"}"))


def another_page(request: Message) -> None:
    cursor = b'"c%d"' % request["id"]
    write(result_line(request, b'{"tools":[' + ATTACK + b'],"nextCursor":' + cursor + b"}"))


ATTACK = b'{"name":"attack","inputSchema":{"type":"object"}}'
NUMBERED = b'{"name":"t%d","inputSchema":{"type":"object"}}'


def wide(item: bytes, count: int) -> Body:
    return lambda: b"[" + item * count + b"1]"


def many_keys() -> bytes:
    return b"{" + b",".join([b'"k%d":1' % number for number in range(300_000)]) + b"}"


def many_tools() -> bytes:
    return b",".join([NUMBERED % number for number in range(5_000)])


WIDE: dict[str, Body] = {
    "lists": wide(b"[],", 1_200_000),
    "objects": wide(b"{},", 1_200_000),
    "numbers": wide(b"1,", 1_900_000),
    "floats": wide(b"1e5,", 900_000),
    "strings": wide(b'"",', 1_200_000),
    "nested-lists": wide(b"[[[]]],", 500_000),
    "keys": many_keys,
}
DEEP: dict[str, Body] = {
    "depth": b"[" * 100_000 + b"]" * 100_000,
    "unclosed-depth": b"[" * 500_000,
    "object-depth": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "some-depth": b"[" * 900 + b"]" * 900,
}
NUMBERS: dict[str, Body] = {
    "huge-integer": b"1" * 100_000,
    "long-fraction": b"1." + b"3" * 100_000,
    "huge-exponent": b"1e" + b"9" * 5_000,
    "infinity": b"Infinity",
    "nan": b"NaN",
    "minus-zero-exponent": b"-0e-999999999",
}
TEXTS: dict[str, Body] = {
    "invalid-utf8": b"\xff\xfe\xc0\xaf" * 1_000,
    "much-invalid-utf8": b"\xff" * MIB,
    "raw-surrogate": b"\xed\xa0\x80" * 10,
    "escaped-surrogate": b"\\ud800" * 10,
    "raw-nul": b"a\x00b",
    "escaped-nul": b"a\\u0000b" * 1_000,
    "control-characters": b"\x01\x02\x1b[2J\x07",
    "escapes": b"\\u200b" * 200_000,
    "newline-escapes": b"\\n" * 500_000,
    "backslashes": b"\\\\" * 1_000_000,
    "bad-escape": b"\\x41",
    "bad-unicode-escape": b"\\u12",
}

MODES: dict[str, tuple[str, Act]] = {
    # Lines.
    "oversized-result": ("call", text(lambda: b"a" * (9 * MIB))),
    "oversized-notification": ("call", only(long_message(9 * MIB))),
    "large-notification": ("call", then_answer(long_message(5 * MIB))),
    "large-request": ("call", then_answer(long_message(5 * MIB, b'{"id":1,"method":"x"'))),
    "large-error": ("call", error(within(b'{"code":1,"message":"', lambda: b"e" * (6 * MIB), b'"}'))),
    "endless-line-at-start": ("start", endless(b"a" * 65_536)),
    "endless-line-at-initialize": ("initialize", endless(b"a" * 65_536)),
    "endless-line-at-call": ("call", endless(b"a" * 65_536)),
    "endless-blank-lines": ("call", endless(b"\n" * 65_536)),
    "endless-garbage": ("call", endless(b"not json\n" * 5_000)),
    "answer-without-newline": ("call", lambda r: write(result_line(r, text_result())[:-1])),
    "answer-without-newline-and-exit": ("call", answer_without_newline_and_exit),
    "blank-lines": ("call", then_answer(b"\n" * MIB)),
    "carriage-returns": ("call", lambda r: write(result_line(r, text_result())[:-1] + b"\r\n")),
    "garbage-lines": ("call", then_answer(b"garbage\n" * 50_000)),
    "html-lines": ("call", then_answer(b"<html><body>502</body></html>\n" * 100)),
    "byte-order-mark": ("call", lambda r: write(b"\xef\xbb\xbf" + result_line(r, text_result()))),
    "utf16": ("call", lambda r: write(result_line(r, text_result()).decode().encode("utf-16"))),
    # Floods.
    "notifications-before-handshake": ("start", then_answer(note("notifications/message", log(1)) * 50_000)),
    "requests-before-handshake": ("start", storm(5_000, lambda n: ask(n, "ping"))),
    "answers-before-handshake": ("start", then_answer(b'{"jsonrpc":"2.0","id":1,"result":{}}\n' * 50_000)),
    "endless-notifications-at-start": ("start", endless_notes),
    "endless-notifications-at-call": ("call", endless_notes),
    "unknown-answers": ("call", then_answer(b'{"jsonrpc":"2.0","id":77777,"result":{}}\n' * 100_000)),
    "tiny-messages": ("call", then_answer(b'{"id":0}\n' * 200_000)),
    "tiny-notifications": ("call", then_answer(b'{"method":"x"}\n' * 100_000)),
    "list-changed-storm": ("call", then_answer(note("notifications/tools/list_changed") * 50_000)),
    "resource-storm": (
        "call",
        storm(20_000, lambda n: note("notifications/resources/updated", json.dumps({"uri": f"x:{n}"}))),
    ),
    "progress-storm": ("call", progress_storm),
    "log-storm": ("call", storm(50_000, lambda n: note("notifications/message", log(n)))),
    "cancel-storm": (
        "call",
        storm(20_000, lambda n: note("notifications/cancelled", json.dumps({"requestId": n}))),
    ),
    "ping-storm": ("call", storm(10_000, lambda n: ask(n, "ping"))),
    "sampling-storm": ("call", storm(2_000, lambda n: ask(n, "sampling/createMessage"))),
    "elicitation-storm": ("call", storm(2_000, lambda n: ask(n, "elicitation/create", '{"message":"?"}'))),
    "same-id-requests": ("call", then_answer(ask(1, "sampling/createMessage") * 2_000)),
    "unknown-notification-storm": ("call", storm(20_000, lambda n: note(f"x/{n}"))),
    "endless-list-changed": ("call", endless(note("notifications/tools/list_changed") * 500)),
    # Ids and shapes of messages.
    "double-answer": ("call", lambda r: write(result_line(r, text_result()) * 2)),
    "answer-then-error": (
        "call",
        lambda r: write(result_line(r, text_result()) + error_line(r, b'{"code":1}')),
    ),
    "unknown-id": ("call", whole(b'{"jsonrpc":"2.0","id":99999,"result":{"content":[]}}')),
    "null-id": ("call", whole(b'{"jsonrpc":"2.0","id":null,"result":{"content":[]}}')),
    "no-id": ("call", whole(b'{"jsonrpc":"2.0","result":{"content":[]}}')),
    "float-id": ("call", whole(b'{"jsonrpc":"2.0","id":%d.0,"result":{"content":[]}}')),
    "string-id": ("call", whole(b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}')),
    "bool-id": ("call", whole(b'{"jsonrpc":"2.0","id":true,"result":{"content":[]}}')),
    "huge-id": ("call", whole(b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"result":{"content":[]}}')),
    "infinite-id": ("call", whole(b'{"jsonrpc":"2.0","id":1e999,"result":{"content":[]}}')),
    "object-id": ("call", whole(b'{"jsonrpc":"2.0","id":{"a":1},"result":{"content":[]}}')),
    "long-string-id": ("call", then_answer(b'{"id":"' + b"x" * MIB + b'","method":"ping"}\n')),
    "duplicate-id-member": ("call", whole(b'{"jsonrpc":"2.0","id":%d,"id":5,"result":{"content":[]}}')),
    "result-and-error": (
        "call",
        whole(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":{"code":1,"message":"e"}}'),
    ),
    "neither": ("call", whole(b'{"jsonrpc":"2.0","id":%d}')),
    "no-version": ("call", whole(b'{"id":%d,"result":{"content":[]}}')),
    "null-result": ("call", result(b"null")),
    "string-result": ("call", result(b'"done"')),
    "list-result": ("call", result(b"[]")),
    "empty-result": ("call", result(b"{}")),
    "content-is-a-number": ("call", result(b'{"content":5}')),
    "error-is-a-string": ("call", error(b'"broken"')),
    "error-without-code": ("call", error(b"{}")),
    "batch-answer": ("call", whole(b'[{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}]')),
    "empty-batch": ("call", then_answer(b"[]\n")),
    "nested-batch": ("call", then_answer(b'[[{"method":"x"}]]\n')),
    "huge-batch": ("call", then_answer(b"[" + b'{"method":"x"},' * 200_000 + b'{"method":"x"}]\n')),
    "many-batches": ("call", then_answer((b"[" + b'{"method":"x"},' * 900 + b'{"method":"x"}]\n') * 20)),
    "method-is-a-number": ("call", then_answer(b'{"jsonrpc":"2.0","method":5}\n')),
    "long-method": ("call", then_answer(note("x" * MIB))),
    # Lists.
    "endless-cursors": ("list", another_page),
    "repeated-cursor": ("list", tools_page(ATTACK, b'"again"')),
    "cursor-is-a-number": ("list", tools_page(ATTACK, b"5")),
    "huge-page": (
        "list",
        tools_page(within(b'{"name":"a","description":"', lambda: b"d" * (7 * MIB), b'"}')),
    ),
    "many-tools": ("list", tools_page(many_tools)),
    "tools-are-numbers": ("list", tools_page(b"1,2,3")),
    "tools-is-an-object": ("list", result(b'{"tools":{}}')),
    "same-name-tools": ("list", tools_page(b",".join([ATTACK] * 1_000))),
    # The process.
    "slow-bytes": ("call", slowly),
    "too-slow-bytes": ("call", too_slowly),
    "closed-stdout": ("call", close(1)),
    "closed-stdin": ("call", close(0)),
    "closed-stderr": ("call", lambda r: (os.close(2), answer_well(r))[0]),
    "stderr-flood": ("call", flood_stderr(b"a line of stderr\n" * 1_000, 500)),
    "stderr-endless-line": ("call", flood_stderr(b"x" * 65_536, 200)),
    "stderr-escapes": ("call", flood_stderr(b"\x1b[31m\xff\x00\x07\r\n" * 1_000, 100)),
    "stderr-flood-at-start": ("start", flood_stderr(b"a line of stderr\n" * 1_000, 500)),
    "ignored-signals": ("call", ignore_signals),
    "left-child": ("call", leave_a_child),
    "half-an-answer": ("call", half_an_answer),
    "stopped": ("call", kill(signal.SIGSTOP)),
    "segfault": ("call", kill(signal.SIGSEGV)),
    "instructions-bomb": (
        "initialize",
        result(within(b'{"protocolVersion":"2025-11-25","capabilities":', WIDE["lists"], b"}")),
    ),
    "version-is-a-number": ("initialize", result(b'{"protocolVersion":5}')),
}
MODES.update({f"exit-at-{step}": (step, leave(3)) for step in ("start", "initialize", "list", "call")})
MODES.update({f"hang-at-{step}": (step, hang) for step in ("start", "initialize", "list", "call")})
MODES.update(
    {f"structured-{name}": ("call", structured(body)) for name, body in {**WIDE, **DEEP, **NUMBERS}.items()}
)
MODES.update({f"text-{name}": ("call", text(body)) for name, body in TEXTS.items()})
MODES.update(
    {
        f"error-data-{name}": ("call", error(within(b'{"code":1,"message":"m","data":', body, b"}")))
        for name, body in WIDE.items()
    }
)
NOTE = b'{"method":"notifications/message","params":{"data":'
REQUEST = b'{"id":1,"method":"ping","params":{"data":'
MODES.update(
    {
        f"{kind}-{name}": ("call", then_answer(within(head, body, b"}}\n")))
        for kind, head in (("notification", NOTE), ("request", REQUEST))
        for name, body in {**WIDE, **DEEP}.items()
    }
)
MODES.update(
    {
        f"log-{name}": ("call", then_answer(within(NOTE + b'"', body, b'"}}\n')))
        for name, body in TEXTS.items()
    }
)

immortal = False


def answer_well(request: Message) -> None:
    """Answer as a server does that means no harm."""
    method = request.get("method")
    if method == "initialize":
        capabilities = b'{"tools":{},"logging":{}}'
        head = b'{"protocolVersion":"2025-11-25","serverInfo":{"name":"h","version":"1"},"capabilities":'
        write(result_line(request, head + capabilities + b"}"))
    elif method == "tools/list":
        tools_page(ATTACK)(request)
    elif method == "tools/call":
        answer(request)
    elif method is not None and "id" in request:
        write(error_line(request, b'{"code":-32601,"message":"no such method"}'))


STEPS = {"initialize": "initialize", "tools/list": "list", "tools/call": "call"}


def main(mode: str, pid_file: str) -> None:
    with open(pid_file, "a") as file:
        file.write(f"{os.getpid()}\n")
    step, act = MODES[mode]

    def attack(request: Message) -> None:
        with open(f"{pid_file}.attacked", "w"):
            act(request)

    if step == "start":
        attack({})
    buffered = sys.stdin.buffer
    while received := buffered.readline():
        request = json.loads(received)
        if "id" not in request or "method" not in request:
            continue
        if STEPS.get(request["method"]) == step:
            attack(request)
        else:
            answer_well(request)
    while immortal:
        time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
