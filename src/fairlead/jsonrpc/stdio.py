"""Stdio transport of a server that answers every request, however malformed its line.

The SDK's own transport answers no line that it cannot parse, and drops what is under way when its client
closes stdin, as a shell does after `printf … | fairlead gateway --stdio`. This one answers both.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import PydanticSerializationError

from fairlead.jsonrpc.frames import LineSplitter, UnusableLine
from fairlead.jsonrpc.incoming import MessageRefusal, read_messages
from fairlead.jsonrpc.limits import LineTooLong

_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2

Received = MemoryObjectReceiveStream[SessionMessage | Exception]
Sent = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def open_stdio(grace_seconds: float) -> AsyncGenerator[tuple[Received, Sent]]:
    """Open stdin and stdout as the pair of streams that the SDK's server runs over.

    Meanwhile fd 0 is the null device and fd 1 is stderr, so that nothing else reads or writes the messages.

    Args:
        grace_seconds: How long requests under way may take after the client closed stdin.
    """
    with _private_descriptors() as (stdin, stdout):
        lines = _StdioLines(stdout, grace_seconds)
        chunks = _read_in_thread(stdin)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lines.read, chunks, tasks.cancel_scope)
            tasks.start_soon(lines.write, tasks.cancel_scope)
            yield lines.received, lines.sent
            chunks.close()


class _StdioLines:
    """Lines in both directions, and the requests that wait for an answer."""

    def __init__(self, stdout: int, grace_seconds: float) -> None:
        self._stdout = stdout
        self._grace_seconds = grace_seconds
        self._to_server, self.received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.sent, self._from_server = anyio.create_memory_object_stream[SessionMessage](0)
        self._unanswered: set[RequestId] = set()
        self._answered = anyio.Event()
        self._writing = anyio.Lock()

    async def read(self, chunks: MemoryObjectReceiveStream[bytes], scope: anyio.CancelScope) -> None:
        """Pass the client's messages to the server until the client closes stdin and has its answers."""
        splitter = LineSplitter(_MAX_LINE_BYTES)
        async with self._to_server:
            try:
                try:
                    async for chunk in chunks:
                        for line in splitter.feed(chunk):
                            await self._take(line)
                    for line in splitter.finish():
                        await self._take(line)
                except LineTooLong as exc:
                    await self._write_line(MessageRefusal(code=PARSE_ERROR, reason=str(exc)).encode())
                with anyio.move_on_after(self._grace_seconds):
                    while self._unanswered:
                        self._answered = anyio.Event()
                        await self._answered.wait()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the server has ended, and reads no more
            except OSError:
                scope.cancel()  # the client is gone, and reads no refusal

    async def _take(self, line: bytes | bytearray | UnusableLine) -> None:
        for message in read_messages(line):
            if isinstance(message, MessageRefusal):
                await self._write_line(message.encode())
                continue
            if isinstance(message, JSONRPCRequest):
                self._unanswered.add(message.id)
            elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                self._settle((message.params or {}).get("requestId"))
            await self._to_server.send(SessionMessage(message))

    async def write(self, scope: anyio.CancelScope) -> None:
        """Write the server's messages until it ends; a client that is gone ends the transport."""
        async with self._from_server:
            async for outgoing in self._from_server:
                message = outgoing.message
                try:
                    await self._write_line(_encode(message))
                except OSError:
                    scope.cancel()
                    return
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._settle(message.id)

    def _settle(self, request_id: object) -> None:
        if isinstance(request_id, int | str):
            self._unanswered.discard(request_id)
            self._answered.set()

    async def _write_line(self, line: bytes) -> None:
        async with self._writing:
            await anyio.to_thread.run_sync(_write_all, self._stdout, line + b"\n")


def _encode(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except (PydanticSerializationError, ValueError, RecursionError):
        if not isinstance(message, JSONRPCResponse):
            raise
        error = ErrorData(code=INTERNAL_ERROR, message="the result cannot be written as JSON")
        return JSONRPCError(jsonrpc="2.0", id=message.id, error=error).model_dump_json().encode()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_in_thread(descriptor: int) -> MemoryObjectReceiveStream[bytes]:
    """Stream of what is read from a descriptor.

    The thread is a daemon, since a read that blocks cannot be cancelled and must not delay the exit.
    """
    loop = asyncio.get_running_loop()
    sending, receiving = anyio.create_memory_object_stream[bytes](1)

    async def send(data: bytes) -> None:
        if data:
            await sending.send(data)
        else:
            sending.close()

    def read() -> None:
        data = b"-"
        while data:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(send(data), loop).result()
            except (RuntimeError, CancelledError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the loop or the reader is gone

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return receiving


@contextmanager
def _private_descriptors() -> Generator[tuple[int, int]]:
    """Move stdin and stdout to private descriptors for the length of the block.

    Where this process was started without one of them, its number may be any other file's by now: it is left
    alone, and the null device serves instead.
    """
    null = os.open(os.devnull, os.O_RDWR)
    stdin = _take(_STDIN, null) if sys.__stdin__ is not None else null
    stdout = _take(_STDOUT, _STDERR if sys.__stderr__ is not None else null) if sys.__stdout__ else null
    try:
        yield stdin, stdout
    finally:
        # The copies stay open: the thread may still read one, and its number must not be reused.
        for copy, number in ((stdin, _STDIN), (stdout, _STDOUT)):
            if copy != null:
                os.dup2(copy, number)


def _take(number: int, instead: int) -> int:
    copy = os.dup(number)
    os.dup2(instead, number)
    return copy
