"""Transport to a server process that another replica runs: each request is one HTTP exchange with its owner.

What comes back on an exchange is lines of JSON-RPC: progress and other notifications, and the answer last.
Until the request's first byte was sent, and where the owner refuses it as a whole, it was not sent: the
connection ends, and the caller finds the next owner. After that, an owner that is gone or silent leaves it
unknown.
"""

import logging
from types import TracebackType
from typing import Final, Literal, Self

import anyio
from mcp.shared.dispatcher import CallOptions

from fairlead.connection.outcomes import AnswerLost, ConnectionEnding, HttpRejected
from fairlead.connection.transport.dispatcher import Call, WireDispatcher
from fairlead.connection.transport.http_endpoint import until_answered
from fairlead.gateway.cluster.addresses import authority
from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER, Forwarder
from fairlead.gateway.cluster.peer_client import CONNECT_SECONDS, PeerConnection, PeerLost, PeerUnreachable
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, PeerSignatures
from fairlead.gateway.cluster.replicas import LOOK_SECONDS, Replica
from fairlead.jsonrpc.frames import Frame, LineSplitter, UnusableLine
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong

SERVERS_PATH: Final = "/replica/servers/"

ServerAtPeer = Literal["shared", "has session"]

logger = logging.getLogger(__name__)
_NO_OPTIONS: Final[CallOptions] = {}


def _head(replica: Replica, signatures: PeerSignatures, method: bytes, target: bytes, body: bytes) -> bytes:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    value, _ = signatures.sign(replica.id, method, target, headers)
    headers += [(b"host", authority(replica.address).encode()), (REPLICA_HEADER, value)]
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


async def ask_about_server(
    replica: Replica, key: str, forwarder: Forwarder, signatures: PeerSignatures
) -> ServerAtPeer | None:
    """Ask a replica whether it runs a server now, and whether others can use it. None: it does not."""
    target = f"{SERVERS_PATH}{key}".encode()
    try:
        connection = await forwarder.peers.connect(replica)
    except PeerUnreachable:
        return None
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            connection.send(_head(replica, signatures, b"GET", target, b""))
            await connection.read_head()
            while await connection.read():
                pass
    except (PeerLost, TimeoutError):
        return None
    finally:
        forwarder.peers.release(replica, connection)
    return "has session" if connection.status == 409 else "shared" if connection.status == 204 else None


class PeerDispatcher(WireDispatcher):
    """The conversation with a server that another replica runs.

    Args:
        replica: Its owner.
        key: The server's key among the replicas.
        forwarder: Knows whether replicas live, and has connections to them.
        signatures: Signs what is sent to the owner.
        max_line_bytes: The longest message.
    """

    kind = "replica"

    def __init__(
        self,
        replica: Replica,
        key: str,
        forwarder: Forwarder,
        signatures: PeerSignatures,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__()
        self._replica = replica
        self._key = key
        self._target = f"{SERVERS_PATH}{key}".encode()
        self._forwarder = forwarder
        self._signatures = signatures
        self._max_line_bytes = max_line_bytes
        self._speaks_older = False
        """Whether the server has rejected what a stateless server knows."""

    async def __aenter__(self) -> Self:
        """Nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it here. The process is its owner's."""
        self._end(ConnectionEnding(kind="closed", message="the connection was closed"))

    def _start_receiving(self) -> None:
        self._tasks.start_soon(self._watch_owner)

    async def _watch_owner(self) -> None:
        """End the connection when its owner is gone, or has no lease any more: what waits is told."""
        while self.ending is None:
            await anyio.sleep(LOOK_SECONDS)
            if not await self._forwarder.lives(self._replica):
                self._leave("is gone, or does not answer")

    def _leave(self, what: str) -> None:
        message = f"the replica {self._replica.id} that runs it {what}"
        # `unheard`: it says nothing about the server, least of all about its protocol version.
        self._end(ConnectionEnding(kind="hung_up", message=message, unheard=True))

    # What we send.

    async def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        if call.method == "initialize":
            if not self._speaks_older and await self._ask() != "has session":
                raise AnswerLost("its owner did not answer in time", "not_sent")
            # A handshake begins a session, and that is with one client alone: such a server runs here.
            raise HttpRejected(405, "a server with sessions is not shared between replicas")
        with until_answered(call):
            try:
                connection = await self._forwarder.peers.connect(self._replica)
            except PeerUnreachable as exc:
                self._leave(f"is not reached: {exc}")
                return
            try:
                call.sent = True
                connection.send(_head(self._replica, self._signatures, b"POST", self._target, frame), frame)
                await self._read_answer(call, connection)
            except PeerLost:
                self._leave("is gone")
            finally:
                # One that is not at its end is closed, which cancels the request at the owner.
                self._forwarder.peers.release(self._replica, connection)

    async def _ask(self) -> ServerAtPeer | None:
        return await ask_about_server(self._replica, self._key, self._forwarder, self._signatures)

    async def _read_answer(self, call: Call, connection: PeerConnection) -> None:
        await connection.read_head()
        if any(name == REFUSAL_HEADER for name, _ in connection.headers):
            call.sent = False
            while await connection.read():
                pass  # so that the connection can be used again
            self._leave("does not run it any more")
            return
        lines = LineSplitter(self._max_line_bytes)
        try:
            while data := await connection.read():
                for line in lines.feed(data):
                    self._take(line)
        except LineTooLong as exc:
            raise AnswerLost(str(exc)) from exc
        if not call.answer.done():
            raise AnswerLost("its process ended before the answer")
        if call.method == "server/discover" and not call.answer.cancelled():
            outcome = call.answer.result()
            self._speaks_older = isinstance(outcome, Frame) and bool(outcome.error)

    def _take(self, line: bytes | bytearray | UnusableLine) -> None:
        if isinstance(line, UnusableLine):
            self._handle(line)
        else:
            self._receive(line)

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Do nothing: to a stateless server a client sends nothing but requests."""

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        """Do nothing: the end of its exchange cancels a request."""
