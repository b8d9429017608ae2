"""Forwarding of a client's request to another replica, with the response streamed back as it comes.

The HTTP exchange is the correlation: what comes back on it belongs to the request, and nothing else does. A
client that disconnects ends the exchange, which cancels the request at its owner. Until the first byte was
sent, a request was not carried out; after that, an owner that dies or falls silent leaves this unknown, and
the request is never repeated.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import anyio
import msgspec
from mcp_types import INTERNAL_ERROR
from starlette.types import Message, Receive, Scope, Send

from fairlead.catalog.results import DELIVERY, ToolResult
from fairlead.errors import ReplicaFailed, StoreError, StoreUnavailable
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.addresses import authority
from fairlead.gateway.cluster.peer_client import PeerClient, PeerConnection, PeerLost, PeerUnreachable
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, PeerSignatures
from fairlead.gateway.cluster.replicas import LOOK_SECONDS, Replica, ReplicaDirectory
from fairlead.gateway.request_context import DISCONNECT_SECONDS, TaskStarter
from fairlead.net.exchange import send_response

REFUSAL_HEADER: Final = b"fairlead-refusal"
"""On a replica's response to another: the request was not carried out, and may be sent elsewhere."""

Outcome = Literal["answered", "not_sent", "unknown", "cancelled"]

_STORE_SECONDS: Final = 1.0
"""How long the store may take to say whether an owner lives, before the owner itself is contacted."""
_SILENT_SECONDS: Final = 1.0
"""For how long a replica that was not reached is not tried again by those who would only wait for it."""
_NOT_FORWARDED: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"origin",  # this replica has checked it, and its own pages are not those of the other
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        REPLICA_HEADER,
    )
)
"""Headers about one connection, and those that the other replica gets from this one."""
_NOT_RETURNED: Final = frozenset((b"connection", b"date", b"keep-alive", b"transfer-encoding"))
_EVENT_STREAM: Final = b"text/event-stream"


class _SentMessage(msgspec.Struct):
    """As much of a message as its answer needs."""

    id: int | str | None = None
    method: str | None = None


_decode_one = msgspec.json.Decoder(_SentMessage).decode
_decode_batch = msgspec.json.Decoder(list[_SentMessage]).decode


