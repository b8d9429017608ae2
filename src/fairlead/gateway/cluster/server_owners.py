"""Ownership of server processes that keep state: one replica runs each, the others send it their calls.

The owner holds a lease in the store, and its process a deadline at the guardian that is always earlier than
the end of the lease (`ProcessLease`), so that no two replicas run a server at a time. The rules, and what
goes wrong without each, are in `tests/gateway/cluster/ownership_model.py`.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final

import anyio
import msgspec
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from fairlead.config.load import LoadedServer
from fairlead.config.models import Server
from fairlead.connection.outcomes import NotSent, RequestFailed, RequestRejected
from fairlead.connection.process.child import EXPIRE_SECONDS, ProcessLease
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.factory import LeasedTransport
from fairlead.errors import ConnectFailed, LockBusy, StoreError
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER, Forwarder
from fairlead.gateway.cluster.peer_transport import SERVERS_PATH, PeerDispatcher, ask_about_server
from fairlead.gateway.cluster.replica_keys import PeerSignatures
from fairlead.gateway.cluster.replicas import PEER_PROTOCOL, Replica, ReplicaDirectory
from fairlead.host.snapshots import definition_digest
from fairlead.net.listen import read_body
from fairlead.store.protocol import ANY, Lease, Store

LEASE_SECONDS: Final = 5.0
"""How long a replica owns a server without a renewal."""
CLAIM_SECONDS: Final = 10.0
"""How long to wait for a server whose owner is gone: longer than its lease."""

MEMORY_LOST: Final = (
    "this server was started anew, because the gateway process that ran it ended: its memory was lost"
)

_LOOK_AGAIN_SECONDS: Final = 0.25
_SENDER_SECONDS: Final = 5.0
"""How often an owner looks whether the replica that it works for still lives."""
_MAX_WAITING: Final = 1000
"""Notifications of one exchange that wait to be sent."""
_JOIN_SECONDS: Final = 20.0
_NAMESPACE: Final = "server owners"
_OF_ONE_REQUEST: Final = frozenset({"notifications/progress", "notifications/cancelled"})
_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_NOT_OWNER: Final = RequestRefused.saying(
    503, "this replica does not run the server", {REFUSAL_HEADER.decode(): "not-sent"}
)

logger = logging.getLogger(__name__)


class _OwnerRecord(msgspec.Struct, frozen=True):
    """Who owns a server, as stored under its key for as long as it runs, or its owner is gone."""

    replica: str
    token: int
    is_successor: bool = False
    """Whether another replica ran it, and ended: what it had in memory is gone."""


class _HasSession(Exception):
    """The server has a session with its process, so that each replica starts its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """Who runs a server: another replica, or this one for as long as a lease holds."""

    record: _OwnerRecord
    lease: ProcessLease | None = None
    replica: Replica | None = None


class _Request(msgspec.Struct):
    """A request of another replica."""

    id: int | str
    method: str
    params: dict[str, msgspec.Raw] = {}


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(eq=False, slots=True)
class _OwnedServer:
    """A server process of this replica, and the exchanges of others with it."""

    dispatcher: WireDispatcher
    lease: ProcessLease
    max_seconds: float
    """How long a request may take, as its entry says."""
    exchanges: dict[str, list["_Exchange"]] = field(default_factory=dict[str, list["_Exchange"]])
    """By the replica that began them."""

    @property
    def is_usable(self) -> bool:
        return self.dispatcher.ending is None and not self.lease.has_ended

    def listen(self, method: str, raw: msgspec.Raw) -> None:
        """Pass a notification on: of a subscription to its exchange, of none once to each replica."""
        if method in _OF_ONE_REQUEST or not any(self.exchanges.values()):
            return
        params = _decode_object(raw) if raw else {}
        meta: dict[str, Any] = params.get("_meta") or {}
        subscription = meta.get(_SUBSCRIPTION_ID)
        for exchanges in self.exchanges.values():
            chosen = exchanges[:1]
            if subscription is not None:
                chosen = [exchange for exchange in exchanges if exchange.own_id == subscription]
            for exchange in chosen:
                if subscription is not None:
                    params["_meta"] = {**meta, _SUBSCRIPTION_ID: exchange.request.id}
                exchange.put({"jsonrpc": "2.0", "method": method, "params": params})


