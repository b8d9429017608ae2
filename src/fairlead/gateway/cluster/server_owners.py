"""Ownership of server processes that keep state: one replica runs each, the others send it their calls.

The owner holds a lease in the store, and its process a deadline at the guardian that is always earlier than
the end of the lease (`ProcessLease`), so that no two replicas run a server at a time. The rules, and what
goes wrong without each, are in `tests/gateway/cluster/ownership_model.py`.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

import anyio
import msgspec
from starlette.types import Receive, Scope, Send

from fairlead.config.load import LoadedServer
from fairlead.connection.process.child import EXPIRE_SECONDS, ProcessLease
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.factory import LeasedTransport
from fairlead.errors import ConnectFailed, LockBusy, StoreError
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.forwarding import Forwarder
from fairlead.gateway.cluster.owned_server import NOT_OWNER, OwnedServer, PeerExchange, decode_message
from fairlead.gateway.cluster.peer_transport import (
    CLOSE,
    MEMORY_LOST,
    SERVERS_PATH,
    START,
    PeerDispatcher,
    ask_about_server,
    have_server_closed,
    have_server_started,
)
from fairlead.gateway.cluster.replica_keys import PeerSignatures
from fairlead.gateway.cluster.replicas import PEER_PROTOCOL, Replica, ReplicaDirectory
from fairlead.host.snapshots import definition_digest
from fairlead.net.exchange import read_body
from fairlead.store.protocol import ANY, SERVER_LOCKS, Lease, Store

LEASE_SECONDS: Final = 5.0
"""How long a replica owns a server without a renewal."""
CLAIM_SECONDS: Final = 10.0
"""How long to wait for a server whose owner is gone: longer than its lease."""

_LOOK_AGAIN_SECONDS: Final = 0.25
_SENDER_SECONDS: Final = 5.0
"""How often an owner looks whether the replica that it works for still lives."""
_JOIN_SECONDS: Final = 20.0
_LEFT_SECONDS: Final = 86_400.0
"""How long the record of an owner that stopped, or was killed, is kept for its successor."""
_RENEW_RECORDS_SECONDS: Final = 3600.0
"""How often an owner writes its records again, so that they are kept for as long as it runs the servers."""
_NAMESPACE: Final = "server owners"

logger = logging.getLogger(__name__)


class _OwnerRecord(msgspec.Struct, frozen=True):
    """Owner of a server, as stored under its key for as long as it runs, or its owner is gone."""

    replica: str
    token: int
    is_successor: bool = False
    """Whether the one before ended with its replica, or with a lease: what it had in memory is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """Claim to a server: another replica's, or this one's for as long as a lease holds."""

    record: _OwnerRecord
    lease: ProcessLease | None = None
    replica: Replica | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinedReplicas:
    """Facts that are known once this process is one of several replicas."""

    store: Store
    """The store, with the leases."""
    directory: ReplicaDirectory
    forwarder: Forwarder
    """The connections to other replicas."""
    signatures: PeerSignatures
    """Signs what is sent to them."""
    on_end: Callable[[], None]
    """Called when a request of another replica ended."""
    start: Callable[[str, str], bool]
    """Starts a server here, by id and key, for a replica that is about to stop. False: there is none."""
    close: Callable[[str, str], Awaitable[bool]]
    """Closes a server here, by id and key, for a replica whose user restarts it. False: there is none."""
    on_lease_end: Callable[[], None]
    """Called when this replica has left a server."""

    def successor(self) -> Replica | None:
        """The replica that is to run servers instead of this one, if this one is about to stop."""
        if not self.directory.is_draining:
            return None
        serving = [
            replica
            for replica in self.directory.living()
            if not replica.is_draining and replica.protocol == PEER_PROTOCOL
        ]
        return min(serving, key=lambda replica: (replica.calls, replica.id), default=None)


