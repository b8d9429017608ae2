"""A model's API that follows a script, on a port of its own, speaking the real wire formats."""

import json
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fairlead.loop.provider import ChatModel, Provider

Calls = Sequence[tuple[str, str, dict[str, Any]]]
"""Calls that a model wants made: id, name, arguments."""

KEY = "sk-test-0123456789abcdef-secret"
SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the API answers with."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut: int = 11
    """How many bytes are sent at a time: texts and characters end up in pieces."""
    breaks: bool = False
    """Hang up at the end, without having said that it is one."""
    hangs: bool = False
    """Say no more at the end, until the other side hangs up or the test is over."""


Scripted = Reply | Callable[[dict[str, Any]], Reply]


class ModelServer:
    """The API: it answers each request with the next reply of its script, and with the last for ever."""

    def __init__(self, *replies: Scripted) -> None:
        self._replies = [*replies]
        self.bodies: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""
        self.over = threading.Event()

    def reply_to(self, handler: BaseHTTPRequestHandler) -> Reply:
        raw = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.raw.append(raw)
        self.bodies.append(json.loads(raw))
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        self.paths.append(handler.path)
        reply = self._replies[min(len(self.bodies), len(self._replies)) - 1]
        return reply if isinstance(reply, Reply) else reply(self.bodies[-1])

    def model(self, provider: Provider, **rest: Any) -> ChatModel:
        """The model behind it."""
        base = self.url if provider == "anthropic" else f"{self.url}/v1"
        fields: dict[str, Any] = {"base_url": base, "api_key": KEY, **rest}
        return ChatModel(provider=provider, name="m", **fields)


@contextmanager
def serving(*replies: Scripted) -> Generator[ModelServer]:
    """Serve for the length of the block."""
    server = ModelServer(*replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reply = server.reply_to(self)
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # whoever has read enough hangs up
                self._say(reply)
            self.close_connection = True

        def _say(self, reply: Reply) -> None:
            for start in range(0, len(reply.body), reply.cut):
                piece = reply.body[start : start + reply.cut]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if reply.hangs:
                server.over.wait(SECONDS)
            if not (reply.breaks or reply.hangs):
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        server.url = f"http://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            listener.shutdown()
            thread.join(SECONDS)


# What a model says, in the words of each API.


def says(provider: Provider, text: str = "", calls: Calls = (), **rest: Any) -> Reply:
    """A step in which a model says something, or wants something called."""
    events = openai_events(text, calls) if provider == "openai" else anthropic_events(text, calls)
    return Reply(body=events, **rest)


def refuses(status: int, message: str = "no", kind: str = "", **headers: str) -> Reply:
    """An answer that is none."""
    error = {"error": {"message": message, "type": kind, "code": kind or None}}
    return Reply(
        status=status,
        body=json.dumps(error).encode(),
        content_type="application/json",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def openai_events(text: str = "", calls: Calls = (), *, finish: str = "") -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": character} for character in text]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        )
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": character}}]}
            for character in json.dumps(arguments)
        ]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    finish = finish or ("tool_calls" if calls else "stop")
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    details = {"cached_tokens": 40}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": details}
    chunks.append({"choices": [], "usage": usage})
    return b": keep-alive\n\n" + b"".join(map(_data, chunks)) + b"data: [DONE]\n\n"


def anthropic_events(text: str = "", calls: Calls = (), *, stop: str = "") -> bytes:
    usage = {"input_tokens": 30, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 30}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": usage}}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if text:
        deltas = [{"type": "text_delta", "text": character} for character in text]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call_id, name, arguments in calls:
        written = json.dumps(arguments) if arguments else ""
        deltas = [{"type": "input_json_delta", "partial_json": character} for character in ["", *written]]
        blocks.append(({"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = stop or ("tool_use" if calls else "end_turn")
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 10}})
    events.append({"type": "message_stop"})
    return b"".join(b"event: %b\n" % event["type"].encode() + _data(event) for event in events)


def _data(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def results_in(provider: Provider, body: dict[str, Any]) -> dict[str, str]:
    """What a model is told that tools brought, by the id of the call, in the order it is told."""
    if provider == "openai":
        return {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    return {
        block["tool_use_id"]: "\n".join(part.get("text", part["type"]) for part in block["content"])
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    }


def tool_names(provider: Provider, body: dict[str, Any]) -> list[str]:
    """The tools that a model is given."""
    tools = body.get("tools", [])
    return [tool["function"]["name"] if provider == "openai" else tool["name"] for tool in tools]