class _Exchange:
    """One request of another replica on its way through the process."""

    def __init__(self, request: _Request, send: Send) -> None:
        self.request = request
        self.own_id: str | None = None
        """The id that a subscription has at the process."""
        self._send = send
        self._begun = self._ended = False
        self._writing = anyio.Lock()
        self._lines: list[bytes] = []
        self._news = anyio.Event()

    def put(self, message: dict[str, Any]) -> None:
        """Add a message that comes before the answer; the oldest are dropped for a reader that is slow."""
        if len(self._lines) >= _MAX_WAITING:
            del self._lines[0]
        self._lines.append(msgspec.json.encode(message) + b"\n")
        self._news.set()

    async def pass_on(self) -> None:
        """Send what was put, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self._write()

    async def end(self, answer: dict[str, Any] | None) -> None:
        """Send the answer after all else; without one, the other replica does not know what became of it."""
        await self._write(b"" if answer is None else msgspec.json.encode(answer) + b"\n")

    async def _write(self, last: bytes | None = None) -> None:
        async with self._writing:  # what is put first is sent first, whichever task sends it
            if self._ended or (last is None and not self._lines):
                return
            self._ended = last is not None
            data, self._lines = b"".join(self._lines), []
            if not self._begun:
                self._begun = True
                headers = [(b"content-type", b"application/x-ndjson")]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            message = {"type": "http.response.body", "body": data + (last or b""), "more_body": last is None}
            await self._send(message)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress on under the token of the replica that asked for it."""
        params = {"progressToken": self.token, "progress": progress, "total": total, "message": message}
        said = {name: value for name, value in params.items() if value is not None}
        self.put({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})

    @property
    def token(self) -> int | str | None:
        """The progress token in the request."""
        meta = self.request.params.get("_meta")
        return _decode_object(meta).get("progressToken") if meta else None

    async def refuse(self, scope: Scope, receive: Receive) -> bool:
        """Refuse the request, unless an answer has begun."""
        if self._begun:
            return False
        await _NOT_OWNER(scope, receive, self._send)
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joined:
    """What is known once this process is one of several replicas."""

    store: Store
    directory: ReplicaDirectory
    forwarder: Forwarder
    signatures: PeerSignatures
    on_end: Callable[[], None]


