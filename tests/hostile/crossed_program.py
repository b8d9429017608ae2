"""A hostile MCP server that crosses its replies: `python -I -S crossed_program.py TRANSPORT MODE RECORD`.

It waits until two calls are under way and answers both as its mode has it. `MODES` says what is sent where:
over HTTP in the response to the first and in that to the second, over stdio one after the other. An honest
answer repeats the call's argument `tag`. Later calls are answered honestly, after all earlier replies again,
save those that have the id of the later call by now.
The file `RECORD` gets the ids of the two requests once everything was sent.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Reply = Message | list[Message]
Replies = tuple[list[Reply], list[Reply]]
Make = Callable[[Message, Message], Reply]

FORGED = "forged"
"""The text of answers that are not honest."""


def text_result(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


def honest(request: Message) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": request["id"],
        "result": text_result(request["params"]["arguments"]["tag"]),
    }


def answer(request_id: object, text: str = FORGED) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "result": text_result(text)}


def failure(request_id: object) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": 1, "message": FORGED}}


def ask(request_id: object, method: str = "ping") -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}}


def note(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def before(*make: Make) -> Callable[[Message, Message], Replies]:
    """Send messages to do with the other call first, then the honest answer, in both responses."""
    return lambda a, b: ([*(m(a, b) for m in make), honest(a)], [*(m(b, a) for m in make), honest(b)])


def after(*make: Make) -> Callable[[Message, Message], Replies]:
    return lambda a, b: ([honest(a), *(m(a, b) for m in make)], [honest(b), *(m(b, a) for m in make)])


def forge_at_distance(distance: int) -> Make:
    """Answer a request that is not under way, by an id so far from a call's own."""
    return lambda own, _: answer(own["id"] + distance)


MODES: dict[str, Callable[[Message, Message], Replies]] = {
    # Who is answered where.
    "swapped": lambda a, b: ([honest(b)], [honest(a)]),
    "both-in-the-first": lambda a, b: ([honest(a), honest(b)], []),
    "both-in-the-second": lambda a, b: ([], [honest(b), honest(a)]),
    "both-in-a-batch": lambda a, b: ([[honest(b), honest(a)]], []),
    "other-first": before(lambda _, other: answer(other["id"])),
    "other-failed-first": before(lambda _, other: failure(other["id"])),
    "other-as-text": before(lambda _, other: answer(str(other["id"]))),
    "other-as-fraction": before(lambda _, other: answer(float(other["id"]))),
    "other-unreadable": before(lambda _, other: {"jsonrpc": "2.0", "id": other["id"], "result": 5}),
    # How often.
    "twice": after(lambda own, _: honest(own)),
    "twice-with-another-text": after(lambda own, _: answer(own["id"])),
    "failed-afterwards": after(lambda own, _: failure(own["id"])),
    "one-unanswered": lambda a, _: ([honest(a), answer(a["id"])], []),
    # Requests that are not under way.
    "next-ids": before(*map(forge_at_distance, range(2, 60))),
    "earlier-ids": before(*map(forge_at_distance, range(-60, -1))),
    "negative-ids": before(lambda own, _: answer(-own["id"])),
    # The other direction.
    "request-with-our-id": before(lambda own, _: ask(own["id"])),
    "request-with-the-other-id": before(lambda _, other: ask(other["id"], "sampling/createMessage")),
    "answers-to-own-requests": before(lambda _, __: ask("s1"), lambda _, __: answer("s1")),
    "one-id-in-both-directions": before(lambda own, _: ask(own["id"]), lambda own, _: ask(own["id"])),
    "cancels-the-other": before(lambda _, other: note("cancelled", requestId=other["id"])),
    "progress-of-the-other": before(lambda _, other: note("progress", progressToken=other["id"], progress=1)),
}


STREAM_MODES: dict[str, Callable[[Message, Message], list[Reply]]] = {
    # What is sent on the stream of a GET, which answers no request, before the honest answers.
    "both-answered": lambda a, b: [answer(a["id"]), answer(b["id"])],
    "both-failed": lambda a, b: [failure(a["id"]), failure(b["id"])],
    "answers-in-a-batch": lambda a, b: [[answer(a["id"]), answer(b["id"])]],
    "ids-as-text": lambda a, b: [answer(str(a["id"])), answer(float(b["id"]))],
    "unreadable-results": lambda a, b: [{"jsonrpc": "2.0", "id": each["id"], "result": 5} for each in (a, b)],
    "results-with-errors": lambda a, b: [{**answer(each["id"]), **failure(each["id"])} for each in (a, b)],
    "requests-with-their-ids": lambda a, b: [ask(a["id"]), ask(b["id"], "sampling/createMessage")],
    "both-cancelled": lambda a, b: [note("cancelled", requestId=each["id"]) for each in (a, b)],
    "all-ids": lambda a, b: [answer(number) for number in range(-5, a["id"] + b["id"] + 50)],
    "input-required": lambda a, b: [
        {"jsonrpc": "2.0", "id": each["id"], "result": {"resultType": "input_required", "inputRequests": {}}}
        for each in (a, b)
    ],
}


