"""HTTP client of one replica for others: over TCP or Unix sockets, with a pool of authenticated connections.

It is not the client that all else uses (`net/http`), because forwarding needs to know whether a request's
first byte was sent, streams bytes as they come, and must cost little. Peers are in the store, which only
replicas can write: neither proxies nor rules for addresses apply to them.

A new connection is greeted first. The answer proves that the peer is the replica that is meant and has the
key, before it is sent any client's token; that it is not suspended, before it is sent a request; and it makes
the connection an authenticated one there, which is not closed to make room for others.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from fairlead.gateway.cluster.addresses import authority, socket_path
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, SIGNATURE_SECONDS, PeerSignatures
from fairlead.gateway.cluster.replicas import Replica

GREETING_PATH: Final = b"/replica"
CONNECT_SECONDS: Final = 2.0
"""How long a connection, with its greeting, may take."""

_AT_ONCE: Final = 32
"""How many connections are begun at a time: a peer closes some of too many that did not greet yet."""
_IDLE_SECONDS: Final = 30.0
"""How long a connection is kept for the next request: less than peers keep idle ones."""
_MAX_UNREAD: Final = 256 * 1024
"""Bytes of a response that wait for the client before no more are read: a slow client slows its server."""


class PeerUnreachable(Exception):
    """A replica cannot be connected to: nothing was sent. `is_gone` where no process listens there."""

    def __init__(self, reason: str, *, is_gone: bool = False) -> None:
        super().__init__(reason)
        self.is_gone = is_gone


class PeerLost(Exception):
    """The connection to a replica broke after the request's first byte: it may have been carried out."""


class PeerConnection(asyncio.Protocol):
    """One connection to a replica, for one exchange at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = True
        """Whether all of the last response came."""
        self.is_lost = False
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._has_head = False
        self._parts: deque[bytes] = deque()
        self._unread = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None

    # What callers use.

    def send(self, *parts: bytes) -> None:
        """Send a request. From here on it is unknown whether it was carried out, until there is an answer."""
        self.status, self.headers, self._has_head, self.is_complete = 0, [], False, False
        self._transport.writelines([part for part in parts if part])  # see `PacketTransport.flush`

    async def read_head(self) -> None:
        """Wait for the status and headers of the response. Raises `PeerLost`."""
        while not self._has_head:
            await self._wait()

    async def read(self) -> bytes:
        """Return what came of the body since, empty at its end. Raises `PeerLost`."""
        while not self._parts:
            if self.is_complete:
                return b""
            await self._wait()
        data = self._parts.popleft() if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """Close it at once: at the other end its request is cancelled."""
        self._lose()
        self._transport.abort()

    @property
    def is_at_end(self) -> bool:
        """Whether the last response was read to its end: the next one has nothing of it."""
        return self.is_complete and not self._parts

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent over it."""
        return self.is_at_end and not self.is_lost and not self._transport.is_closing()

    async def _wait(self) -> None:
        if self.is_lost:
            raise PeerLost
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _lose(self) -> None:
        self.is_lost = True
        self._wake()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the transport."""
        # Transports of uvloop are none by their class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()
        if self._unread > _MAX_UNREAD and not self._is_paused and not self.is_lost:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        self._lose()

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Have the response begin."""
        status = self._parser.get_status_code()
        if status < 200:  # an interim response: the real one follows
            self.headers = []
            return
        self.status, self._has_head = status, True
        self._wake()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._parts.append(body)
        self._unread += len(body)
        self._wake()

    def on_message_complete(self) -> None:
        """Have the response end."""
        if self._has_head:
            self.is_complete = True
            if not self._parser.should_keep_alive():
                self._transport.close()
            self._wake()


class PeerClient:
    """Connections of one replica to others."""

    def __init__(self, signatures: PeerSignatures, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._signatures = signatures
        self._clock = clock
        self._idle: defaultdict[str, list[PeerConnection]] = defaultdict(list)
        """Connections that no exchange has, by replica, the latest used last."""
        self._connecting: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_ONCE)
        )
        """Of each replica its own: one that does not answer holds up no other."""

    async def connect(self, replica: Replica) -> PeerConnection:
        """Return a connection to a replica. The caller gives it back with `release`.

        Raises:
            PeerUnreachable: There is none, and nothing was sent.
        """
        idle = self._idle.get(replica.id)
        while idle:
            connection = idle.pop()
            if connection.is_reusable and self._clock() - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.abort()
        try:
            async with asyncio.timeout(CONNECT_SECONDS), self._connecting[replica.id]:
                return await self._open(replica)
        except TimeoutError:
            raise PeerUnreachable("it does not answer") from None

    def release(self, replica: Replica, connection: PeerConnection) -> None:
        """Take a connection back: for the next exchange, or to close it where its own did not end."""
        if connection.is_reusable:
            connection.idle_since = self._clock()
            self._idle[replica.id].append(connection)
        else:
            connection.abort()

    async def greet(self, replica: Replica) -> None:
        """See that a replica answers, over a new connection. Raises `PeerUnreachable`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._open(replica)
        except TimeoutError:
            raise PeerUnreachable("it does not answer") from None
        self.release(replica, connection)

    def close_idle(self) -> None:
        """Close the connections that no request needed for a while."""
        now = self._clock()
        for replica_id, idle in [*self._idle.items()]:
            kept = [each for each in idle if each.is_reusable and now - each.idle_since < _IDLE_SECONDS]
            for connection in idle:
                if connection not in kept:
                    connection.abort()
            if kept:
                self._idle[replica_id] = kept
            else:
                del self._idle[replica_id]
                self._connecting.pop(replica_id, None)

    def close(self) -> None:
        """Close all connections that no exchange has."""
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    async def _open(self, replica: Replica) -> PeerConnection:
        loop = asyncio.get_running_loop()
        try:
            if path := socket_path(replica.address):
                _, connection = await loop.create_unix_connection(PeerConnection, path)
            else:
                url = urlsplit(replica.address)
                _, connection = await loop.create_connection(
                    PeerConnection, url.hostname or "", url.port or 80
                )
        except (ConnectionRefusedError, FileNotFoundError) as exc:
            raise PeerUnreachable("nothing listens at its address", is_gone=True) from exc
        except OSError as exc:
            raise PeerUnreachable(exc.strerror or "it cannot be connected to") from exc
        try:
            await self._exchange_greetings(replica, connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _exchange_greetings(self, replica: Replica, connection: PeerConnection) -> None:
        value, answer = self._signatures.sign(replica.id, b"GET", GREETING_PATH, ())
        head = b"GET %b HTTP/1.1\r\nhost: %b\r\n" % (GREETING_PATH, authority(replica.address).encode())
        connection.send(head, b"%b: %b\r\n\r\n" % (REPLICA_HEADER, value))
        try:
            await connection.read_head()
            while await connection.read():
                pass
        except PeerLost:
            raise PeerUnreachable("it closed the connection") from None
        if (REPLICA_HEADER, answer) not in connection.headers:
            apart = max(
                (self._signatures.seconds_from(it) for name, it in connection.headers if name == b"date"),
                default=0.0,
            )
            if connection.status == 403 and apart > SIGNATURE_SECONDS:
                # It may well be the one that is meant: what it has is not lost.
                raise PeerUnreachable(f"its clock and this one differ by {apart:,.0f} seconds")
            # Another replica, or another program, has the address by now. It gets no client's token.
            raise PeerUnreachable("another process is at its address", is_gone=True)
