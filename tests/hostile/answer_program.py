"""A hostile MCP server over stdio: what it says of itself, answers and asks is as costly as it can make it.

Run as `python -I -S answer_program.py SHAPE`. Shapes are in `SHAPES`, by name: the method they answer, and
the lines they answer it with. Other requests are answered well. Standard library only, so that it starts
quickly.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Lines = Callable[[Message], list[bytes]]

HIDDEN = "\u200b"
CAPABILITIES: Message = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {}}
GREETING: Message = {
    "protocolVersion": "2025-11-25",
    "capabilities": CAPABILITIES,
    "serverInfo": {"name": "hostile", "version": "1"},
}
MODERN_GREETING: Message = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": CAPABILITIES,
    "serverInfo": {"name": "hostile", "version": "1"},
    "ttlMs": 0,
    "cacheScope": "private",
}
WELL: dict[str, Message] = {
    "initialize": GREETING,
    "tools/list": {"tools": [{"name": "attack", "inputSchema": {"type": "object"}}]},
    "resources/list": {"resources": [{"uri": "x:1", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "resources/read": {"contents": [{"uri": "x:1", "text": "done"}]},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": ["done"]}},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}


def line(**message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n"


def result(make: Callable[[], Message]) -> Lines:
    """Answer with a result."""
    return lambda request: [line(id=request["id"], result=make())]


def prompt(content: Message, count: int) -> Lines:
    return result(lambda: {"messages": [{"role": "user", "content": content}] * count})


def contents(part: Message, count: int) -> Lines:
    return result(lambda: {"contents": [{"uri": "x:1", **part}] * count})


def completion(make: Callable[[], list[Any]]) -> Lines:
    return result(lambda: {"completion": {"values": make()}})


def listed(name: str, entry: Callable[[int], Message], count: int) -> Lines:
    return result(lambda: {name: [entry(number) for number in range(count)]})


def greeting(more: Callable[[], Message]) -> Lines:
    return result(lambda: {**GREETING, **more()})


def named(text: str) -> Message:
    """What a server says of itself, the same text everywhere."""
    return dict.fromkeys(("name", "version", "title", "description", "websiteUrl"), text)


def asks(count: int, question: Callable[[], Message]) -> Lines:
    """Answer with questions, as the modern protocol has it."""
    return result(
        lambda: {
            "resultType": "input_required",
            "requestState": "s",
            "inputRequests": dict.fromkeys(map(str, range(count)), question()),
        }
    )


def form(message: str, fields: Message) -> Message:
    params = {"message": message, "requestedSchema": {"type": "object", "properties": fields}}
    return {"method": "elicitation/create", "params": params}


def sampling(count: int) -> Message:
    messages = [{"role": "user", "content": TEXT}] * count
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 1}}


def error(data: object) -> Lines:
    return lambda request: [line(id=request["id"], error={"code": -1, "message": "no", "data": data})]


def logs(params: Message) -> Lines:
    """Log something, and answer well."""

    def answer(request: Message) -> list[bytes]:
        said = line(method="notifications/message", params={"level": "info", **params})
        return [said, line(id=request["id"], result=WELL["tools/call"])]

    return answer


TEXT = {"type": "text", "text": "a"}

SHAPES: dict[str, tuple[str, Lines]] = {
    # Answers of very many values, and those of as many as are let through.
    "prompt messages": ("prompts/get", prompt(TEXT, 90_000)),
    "hidden prompt messages": ("prompts/get", prompt({"type": "text", "text": HIDDEN}, 50_000)),
    "just enough prompt messages": ("prompts/get", prompt({"type": "text", "text": "a" + HIDDEN}, 1_500)),
    "prompt links": (
        "prompts/get",
        prompt({"type": "resource_link", "uri": "x:1", "name": "a", "_meta": {"fairlead/x": 1}}, 900),
    ),
    "prompt of lists": ("prompts/get", prompt({"type": "text", "text": [[0] * 10] * 100}, 15)),
    "prompt text": ("prompts/get", prompt({"type": "text", "text": 'é\n"\\' * 300_000}, 1)),
    "prompt numbers": ("prompts/get", result(lambda: {"messages": [], "_meta": {"n": [1.5] * 800_000}})),
    "resource contents": ("resources/read", contents({"text": "a"}, 100_000)),
    "hidden resource contents": ("resources/read", contents({"text": HIDDEN}, 60_000)),
    "just enough resource contents": ("resources/read", contents({"text": "a" + HIDDEN}, 2_300)),
    "resource numbers": ("resources/read", contents({"text": "a", "_meta": {"n": [1.5] * 800_000}}, 1)),
    "slow resource numbers": ("resources/read", contents({"text": "", "_meta": {"n": [1e300] * 15_000}}, 1)),
    "empty resource objects": ("resources/read", contents({"text": "a", "_meta": {"n": [{}] * 900_000}}, 1)),
    "resource text": ("resources/read", contents({"text": ("a" + HIDDEN) * 400_000}, 1)),
    "resource data": ("resources/read", contents({"blob": "QUJD" * 900_000}, 1)),
    "resource data that is none": ("resources/read", contents({"blob": "QUJD" * 900_000 + "!"}, 1)),
    "resource keys": (
        "resources/read",
        result(lambda: {"contents": [], "_meta": {HIDDEN * (n % 5) + str(n): 0 for n in range(6_000)}}),
    ),
    # Lists that have to be cleaned entry by entry.
    "hidden prompts": (
        "prompts/list",
        listed("prompts", lambda n: {"name": f"p{n}", "description": f"n{HIDDEN * 40}"}, 8_000),
    ),
    "hidden prompt arguments": (
        "prompts/list",
        listed("prompts", lambda n: {"name": f"p{n}", "arguments": [{"name": f"a{HIDDEN}"}] * 200}, 200),
    ),
    "hidden resources": (
        "resources/list",
        listed("resources", lambda n: {"uri": f"x:{n}", "name": f"n{HIDDEN * 40}"}, 8_000),
    ),
    "resources of hidden keys": (
        "resources/list",
        listed("resources", lambda n: {"uri": f"x:{n}", "name": "n", "_meta": {HIDDEN + "k": HIDDEN}}, 8_000),
    ),
    "long resources": (
        "resources/list",
        listed("resources", lambda n: {"uri": f"x:{n}", "name": f"{n}" + HIDDEN * 100_000}, 20),
    ),
    # What a server says of itself.
    "hidden instructions": ("initialize", greeting(lambda: {"instructions": HIDDEN * 600_000})),
    "half hidden instructions": ("initialize", greeting(lambda: {"instructions": f"a{HIDDEN}" * 200_000})),
    "long instructions": ("initialize", greeting(lambda: {"instructions": "a\n" * 1_900_000})),
    "modern instructions": (
        "server/discover",
        result(lambda: {**MODERN_GREETING, "instructions": f"a{HIDDEN}" * 400_000}),
    ),
    "hidden names": ("initialize", greeting(lambda: {"serverInfo": named(f"a{HIDDEN}" * 40_000)})),
    "long names": ("initialize", greeting(lambda: {"serverInfo": named("\U000e0041" * 50_000)})),
    "icons": (
        "initialize",
        greeting(
            lambda: {"serverInfo": {**named("a"), "icons": [{"src": f"https://e.com/{HIDDEN}"}] * 9_000}}
        ),
    ),
    "capabilities": (
        "initialize",
        greeting(
            lambda: {"capabilities": {**CAPABILITIES, "experimental": {f"k{n}": {} for n in range(9_000)}}}
        ),
    ),
    # Questions that come with an answer: thousands at once, or of thousands of values.
    "modern questions for folders": ("tools/call", asks(30_000, lambda: {"method": "roots/list"})),
    "modern questions by form": ("tools/call", asks(7_000, lambda: form("a", {}))),
    "modern questions for a model": ("tools/call", asks(5_500, lambda: sampling(1))),
    "modern questions of no kind": ("tools/call", asks(40_000, lambda: {"method": "x"})),
    "modern question of many messages": ("tools/call", asks(1, lambda: sampling(9_000))),
    "modern question of just enough messages": ("tools/call", asks(1, lambda: sampling(1_500))),
    "modern question of hidden texts": (
        "tools/call",
        asks(1, lambda: form("a", {f"f{n}": {"type": "string", "title": f"a{HIDDEN}"} for n in range(900)})),
    ),
    # Errors and notifications whose data has to be cleaned.
    "hidden error data": ("tools/call", error([HIDDEN] * 10_500)),
    "hidden error keys": ("tools/call", error({HIDDEN * (n % 5) + str(n // 5): 0 for n in range(4_500)})),
    "hidden error text": ("tools/call", error(HIDDEN * 20_000)),
    "half hidden error text": ("tools/call", error(f"a{HIDDEN}" * 15_000)),
    "hidden log data": ("tools/call", logs({"data": [HIDDEN] * 10_500})),
    "hidden log keys": (
        "tools/call",
        logs({"data": {HIDDEN * (n % 5) + str(n // 5): 0 for n in range(4_500)}}),
    ),
    "hidden log text": ("tools/call", logs({"data": HIDDEN * 1_100_000})),
    "log text of escapes": ("tools/call", logs({"data": "\n" * 1_700_000})),
    "just enough log text of escapes": ("tools/call", logs({"data": "\n" * 500_000})),
    "log data of many values": ("tools/call", logs({"data": [0] * 49_000})),
    "hidden logger": ("tools/call", logs({"data": "", "logger": f"a{HIDDEN}" * 250_000})),
    "completion values": ("completion/complete", completion(lambda: ["a"] * 400_000)),
    "just enough completion values": ("completion/complete", completion(lambda: ["a" + HIDDEN] * 49_000)),
    "slow completion numbers": ("completion/complete", completion(lambda: [1e300] * 90_000)),
}


def main(shape: str) -> None:
    method, lines = SHAPES[shape]
    is_modern = shape.startswith("modern")
    for sent in sys.stdin.buffer:
        request = json.loads(sent)
        if "id" not in request or "method" not in request:
            continue
        if request["method"] == method and "requestState" not in request["params"]:
            answer = lines(request)
        elif request["method"] == "server/discover" and is_modern:
            answer = [line(id=request["id"], result=MODERN_GREETING)]
        elif request["method"] in WELL:
            answer = [line(id=request["id"], result={"resultType": "complete", **WELL[request["method"]]})]
        else:
            answer = [line(id=request["id"], error={"code": -32601, "message": "unknown"})]
        for each in answer:
            sys.stdout.buffer.write(each)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