class Pair:
    """The first two calls, once both are there."""

    def __init__(self, mode: str, record: str) -> None:
        self._mode = mode
        self._record = record
        self._calls: list[Message] = []
        self.replies: Replies = ([], [])
        self.streamed: list[Reply] = []
        """What comes on the stream of a GET first."""
        self.has_stream = mode in STREAM_MODES

    def add(self, request: Message) -> int:
        """Return which call this is, from 0; the replies are there with the second."""
        self._calls.append(request)
        if len(self._calls) == 2:
            first, second = self._calls
            make = MODES.get(self._mode)
            self.replies = make(first, second) if make else ([honest(first)], [honest(second)])
            if self._mode in STREAM_MODES:
                self.streamed = STREAM_MODES[self._mode](first, second)
        return len(self._calls) - 1

    def later_replies(self, request: Message) -> list[Reply]:
        """Return what a call gets after the first two."""
        earlier = [*self.replies[0], *self.replies[1]]
        kept = [reply for reply in earlier if isinstance(reply, list) or reply.get("id") != request["id"]]
        return [*kept, honest(request)]

    def note_sent(self) -> None:
        with open(self._record, "w") as file:
            json.dump([call["id"] for call in self._calls[:2]], file)


def result_of(request: Message) -> Message:
    match request["method"]:
        case "initialize":
            info = {"name": "crossed", "version": "1"}
            result: Message = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        case "tools/list":
            schema = {"type": "object", "properties": {"tag": {"type": "string"}}}
            result = {"tools": [{"name": "attack", "inputSchema": schema}]}
        case _:
            return {"id": request["id"], "error": {"code": -32601, "message": "no such method"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


# Over stdio.


def serve_stdio(pair: Pair) -> None:
    def write(messages: list[Reply]) -> None:
        sys.stdout.write("".join(json.dumps(message) + "\n" for message in messages))
        sys.stdout.flush()

    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        if request["method"] != "tools/call":
            write([result_of(request)])
            continue
        number = pair.add(request)
        if number:
            write(pair.later_replies(request) if number > 1 else [*pair.replies[0], *pair.replies[1]])
            pair.note_sent()


# Over HTTP.


def response(messages: list[Reply], *headers: str) -> bytes:
    """Return one message as JSON, and any other number as a stream."""
    if len(messages) == 1:
        kind, body = "application/json", json.dumps(messages[0]).encode()
    else:
        kind = "text/event-stream"
        body = b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)
    head = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


class HttpServer:
    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._complete = asyncio.Event()
        self._sent = 0
        self._stream: asyncio.StreamWriter | None = None
        self._heard = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                sizes = [int(line.split(":")[1]) for line in lines if line.startswith("content-length:")]
                sent = await reader.readexactly(sizes[0] if sizes else 0)
                if lines[0].startswith("get") and self._pair.has_stream:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    self._stream = writer
                    continue
                if not lines[0].startswith("post"):
                    writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                await self._answer(json.loads(sent), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()  # the other side has gone, as it may

    async def _answer(self, request: Message, writer: asyncio.StreamWriter) -> None:
        if "id" not in request or "method" not in request:
            if request.get("id") == LAST:
                self._heard.set()
            writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            return
        if request["method"] != "tools/call":
            writer.write(response([result_of(request)], "Mcp-Session-Id: s1"))
            return
        number = self._pair.add(request)
        if number == 1:
            await self._send_on_stream()
            self._complete.set()
        await self._complete.wait()
        replies = self._pair.later_replies(request) if number > 1 else self._pair.replies[number]
        writer.write(response(replies))
        self._sent += 1
        if self._sent == 2:
            self._pair.note_sent()

    async def _send_on_stream(self) -> None:
        """Send what goes on the stream of a GET, and wait for the answer to a ping: then it was read."""
        if not self._pair.has_stream:
            return
        assert self._stream is not None, "it opens the stream after the handshake"
        for message in (*self._pair.streamed, ask(LAST)):
            self._stream.write(b"data: " + json.dumps(message).encode() + b"\n\n")
        await self._stream.drain()
        await asyncio.wait_for(self._heard.wait(), 10)


LAST = "last"
"""The id of the request that comes last on the stream of a GET."""


async def serve_http(pair: Pair) -> None:
    server = await asyncio.start_server(HttpServer(pair).serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    transport, *arguments = sys.argv[1:]
    if transport == "stdio":
        serve_stdio(Pair(*arguments))
    else:
        asyncio.run(serve_http(Pair(*arguments)))
