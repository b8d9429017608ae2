"""Passing of accepted connections from the supervisor to a worker, as descriptors over a socket pair.

Each message of the supervisor is one byte with one descriptor. The worker answers with single bytes: it took
a connection, it took one over from another worker, one has ended, it is about to leave. The end of the stream
tells the worker to finish and end, whether the supervisor wants that or has died.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio

TAKEN: Final = b"+"
ADOPTED: Final = b"*"
ENDED: Final = b"-"
LEAVING: Final = b"."

_CONNECTION: Final = b"c"
MAX_UNTAKEN: Final = 64
"""How many connections may be on their way to a worker."""
TAKING_SECONDS: Final = 2.0
"""A worker that took no connection for so long gets no other before it does: it is stopped, or busy."""
_READ_BYTES: Final = 4096


class HandoverSender:
    """The supervisor's end: hands connections to one worker, and counts those that it has."""

    def __init__(self, channel: socket.socket, on_change: Callable[[], None]) -> None:
        """Pass connections on over a channel; `on_change` is called when it may take more, or no more."""
        channel.setblocking(False)
        self._channel = channel
        self._on_change = on_change
        self._untaken: deque[tuple[socket.socket, float]] = deque()
        self._is_stuck = False
        self.open = 0
        """Connections that the worker has, or is about to have."""
        self.is_leaving = False

    @property
    def is_willing(self) -> bool:
        """Whether the worker can be given a connection now."""
        if self.is_leaving or self._is_stuck or len(self._untaken) >= MAX_UNTAKEN:
            return False
        return not self._untaken or time.monotonic() - self._untaken[0][1] < TAKING_SECONDS

    def send(self, connection: socket.socket) -> bool:
        """Pass a connection on. False where that cannot be done now; then it is still the caller's.

        It stays open here until the worker has it: one that a dying worker never took is given to another.
        """
        try:
            socket.send_fds(self._channel, [_CONNECTION], [connection.fileno()])
        except OSError:
            self._is_stuck = True  # until it says something: it is full, or about to be found dead
            return False
        self._untaken.append((connection, time.monotonic()))
        self.open += 1
        return True

    def finish(self) -> None:
        """Pass on no more. The worker takes what is on its way, finishes and ends."""
        self.is_leaving = True
        try:
            self._channel.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it ended before

    async def follow(self) -> None:
        """Count what the worker says, until it ends."""
        while True:
            await anyio.wait_readable(self._channel)
            try:
                said = self._channel.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            if not said:
                break
            self._note(said)
            self._is_stuck = False
            if LEAVING in said:
                self.finish()
            self._on_change()
        self.is_leaving = True
        self._on_change()

    def _note(self, said: bytes) -> None:
        for _ in range(said.count(TAKEN)):
            self._untaken.popleft()[0].close()
        self.open += said.count(ADOPTED) - said.count(ENDED)

    def close(self) -> list[socket.socket]:
        """Close the channel of a worker that ended. Returns the connections that it never took."""
        self.is_leaving = True
        # What it took last, and said, may not have been read yet: another worker would wait on a connection
        # whose request is gone.
        with suppress(OSError):
            while said := self._channel.recv(_READ_BYTES):
                self._note(said)
        self._channel.close()
        untaken = [connection for connection, _ in self._untaken]
        self._untaken.clear()
        return untaken


class HandoverReceiver:
    """The worker's end: takes connections."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._unsaid = b""

    async def run(self, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Take connections until no more will come."""
        while True:
            await anyio.wait_readable(self._channel)
            try:
                data, descriptors = _receive_descriptor(self._channel)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            # Before anything is read of it: one that was not taken is handed to another worker.
            await self._tell_surely(TAKEN)
            if descriptors:
                await serve(socket.socket(fileno=descriptors[0]))
            else:  # no descriptor was free: the connection is lost
                self.tell(ENDED)

    def tell(self, word: bytes) -> None:
        """Tell the supervisor something, soon. The order is kept."""
        self._unsaid += word
        try:
            while self._unsaid:
                self._unsaid = self._unsaid[self._channel.send(self._unsaid) :]
        except BlockingIOError:
            return  # it goes with the next word
        except OSError:
            self._unsaid = b""  # the supervisor is gone, which ends this process

    async def _tell_surely(self, word: bytes) -> None:
        self.tell(word)
        while self._unsaid:
            await anyio.wait_writable(self._channel)
            self.tell(b"")

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _receive_descriptor(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Read one byte and the descriptor that came with it, if one was free here."""
    data, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # no server that is started gets a client's connection
    return data, descriptors
