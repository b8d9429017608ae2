"""Transport to a server process that another replica runs: each request is one HTTP exchange with its owner.

What comes back on an exchange is lines of JSON-RPC: progress and other notifications, and the answer last.
Until the request's first byte was sent, and where the owner refuses it as a whole, it was not sent: the
connection ends, and the caller finds the next owner. After that, an owner that is gone or silent leaves it
unknown.
"""

import logging
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.lowlevel
from mcp.shared.dispatcher import CallOptions

from fairlead.catalog.sanitize.slices import SliceTimer
from fairlead.connection.outcomes import AnswerLost, ConnectionEnding
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.http_endpoint import cancel_when_answered
from fairlead.gateway.cluster.addresses import authority
from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER, Forwarder
from fairlead.gateway.cluster.peer_client import CONNECT_SECONDS, PeerConnection, PeerLost, PeerUnreachable
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, PeerSignatures
from fairlead.gateway.cluster.replicas import LOOK_SECONDS, Replica
from fairlead.jsonrpc.frames import LineSplitter, UnusableLine
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong

SERVERS_PATH: Final = "/replica/servers/"
START: Final = b"/start"
CLOSE: Final = b"/close"
"""After a server's key, where a replica is to start or close it rather than to pass a request on."""
NOTICE_HEADER: Final = b"fairlead-notice"
"""On the response to a call: its result is the one to say that the server's memory was lost."""
MEMORY_LOST: Final = (
    "this server was started anew, because the gateway process that ran it ended, or was cut off from the"
    " store: its memory was lost"
)
CLOSE_SECONDS: Final = 20.0
"""How long a replica may take to close a server: more than it gives to the process."""

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
) -> bool:
    """Ask a replica whether it runs a server now, for others to use."""
    return await _exchange(replica, forwarder, _head(replica, signatures, b"GET", _target(key), b""))


async def have_server_started(
    replica: Replica, server_id: str, key: str, forwarder: Forwarder, signatures: PeerSignatures
) -> bool:
    """Have a replica start a server, soon, because this one is about to stop. False where it will not."""
    body = server_id.encode("utf-8")
    head = _head(replica, signatures, b"POST", _target(key) + START, body)
    return await _exchange(replica, forwarder, head, body)


async def have_server_closed(
    replica: Replica, server_id: str, key: str, forwarder: Forwarder, signatures: PeerSignatures
) -> bool:
    """Have a replica close a server: its connections to it, and the process if it runs there."""
    body = server_id.encode("utf-8")
    head = _head(replica, signatures, b"POST", _target(key) + CLOSE, body)
    return await _exchange(replica, forwarder, head, body, seconds=CLOSE_SECONDS)


def _target(key: str) -> bytes:
    return f"{SERVERS_PATH}{key}".encode()


async def _exchange(
    replica: Replica, forwarder: Forwarder, *parts: bytes, seconds: float = CONNECT_SECONDS
) -> bool:
    """Send a replica something that it agrees to, or not."""
    try:
        connection = await forwarder.peers.connect(replica)
    except PeerUnreachable:
        return False
    try:
        with anyio.fail_after(seconds):
            connection.send(*parts)
            await connection.read_head()
            while await connection.read():
                pass
    except (PeerLost, TimeoutError):
        return False
    finally:
        forwarder.peers.release(replica, connection)
    return connection.status == 204


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
        self._target = _target(key)
        self._forwarder = forwarder
        self._signatures = signatures
        self._max_line_bytes = max_line_bytes
        self._exchanges = 0
        self._exchange_ended = anyio.Event()

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
        """End the connection when its owner is gone, or has no lease any more: waiting requests fail."""
        while self.ending is None:
            await anyio.sleep(LOOK_SECONDS)
            if await self._forwarder.has_lost(self._replica):
                self._leave("is gone, or does not answer")

    def _leave(self, what: str) -> None:
        message = f"{self._owner} {what}"
        # `unheard`: it says nothing about the server, least of all about its protocol version.
        self._end(ConnectionEnding(kind="hung_up", message=message, unheard=True))

    # What we send.

    async def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        self._exchanges += 1
        try:
            connection = await self._begin(call, frame)
            if call.method == "initialize" and call.answer.done():
                self._tasks.start_soon(self._follow, connection)
            else:
                # One that is not at its end is closed, which cancels the request at the owner.
                self._forwarder.peers.release(self._replica, connection)
        finally:
            self._exchanges -= 1
            self._exchange_ended.set()

    async def _begin(self, call: Call, frame: bytes) -> PeerConnection:
        """Send a request and wait for its answer. An exchange that fails says nothing of the others."""
        try:
            connection = await self._forwarder.peers.connect(self._replica)
        except PeerUnreachable as exc:
            self.retire()
            raise AnswerLost(f"{self._owner} is unreachable: {exc}", "not_sent") from exc
        try:
            with cancel_when_answered(call):
                call.begin_sending()
                connection.send(_head(self._replica, self._signatures, b"POST", self._target, frame), frame)
                await self._read_answer(call, connection)
        except BaseException as exc:
            connection.abort()
            if isinstance(exc, PeerLost | AnswerLost):
                self.retire()
            if isinstance(exc, PeerLost):
                raise AnswerLost(f"{self._owner} is gone") from exc
            raise
        return connection

    @property
    def _owner(self) -> str:
        return f"the replica {self._replica.id} that runs it"

    async def _read_answer(self, call: Call, connection: PeerConnection) -> None:
        await connection.read_head()
        if any(name == REFUSAL_HEADER for name, _ in connection.headers):
            call.sent = False
            raise AnswerLost(f"{self._owner} does not do so any more", "not_sent")
        if any(name == NOTICE_HEADER for name, _ in connection.headers):
            self.notice = MEMORY_LOST
        await self._read_lines(call, connection)
        if not call.answer.done():
            raise AnswerLost("its process ended before the answer")

    async def _read_lines(self, call: Call | None, connection: PeerConnection) -> None:
        """Take in what comes on an exchange, until its end; that of a handshake, until its answer."""
        lines = LineSplitter(self._max_line_bytes)
        try:
            while data := await connection.read():
                turn = SliceTimer()
                for line in lines.feed(data):
                    self._take(line)
                    if turn.is_over():  # a server may have flooded its owner: others get their turn
                        await anyio.lowlevel.checkpoint()
                if call is not None and call.method == "initialize" and call.answer.done():
                    return
        except LineTooLong as exc:
            raise AnswerLost(str(exc)) from exc

    async def _follow(self, connection: PeerConnection) -> None:
        """Follow what a server with sessions announces; the session ends with the exchange."""
        try:
            await self._read_lines(None, connection)
        except (PeerLost, AnswerLost):
            logger.info("a session at another replica broke off", extra={"replica": self._replica.id})
        finally:
            connection.abort()
        self.retire()
        while self._exchanges:  # each has its own answer, or none
            self._exchange_ended = anyio.Event()
            await self._exchange_ended.wait()
        self._leave("does not run it any more")

    def _take(self, line: bytes | bytearray | UnusableLine) -> None:
        if isinstance(line, UnusableLine):
            self._handle(line)
        else:
            self._receive(line)

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Do nothing: the owner sends the notifications of a session, and all else is requests."""

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        """Do nothing: the end of its exchange cancels a request."""