class _Exchange:
    """A request of a client that another replica works on."""

    __slots__ = ("connection", "has_client_left", "is_call", "is_over", "replica")

    def __init__(self, replica: Replica, connection: PeerConnection, *, is_call: bool) -> None:
        self.replica = replica
        self.connection = connection
        self.is_call = is_call
        """Whether it is a message, rather than a stream that a client holds open."""
        self.has_client_left = False
        self.is_over = False
        """Whether the connection is another exchange's by now, or no one's."""

    def end(self) -> None:
        """End it, unless it is over."""
        if not self.is_over:
            self.connection.abort()

    async def watch_client(self, receive: Receive) -> None:
        """End it when its client disconnects."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.has_client_left = True
        self.end()


class Forwarder:
    """Forwards requests to other replicas.

    Args:
        directory: Tells which replicas live.
        signatures: Signs what is sent to them.
        on_end: Called when a request that was forwarded ended.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        directory: ReplicaDirectory,
        signatures: PeerSignatures,
        on_end: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        """How many requests were forwarded, by what became of them."""
        self._directory = directory
        self._signatures = signatures
        self._on_end = on_end
        self.peers = PeerClient(signatures)
        """Connections to other replicas."""
        self._open: set[_Exchange] = set()
        self._starter = TaskStarter()
        self._clock = clock
        self._finding: dict[str, anyio.Lock] = {}
        """Of each replica that is looked for its own: one that does not answer holds up no other."""
        self._silent: dict[str, tuple[float, PeerUnreachable | StoreUnavailable]] = {}
        """Replicas that were not reached, until when that counts, and what came of it."""

    @property
    def calls(self) -> int:
        """Number of clients' messages that other replicas work on now."""
        return sum(exchange.is_call for exchange in self._open)

    async def run(self) -> None:
        """Follow whether the owners of requests under way live, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._starter.run, tasks)
                while True:
                    await anyio.sleep(LOOK_SECONDS)
                    self.peers.close_idle()
                    self._silent = {name: it for name, it in self._silent.items() if it[0] > self._clock()}
                    for replica in {each.replica.id: each.replica for each in self._open}.values():
                        if await self.has_lost(replica):
                            self._end_exchanges(replica)
        finally:
            self.peers.close()

    async def find(self, replica_id: str) -> Replica | None:
        """Return a living replica; None where it is gone. Where the store cannot say, it is contacted itself.

        Raises:
            StoreError: The store does not answer, and the replica was not known before.
            PeerUnreachable: Neither of them answers.
        """
        if found := self._directory.known(replica_id):
            return found
        lock = self._finding.setdefault(replica_id, anyio.Lock())
        try:
            async with lock:  # many requests may wait for the same answer
                if found := self._directory.known(replica_id):
                    return found
                if self.is_silent(replica_id):
                    raise _again(self._silent[replica_id][1])
                return await self._look_for(replica_id)
        finally:
            if not lock.locked():
                self._finding.pop(replica_id, None)

    async def _look_for(self, replica_id: str) -> Replica | None:
        try:
            try:
                with anyio.fail_after(_STORE_SECONDS):
                    return await self._directory.find(replica_id)
            except (StoreError, TimeoutError) as exc:
                found = self._directory.last_known(replica_id)
                if found is None:
                    raise StoreUnavailable("the store does not answer") from exc
            await self.peers.greet(found)
        except (PeerUnreachable, StoreUnavailable) as exc:
            self._note_silent(replica_id, exc)
            raise
        self._directory.note_alive(replica_id)
        return found

    def is_silent(self, replica_id: str) -> bool:
        """Whether a replica was not reached a moment ago."""
        return replica_id in self._silent and self._silent[replica_id][0] > self._clock()

    def _note_silent(self, replica_id: str, reason: PeerUnreachable | StoreUnavailable) -> None:
        self._silent[replica_id] = self._clock() + _SILENT_SECONDS, reason

    async def has_lost(self, replica: Replica) -> bool:
        """Whether what is under way at a replica is lost.

        One that stops finishes what it has, though it has left; the end of its process ends the connections.
        """
        return not await self.lives(replica) and not self._directory.has_left(replica.id)

    async def lives(self, replica: Replica) -> bool:
        """Whether a replica has a lease; where the store cannot say, whether it answers by itself."""
        try:
            return await self.find(replica.id) is not None
        except (StoreError, PeerUnreachable):
            return False

    def _end_exchanges(self, replica: Replica) -> None:
        for exchange in [each for each in self._open if each.replica.id == replica.id]:
            exchange.end()

    async def forward(
        self, replica: Replica, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Have a replica answer a request, and pass its answer on.

        Args:
            replica: The replica that is to work on it.
            scope: The request.
            body: Its body, which was read.
            receive: Tells when the client disconnects.
            send: Where the answer goes.

        Raises:
            PeerUnreachable: The request was not sent, or refused as a whole. Nothing was answered.
        """
        try:
            connection = await self.peers.connect(replica)
        except PeerUnreachable as exc:
            self.outcomes["not_sent"] += 1
            self._note_silent(replica.id, exc)
            raise
        self._silent.pop(replica.id, None)
        exchange = _Exchange(replica, connection, is_call=scope["method"] == "POST")
        self._open.add(exchange)
        # As on the fast path: nearly every answer comes before that, and a timer costs less than a task.
        watch = asyncio.get_running_loop().call_later(
            DISCONNECT_SECONDS, self._starter.start_soon, exchange.watch_client, receive
        )
        outcome: Outcome = "cancelled"
        try:
            connection.send(self._head(replica, scope, body), body)
            outcome = await self._return_answer(exchange, scope, body, send)
        except PeerUnreachable:
            outcome = "not_sent"
            raise
        finally:
            watch.cancel()
            exchange.is_over = True
            self._open.discard(exchange)
            self.peers.release(replica, connection)
            self.outcomes[outcome] += 1
            self._on_end()

    def _head(self, replica: Replica, scope: Scope, body: bytes) -> bytes:
        method: bytes = scope["method"].encode()
        headers = [pair for pair in scope["headers"] if pair[0] not in _NOT_FORWARDED]
        if body or method == b"POST":
            headers.append((b"content-length", b"%d" % len(body)))
        target = target_of(scope)
        value, _ = self._signatures.sign(replica.id, method, target, headers, scope.get("client"))
        headers += [(b"host", authority(replica.address).encode()), (REPLICA_HEADER, value)]
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)

    async def _return_answer(self, exchange: _Exchange, scope: Scope, body: bytes, send: Send) -> Outcome:
        connection = exchange.connection
        try:
            await connection.read_head()
        except PeerLost:
            if exchange.has_client_left:
                return "cancelled"
            await failure_answer(_lost(exchange.replica), body)(scope, _never, send)
            return "unknown"
        names = dict(connection.headers)
        if REFUSAL_HEADER in names:
            raise PeerUnreachable("it refused the request")
        stream = _ReturnedStream(connection, names, send)
        try:
            await stream.run()
        except PeerLost:
            if exchange.has_client_left:
                return "cancelled"
            await stream.end_with(answers_of(_lost(exchange.replica), body))
            return "unknown"
        return "answered"