class ServerOwners:
    """The server processes that replicas share: those that this one owns, and the way to all others.

    It is made before the host that uses it; nothing starts before `join`, or `stay_alone`.
    """

    def __init__(self, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_losses = 0
        """How often this replica lost a server because its lease ended."""
        self._lease_seconds = lease_seconds
        self._joined: _Joined | None = None
        self._is_settled = anyio.Event()
        self._owned: dict[str, _OwnedServer] = {}
        self._seen: dict[str, int] = {}
        """The fencing token of each server's process that was last used here."""

    def join(
        self,
        store: Store,
        directory: ReplicaDirectory,
        forwarder: Forwarder,
        signatures: PeerSignatures,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Share servers with the other replicas of a store.

        Args:
            store: The store, with the leases.
            directory: The replicas.
            forwarder: The connections to them.
            signatures: Signs what is sent to them.
            on_end: Called when a request of another replica ended.
        """
        self._joined = _Joined(
            store=store, directory=directory, forwarder=forwarder, signatures=signatures, on_end=on_end
        )
        self._is_settled.set()

    def stay_alone(self) -> None:
        """Start every server here: there are no other replicas."""
        self._is_settled.set()

    @property
    def calls(self) -> int:
        """How many requests of other replicas are under way here, without streams of subscriptions."""
        every = (each for owned in self._owned.values() for each in owned.exchanges.values())
        return sum(exchange.own_id is None for exchanges in every for exchange in exchanges)

    @property
    def owned(self) -> int:
        """How many server processes this replica owns."""
        return len(self._owned)

    # The side of the host.

    @asynccontextmanager
    async def open(self, server: LoadedServer, start: LeasedTransport) -> AsyncGenerator[WireDispatcher]:
        """Connect to the one process of a server: start it where no other replica has it.

        Raises:
            ConnectFailed: Its owner does not answer, and its lease does not end.
            StoreError: The store cannot say who owns it.
            LockLost: The lease was lost: the process was ended.
        """
        with anyio.fail_after(_JOIN_SECONDS):
            await self._is_settled.wait()
        joined = self._joined
        if joined is None:
            async with start(None) as dispatcher:
                yield dispatcher
            return
        key = server_key(server)
        async with AsyncExitStack() as stack:
            # The process ends before the lease is released: what is entered last is left first.
            try:
                claim = await self._claim(server.server_id, key, joined, stack)
            except _HasSession:
                dispatcher = await stack.enter_async_context(start(None))
            else:
                dispatcher = await stack.enter_async_context(self._connect(server, key, claim, joined, start))
            yield dispatcher

    @asynccontextmanager
    async def _connect(
        self, server: LoadedServer, key: str, claim: _Claim, joined: _Joined, start: LeasedTransport
    ) -> AsyncGenerator[WireDispatcher]:
        assert server.config is not None, "its entry is valid"
        async with AsyncExitStack() as stack:
            if claim.replica is not None:
                dispatcher = PeerDispatcher(
                    claim.replica,
                    key,
                    joined.forwarder,
                    joined.signatures,
                    max_line_bytes=server.config.max_message_bytes,
                )
                await stack.enter_async_context(dispatcher)
            else:
                dispatcher = await stack.enter_async_context(start(claim.lease))
                assert claim.lease is not None
                stack.enter_context(self._offer(key, dispatcher, claim.lease, server.config))
            if claim.record.is_successor and self._seen.get(key) != claim.record.token:
                dispatcher.notice = MEMORY_LOST
            self._seen[key] = claim.record.token
            yield dispatcher

    async def _claim(self, server_id: str, key: str, joined: _Joined, stack: AsyncExitStack) -> _Claim:
        """Take the lease of a server until the stack is left, or find the replica that has it."""
        deadline = anyio.current_time() + CLAIM_SECONDS
        while True:
            lease = ProcessLease(0.0)
            try:
                held = await stack.enter_async_context(
                    joined.store.lock(
                        f"server {key}",
                        lease_seconds=self._lease_seconds,
                        wait_seconds=0,
                        on_held=partial(self._extend, lease),
                    )
                )
            except LockBusy:
                found = await self._find_owner(key, joined)
                if found is not None:
                    return found
            else:
                return _Claim(record=await self._sign_in(key, held, joined, stack), lease=lease)
            if anyio.current_time() > deadline:
                hint = "try again in a moment; `fairlead doctor` checks the store"
                reason = "another replica of this gateway runs it and does not answer"
                raise ConnectFailed(server_id, reason, hint=hint)
            await anyio.sleep(_LOOK_AGAIN_SECONDS)

    async def _sign_in(self, key: str, held: Lease, joined: _Joined, stack: AsyncExitStack) -> _OwnerRecord:
        """Store who owns a server now, until it is left."""
        before = await _read_record(key, joined)
        own = joined.directory.id
        record = _OwnerRecord(own, held.token, before is not None and before.replica != own)
        value = msgspec.json.encode(record)
        await joined.store.put(_NAMESPACE, key, value, expect=ANY, fence=held, durable=False)
        stack.push_async_callback(self._sign_out, key, held, joined)
        return record

    async def _sign_out(self, key: str, held: Lease, joined: _Joined) -> None:
        # A replica that is about to stop leaves its record, so that its successor tells what is lost with it.
        # A process that was idle, or ended by itself, is started anew without a word, as everywhere.
        if not joined.directory.is_draining:
            with suppress(StoreError), anyio.CancelScope(shield=True):
                await joined.store.delete(_NAMESPACE, key, expect=ANY, fence=held)

    def _extend(self, lease: ProcessLease, asked_at: float) -> None:
        # The process must be gone before the lease ends in the store, wherever its clock is.
        deadline = asked_at + self._lease_seconds - EXPIRE_SECONDS
        if lease.deadline == 0.0:
            lease.deadline = deadline
        else:
            lease.extend(deadline)

    async def _find_owner(self, key: str, joined: _Joined) -> _Claim | None:
        """The replica that a server is at, if it answers."""
        record = await _read_record(key, joined)
        if record is None or record.replica == joined.directory.id:
            # Its owner has only just taken the lease, or it is a connection of our own that is about to end.
            return None
        owner = await joined.directory.find(record.replica)
        if owner is None or owner.protocol != PEER_PROTOCOL:
            return None
        found = await ask_about_server(owner, key, joined.forwarder, joined.signatures)
        if found == "has session":
            raise _HasSession
        return _Claim(record=record, replica=owner) if found else None

    @contextmanager
    def _offer(
        self, key: str, dispatcher: WireDispatcher, lease: ProcessLease, config: Server
    ) -> Generator[None]:
        """Let other replicas use a process for the length of the block."""
        owned = self._owned[key] = _OwnedServer(dispatcher, lease, config.max_request_ms / 1000)
        dispatcher.listeners.append(owned.listen)
        try:
            yield
        finally:
            if self._owned.get(key) is owned:
                del self._owned[key]
            if lease.has_ended:
                self.lease_losses += 1

    # The side of other replicas.

    async def serve(self, sender: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of another replica to a server that this one owns.

        Args:
            sender: The id of that replica, which has signed the request.
            scope: The request.
            receive: Its body, and whether it was given up.
            send: Where the answer goes.
        """
        body = await read_body(receive)
        if body is None:
            return
        owned = self._owned.get(scope["path"].removeprefix(SERVERS_PATH))
        if owned is None or not owned.is_usable:
            await _NOT_OWNER(scope, receive, send)
            return
        if scope["method"] == "GET":
            status = 409 if owned.dispatcher.begins_session else 204
            await RequestRefused(status=status)(scope, receive, send)
            return
        try:
            exchange = _Exchange(_decode_request(body), send)
        except msgspec.DecodeError:
            await RequestRefused.saying(400, "this is no request")(scope, receive, send)
            return
        mine = owned.exchanges.setdefault(sender, [])
        mine.append(exchange)
        owned.dispatcher.used_at = time.monotonic()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                tasks.start_soon(self._until_dead, sender, tasks.cancel_scope)
                tasks.start_soon(exchange.pass_on)
                await self._relay(owned, exchange, scope, receive)
                tasks.cancel_scope.cancel()
        finally:
            mine.remove(exchange)
            owned.dispatcher.used_at = time.monotonic()
            if self._joined is not None:
                self._joined.on_end()

    async def _until_dead(self, sender: str, scope: anyio.CancelScope) -> None:
        """Cancel a request when the replica that sent it is gone without a word, as after a power cut."""
        assert self._joined is not None, "a request was authenticated"
        while True:
            await anyio.sleep(_SENDER_SECONDS)
            with suppress(StoreError):  # it may live
                if await self._joined.directory.find(sender) is None:
                    scope.cancel()

    async def _relay(self, owned: _OwnedServer, exchange: _Exchange, scope: Scope, receive: Receive) -> None:
        request = exchange.request
        params: dict[str, Any] = dict(request.params)
        options: CallOptions = {}
        if exchange.token is not None:
            # The process is told a token of ours: those of other replicas may be the same.
            params["_meta"] = _decode_object(params["_meta"])
            options["on_progress"] = exchange.report
        if request.method == "subscriptions/listen":
            exchange.own_id = options["request_id"] = f"{id(exchange):x}-{request.id}"
        else:
            options["timeout"] = owned.max_seconds
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        try:
            answer["result"] = await owned.dispatcher.call_raw(request.method, params, options)
        except RequestRejected as exc:
            answer["error"] = exc.error.model_dump(exclude_none=True)
        except (RequestFailed, NotSent) as exc:
            if exc.delivery == "not_sent" and await exchange.refuse(scope, receive):
                return
            logger.info("a request of a replica was not answered", extra={"reason": str(exc)})
            await exchange.end(None)
            return
        except MCPError as exc:
            answer["error"] = exc.error.model_dump(exclude_none=True)
        await exchange.end(answer)


async def _read_record(key: str, joined: _Joined) -> _OwnerRecord | None:
    stored = await joined.store.get(_NAMESPACE, key)
    return None if stored is None else msgspec.json.decode(stored.value, type=_OwnerRecord)


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a request when the replica that sent it gives it up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def server_key(server: LoadedServer) -> str:
    """The name of a server among replicas: the same entry under the same id is the same server."""
    where = f"{server.server_id}\0{definition_digest(server)}"
    return sha256(where.encode(errors="surrogatepass")).hexdigest()[:32]