class ServerOwners:
    """The server processes that replicas share: those that this one owns, and the way to all others.

    It is made before the host that uses it; nothing starts before `join`, or `stay_alone`.
    """

    def __init__(self, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_losses = 0
        """How often this replica lost a server because its lease ended."""
        self._lease_seconds = lease_seconds
        self._joined: JoinedReplicas | None = None
        self._is_settled = anyio.Event()
        self._owned: dict[str, OwnedServer] = {}
        self._leases = 0
        self._hands_over = False
        self._elsewhere: dict[str, Replica] = {}
        """The owners of the servers that are connected to and run at other replicas, by server."""
        self._records: dict[str, tuple[_OwnerRecord, Lease]] = {}
        """What is stored about the servers that this replica owns, by their keys."""
        self._lost: set[str] = set()
        """The servers that ended here with their lease, and have not been started here since."""

    def join(self, joined: JoinedReplicas) -> None:
        """Share servers with the other replicas of a store."""
        self._joined = joined
        self._is_settled.set()

    def stay_alone(self) -> None:
        """Start every server here: there are no other replicas."""
        self._is_settled.set()

    async def run(self) -> None:
        """Keep the records of what this replica owns from expiring, until cancelled."""
        while True:
            await anyio.sleep(_RENEW_RECORDS_SECONDS)
            if self._joined is not None:
                await self._renew_records(self._joined)

    async def _renew_records(self, joined: JoinedReplicas) -> None:
        for key, (record, held) in [*self._records.items()]:
            try:
                await self._store_record(key, record, held, joined)
            except StoreError as exc:  # the record outlives many attempts
                logger.warning("the record of a server's owner was not renewed", extra={"reason": str(exc)})

    async def _store_record(
        self, key: str, record: _OwnerRecord, held: Lease, joined: JoinedReplicas
    ) -> None:
        # With an end: where no replica ever runs the server again, as when its entry was changed, no one
        # would take the record of a killed owner away.
        value = msgspec.json.encode(record)
        await joined.store.put(
            _NAMESPACE, key, value, expect=ANY, fence=held, durable=False, expires_in=_LEFT_SECONDS
        )

    @property
    def calls(self) -> int:
        """Number of requests of other replicas under way here, without streams."""
        return sum(owned.calls for owned in self._owned.values())

    def calls_at(self, server_id: str) -> int:
        """Number of requests of other replicas to one server."""
        return sum(owned.calls for owned in self._owned.values() if owned.server_id == server_id)

    def hand_over(self) -> None:
        """Leave the servers to another replica, if there is one: each ends when its calls are answered."""
        if self._joined is not None and self._joined.successor() is not None:
            self._hands_over = True
            for owned in [*self._owned.values()]:
                owned.hand_over()

    @property
    def is_handing_over(self) -> bool:
        """Whether a server, or its lease, is still to be left to another replica."""
        return self._hands_over and self._leases > 0

    @property
    def owned(self) -> int:
        """Number of server processes that this replica owns."""
        return len(self._owned)

    @property
    def owned_servers(self) -> list[str]:
        """The ids of the servers whose process this replica owns and shares, in order."""
        return sorted(owned.server_id for owned in self._owned.values())

    def owner_elsewhere(self, server_id: str) -> Replica | None:
        """The other replica that a server's calls are sent to now, unless it is about to stop."""
        owner = self._elsewhere.get(server_id)
        if owner is None or self._joined is None:
            return None
        known = self._joined.directory.known(owner.id)
        return None if known is None or known.is_draining else known

    async def close_elsewhere(self, server: LoadedServer) -> None:
        """Have the other replicas close a server, so that the next use starts its process anew."""
        joined = self._joined
        if joined is None:
            return
        parts = server.server_id, server_key(server), joined.forwarder, joined.signatures
        async with anyio.create_task_group() as tasks:
            for replica in joined.directory.living():
                if replica.id != joined.directory.id and replica.protocol == PEER_PROTOCOL:
                    tasks.start_soon(have_server_closed, replica, *parts)

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
            claim = await self._claim(server.server_id, key, joined, stack)
            yield await stack.enter_async_context(self._connect(server, key, claim, joined, start))

    @asynccontextmanager
    async def _connect(
        self, server: LoadedServer, key: str, claim: _Claim, joined: JoinedReplicas, start: LeasedTransport
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
                self._elsewhere[server.server_id] = claim.replica
                stack.callback(self._elsewhere.pop, server.server_id, None)
            else:
                dispatcher = await stack.enter_async_context(start(claim.lease))
                assert claim.lease is not None
                owned = OwnedServer(
                    server_id=server.server_id,
                    dispatcher=dispatcher,
                    lease=claim.lease,
                    max_seconds=server.config.max_request_ms / 1000,
                )
                if claim.record.is_successor:
                    dispatcher.notice = MEMORY_LOST
                stack.enter_context(self._offer(key, owned))
            yield dispatcher

    async def _claim(self, server_id: str, key: str, joined: JoinedReplicas, stack: AsyncExitStack) -> _Claim:
        """Take the lease of a server until the stack is left, or find the replica that has it."""
        deadline = anyio.current_time() + CLAIM_SECONDS
        asked: set[str] = set()
        while True:
            successor = joined.successor()
            claim = await self._take_lease(key, joined, stack) if successor is None else None
            claim = claim or await self._find_owner(key, joined)
            if claim is not None:
                return claim
            if successor is not None and successor.id not in asked:
                # No new leases for one that is about to stop: the call is for the next owner.
                asked.add(successor.id)
                await have_server_started(successor, server_id, key, joined.forwarder, joined.signatures)
            if anyio.current_time() > deadline:
                hint = "try again in a moment; `fairlead doctor` checks the store"
                raise ConnectFailed(server_id, await _why_not(key, joined), hint=hint)
            await anyio.sleep(_LOOK_AGAIN_SECONDS)

    async def _take_lease(self, key: str, joined: JoinedReplicas, stack: AsyncExitStack) -> _Claim | None:
        lease = ProcessLease(0.0)
        async with AsyncExitStack() as holding:
            holding.callback(self._note_lease_end, joined)
            self._leases += 1
            try:
                held = await holding.enter_async_context(
                    joined.store.lock(
                        f"{SERVER_LOCKS}{key}",
                        lease_seconds=self._lease_seconds,
                        wait_seconds=0,
                        on_held=partial(self._extend, lease),
                    )
                )
            except LockBusy:
                return None
            record = await self._sign_in(key, held, joined, holding)
            stack.push_async_exit(holding.pop_all())
        return _Claim(record=record, lease=lease)

    def _note_lease_end(self, joined: JoinedReplicas) -> None:
        self._leases -= 1
        joined.on_lease_end()

    async def _sign_in(
        self, key: str, held: Lease, joined: JoinedReplicas, stack: AsyncExitStack
    ) -> _OwnerRecord:
        """Store who owns a server now, until it is left."""
        before = await _read_record(key, joined)
        own = joined.directory.id
        is_successor = (before is not None and before.replica != own) or key in self._lost
        record = _OwnerRecord(own, held.token, is_successor)
        await self._store_record(key, record, held, joined)
        self._records[key] = record, held
        self._lost.discard(key)
        stack.push_async_callback(self._sign_out, key, record, held, joined)
        return record

    async def _sign_out(self, key: str, record: _OwnerRecord, held: Lease, joined: JoinedReplicas) -> None:
        # A replica that is about to stop, or lost its lease, leaves its record, so that its successor tells
        # what is lost with it.
        # A process that was idle, or ended by itself, is started anew without a word, as everywhere.
        if self._records.get(key) == (record, held):
            del self._records[key]
        with suppress(StoreError), anyio.CancelScope(shield=True):
            if joined.directory.is_draining or key in self._lost:
                await self._store_record(key, record, held, joined)
            else:
                await joined.store.delete(_NAMESPACE, key, expect=ANY, fence=held)

    def _extend(self, lease: ProcessLease, asked_at: float) -> None:
        # The process must be gone before the lease ends in the store, wherever its clock is.
        deadline = asked_at + self._lease_seconds - EXPIRE_SECONDS
        if lease.deadline == 0.0:
            lease.deadline = deadline
        else:
            lease.extend(deadline)

    async def _find_owner(self, key: str, joined: JoinedReplicas) -> _Claim | None:
        """The replica that a server is at, if it answers."""
        record = await _read_record(key, joined)
        if record is None or record.replica == joined.directory.id:
            # Its owner has only just taken the lease, or it is a connection of our own that is about to end.
            return None
        owner = await joined.directory.find(record.replica)
        if owner is None or owner.protocol != PEER_PROTOCOL:
            return None
        is_there = await ask_about_server(owner, key, joined.forwarder, joined.signatures)
        return _Claim(record=record, replica=owner) if is_there else None

    @contextmanager
    def _offer(self, key: str, owned: OwnedServer) -> Generator[None]:
        """Let other replicas use a process for the length of the block."""
        self._owned[key] = owned
        owned.dispatcher.listeners.append(owned.listen)
        try:
            yield
        finally:
            if self._owned.get(key) is owned:
                del self._owned[key]
            if owned.lease.has_ended:
                self.lease_losses += 1
                self._lost.add(key)

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
        key, slash, command = scope["path"].removeprefix(SERVERS_PATH).partition("/")
        if slash:
            answer = await self._command(slash + command, key, body.decode("utf-8"))
            await answer(scope, receive, send)
            return
        owned = self._owned.get(key)
        if owned is None or not owned.is_usable:
            await NOT_OWNER(scope, receive, send)
            return
        if scope["method"] == "GET":
            await RequestRefused(status=204)(scope, receive, send)
            return
        try:
            exchange = PeerExchange(decode_message(body), send)
        except msgspec.DecodeError:
            await RequestRefused.saying(400, "this is no request")(scope, receive, send)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                tasks.start_soon(self._until_dead, sender, tasks.cancel_scope)
                tasks.start_soon(exchange.pass_on)
                await owned.relay(sender, exchange, scope, receive)
                tasks.cancel_scope.cancel()
        finally:
            if self._joined is not None:
                self._joined.on_end()

    async def _command(self, command: str, key: str, server_id: str) -> RequestRefused:
        """Start a server that a replica which is about to stop needs, or close one that a user restarts."""
        joined, is_done = self._joined, False
        if joined is not None and command == START.decode():
            is_done = not joined.directory.is_draining and joined.start(server_id, key)
        elif joined is not None and command == CLOSE.decode():
            is_done = await joined.close(server_id, key)
        return RequestRefused(status=204) if is_done else NOT_OWNER

    async def _until_dead(self, sender: str, scope: anyio.CancelScope) -> None:
        """Cancel a request when the replica that sent it is gone without a word, as after a power cut."""
        assert self._joined is not None, "a request was authenticated"
        directory = self._joined.directory
        while True:
            await anyio.sleep(_SENDER_SECONDS)
            with suppress(StoreError):  # it may live
                if await directory.find(sender) is None and not directory.has_left(sender):
                    scope.cancel()


async def _read_record(key: str, joined: JoinedReplicas) -> _OwnerRecord | None:
    stored = await joined.store.get(_NAMESPACE, key)
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.value, type=_OwnerRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Of another version: the lease decides who owns it, and this only where it is.
        logger.warning("the record of a server's owner is not understood", extra={"server": key})
        return None


async def _why_not(key: str, joined: JoinedReplicas) -> str:
    """Why no replica answers for a server."""
    record = await _read_record(key, joined)
    owner = await joined.directory.find(record.replica) if record is not None else None
    if owner is not None and owner.protocol != PEER_PROTOCOL:
        return f"a replica of another version of Fairlead ({owner.version}) runs it until it is stopped"
    return "another replica of this gateway runs it and does not answer"


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a request when the replica that sent it gives it up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def server_key(server: LoadedServer) -> str:
    """The name of a server among replicas: the same entry under the same id is the same server.

    That of a project runs in the project's folder: in another one it is another server.
    """
    source = server.definition.source
    place = source.base if source.name == "project" else ""
    where = f"{server.server_id}\0{place}\0{definition_digest(server)}"
    return sha256(where.encode(errors="surrogatepass")).hexdigest()[:32]