class _ReturnedStream:
    """A response of a replica on its way to the client."""

    def __init__(self, connection: PeerConnection, names: Mapping[bytes, bytes], send: Send) -> None:
        """Return what comes over a connection; `names` are its headers, by name."""
        self._connection = connection
        self._send = send
        self._tail = b"\n\n"
        """The last bytes that were passed on; at the beginning, the end of no event."""
        self._is_whole = b"content-length" in names
        self._has_events = names.get(b"content-type", b"").startswith(_EVENT_STREAM)

    async def run(self) -> None:
        """Pass all of it on. Raises `PeerLost` where it broke off."""
        connection, data = self._connection, b""
        if self._is_whole:
            data = await connection.read()
            if connection.is_at_end and data:  # as nearly all calls are answered
                await send_response(self._send, connection.status, _head_of(connection.headers), data)
                return
        headers = [pair for pair in connection.headers if pair[0] not in _NOT_RETURNED]
        start: Message = {"type": "http.response.start", "status": connection.status, "headers": headers}
        await self._send(start)
        if not self._is_whole:
            data = await connection.read()  # which may be long in coming
        while not connection.is_at_end:  # more may have come while the client was waited for
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._tail = (self._tail + data)[-4:]
            data = await connection.read()
        await self._send({"type": "http.response.body", "body": data})

    async def end_with(self, answers: list[bytes]) -> None:
        """End what broke off: an event stream with the answers that are missing, another by closing it."""
        is_between_events = self._tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
        if self._has_events and is_between_events:
            events = b"".join(b"event: message\r\ndata: %b\r\n\r\n" % answer for answer in answers)
            await self._send({"type": "http.response.body", "body": events})


def _head_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a whole response. Its headers are those of a gateway, and were parsed one by one here."""
    kept = [pair for pair in headers if pair[0] not in _NOT_RETURNED and pair[0] != b"content-length"]
    return b"".join([b"%b: %b\r\n" % pair for pair in kept])


def target_of(scope: Scope) -> bytes:
    """The path and query of a request, as sent."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def _again(error: PeerUnreachable | StoreUnavailable) -> PeerUnreachable | StoreUnavailable:
    """The same error for another request."""
    if isinstance(error, PeerUnreachable):
        return PeerUnreachable(str(error), is_gone=error.is_gone)
    return StoreUnavailable(str(error))


def _lost(replica: Replica) -> ReplicaFailed:
    return ReplicaFailed(
        f"the gateway's replica {replica.id} that worked on the request is gone, or does not answer",
        delivery="unknown",
        hint="find out whether it was carried out before you repeat it",
    )


def _is_batch(body: bytes) -> bool:
    return body.lstrip()[:1] == b"["


def answers_of(error: ReplicaFailed, body: bytes) -> list[bytes]:
    """Answers to all requests in a body: an error result for a call, a JSON-RPC error for all else."""
    try:
        messages = _decode_batch(body) if _is_batch(body) else [_decode_one(body)]
    except (ValueError, RecursionError):
        return []
    return [_answer(error, sent) for sent in messages if sent.id is not None and sent.method is not None]


def _answer(error: ReplicaFailed, sent: _SentMessage) -> bytes:
    if sent.method == "tools/call":
        result = msgspec.Raw(ToolResult.from_error(error).raw)
        return msgspec.json.encode({"jsonrpc": "2.0", "id": sent.id, "result": result})
    text = f"{error}\n\nhint: {error.hint}" if error.hint else str(error)
    failure = {"code": INTERNAL_ERROR, "message": text, "data": {DELIVERY: error.delivery}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": sent.id, "error": failure})


def failure_answer(error: ReplicaFailed, body: bytes) -> RequestRefused:
    """The response to a request that was not answered, where its own has not begun."""
    answers = answers_of(error, body)
    if not answers:
        status = 502 if error.delivery == "unknown" else 503
        return RequestRefused.saying(status, str(error), {"Retry-After": "1"})
    whole = b"[" + b",".join(answers) + b"]" if _is_batch(body) else answers[0]
    return RequestRefused(status=200, headers={"Content-Type": "application/json"}, body=whole)


async def _never() -> Message:
    return {"type": "http.disconnect"}
