"""Just enough of HTTP for a server that decides itself which bytes it sends. Standard library only."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Message:
        return json.loads(self.body)

    @property
    def tool(self) -> str:
        return self.message["params"]["name"]

    @property
    def arguments(self) -> Message:
        return self.message["params"].get("arguments", {})


class Exchange:
    """A request and the connection its response goes to."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def reply(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        content: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        named = {"Content-Type": content, "Content-Length": str(len(body)), **(headers or {})}
        await self.head(status, named)
        await self.send(body)

    async def reply_json(self, message: Message, **rest: Any) -> None:
        await self.reply(encoded(message), **rest)

    async def answer(self, text: str = "fine", **rest: Any) -> None:
        await self.reply_json(self.answer_message(text), **rest)

    def answer_message(self, text: str = "fine") -> Message:
        return {"id": self.request.message["id"], "result": text_result(text)}

    async def open_stream(self) -> None:
        await self.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: Message | None, *, event_id: str = "", retry: int | None = None) -> None:
        lines = [f"id: {event_id}"] if event_id else []
        lines += [] if retry is None else [f"retry: {retry}"]
        data = b"" if message is None else encoded(message)
        await self.chunk("".join(f"{line}\r\n" for line in lines).encode() + b"data: " + data + b"\r\n\r\n")

    async def end(self) -> None:
        """End a chunked body, and leave the connection open for the next request."""
        await self.chunk(b"")

    def drop(self) -> None:
        """Break the connection off."""
        self.writer.transport.abort()

    async def hung_up(self) -> None:
        """Wait until the client closes the connection."""
        with suppress(ConnectionError):
            await self.reader.read()


def encoded(message: Message) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def text_result(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    method, path, _ = first.split(" ")
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
