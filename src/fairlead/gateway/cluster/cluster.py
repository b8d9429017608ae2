"""This gateway process as one of several: which requests are for it, and which another replica answers."""

import logging
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
import msgspec
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.config.store_location import RedisLocation, StoreLocation
from fairlead.errors import ReplicaFailed, StoreError
from fairlead.gateway.access.auth import FORWARDED, AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER, Forwarder, failure_answer, target_of
from fairlead.gateway.cluster.page_owners import keep_address, page_owner, page_prefix, restore_address
from fairlead.gateway.cluster.peer_client import GREETING_PATH, PeerUnreachable
from fairlead.gateway.cluster.peer_transport import SERVERS_PATH
from fairlead.gateway.cluster.replica_keys import (
    REPLICA_HEADER,
    SIGNATURE_SECONDS,
    PeerSignatures,
    ReplicaKeys,
)
from fairlead.gateway.cluster.replicas import (
    LOOK_SECONDS,
    PEER_PROTOCOL,
    Replica,
    ReplicaDirectory,
    ReplicaLoad,
)
from fairlead.gateway.cluster.server_owners import JoinedReplicas, ServerOwners
from fairlead.gateway.cluster.session_ids import UNKNOWN_SESSION, SessionIds
from fairlead.net.exchange import read_body, replay_body
from fairlead.net.listen import mark_authenticated
from fairlead.store.cluster_key import ClusterKeys
from fairlead.store.protocol import Store

_SESSION_HEADER: Final = b"mcp-session-id"
_VERSION_HEADER: Final = b"mcp-protocol-version"
_HANDSHAKE: Final = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)
_PLACES: Final = 3
"""At how many other replicas a new session is tried, where this one takes none."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaPlace:
    """Place of a gateway process among its replicas."""

    address: str
    """Where peers reach it: `http://host:port`, or `unix:/path`."""
    keys: ReplicaKeys | None = None
    """What the replicas share; None to derive it from the cluster key of a shared store."""
    namespace: str = "replicas"
    """Where in the store they find each other."""


def _refusal(status: int, text: str, *, is_final: bool = False) -> RequestRefused:
    """A JSON-RPC error with an HTTP status. Unless it is final, another replica may be tried."""
    error = {"code": -32000, "message": text}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = {"Content-Type": "application/json", "Retry-After": "2"}
    if not is_final:
        headers[REFUSAL_HEADER.decode()] = "not-sent"
    return RequestRefused(status=status, headers=headers, body=body)


_DRAINING: Final = _refusal(503, "this gateway is about to stop, and takes no new sessions")
_NO_PLACE: Final = _refusal(
    503, "this gateway is about to stop, and there is no other one for this client", is_final=True
)
_STORE_AWAY: Final = _refusal(
    503, "the gateway's store does not answer: no new sessions until it is back", is_final=True
)
_OWNER_UNKNOWN: Final = _refusal(
    503,
    "the gateway's store does not answer, so that the replica of this session is not known",
    is_final=True,
)
_NOT_HERE: Final = RequestRefused.saying(404, "only processes of this gateway are served here")
_FORGED: Final = RequestRefused.saying(
    403,
    "the header Fairlead-Replica is for replicas of this gateway, whose clocks differ by less than"
    f" {SIGNATURE_SECONDS:g} seconds",
    {REFUSAL_HEADER.decode(): "not-sent"},  # also where a connection, or a clock, is not what it was
)
_REPEATED: Final = RequestRefused.saying(403, "this request of a replica came before")
"""Without the header that says `not-sent`: it was carried out, for all that is known here."""


async def read_replica_keys(location: StoreLocation) -> ReplicaKeys:
    """Derive what replicas share from the cluster key of their store. Raises `StoreError`."""
    assert isinstance(location, RedisLocation), "a store of one machine has no cluster key"
    # Its reference may name a file, or a command.
    texts = await anyio.to_thread.run_sync(location.cluster_keys)
    return ReplicaKeys.of_cluster(ClusterKeys(texts))


class Cluster:
    """The replicas of a gateway, seen from this one.

    Args:
        store: The store that they share.
        place: Where this one is.
        keys: What they share.
        load: Returns what this one has to do now.
        on_end: Called when a request that was forwarded ended.
        owners: The server processes that the replicas share.
    """

    def __init__(
        self,
        store: Store,
        place: ReplicaPlace,
        keys: ReplicaKeys,
        *,
        load: Callable[[], ReplicaLoad],
        on_end: Callable[[], None],
        owners: ServerOwners,
    ) -> None:
        self.directory = ReplicaDirectory(store, address=place.address, load=load, namespace=place.namespace)
        self.session_ids = SessionIds(keys.session_ids, self.directory.id)
        self.name_keys = keys.names
        self._signatures = PeerSignatures(keys.peers, self.directory.id)
        self.forwarder = Forwarder(self.directory, self._signatures, on_end)
        self.owners = owners
        self._on_end = on_end
        self._misplaced: set[str] = set()
        """Replicas that announce themselves and were not found where they say they are."""

    @property
    def is_ready(self) -> bool:
        """Whether new sessions may come to this replica."""
        return self.directory.is_announced and not self.directory.is_draining

    def share_servers(
        self,
        store: Store,
        start: Callable[[str, str], bool],
        close: Callable[[str, str], Awaitable[bool]],
        on_lease_end: Callable[[], None],
    ) -> None:
        """Share server processes with the others, from now on.

        Args:
            store: The store, with the leases.
            start: Starts one here, by id and key.
            close: Closes one here, by id and key.
            on_lease_end: Called when this replica has left one.
        """
        self.owners.join(
            JoinedReplicas(
                store=store,
                directory=self.directory,
                forwarder=self.forwarder,
                signatures=self._signatures,
                on_end=self._on_end,
                start=start,
                close=close,
                on_lease_end=on_lease_end,
            )
        )

    async def leave(self) -> None:
        """Leave the directory, and wait until others know: what they forward after that is not sent here."""
        await self.directory.leave()
        if any(replica.id != self.directory.id for replica in self.directory.living()):
            await anyio.sleep(LOOK_SECONDS)

    def receive(self, scope: Scope) -> ASGIApp | None:
        """Authenticate a request that says it is a replica's. Returns the answer where it goes no further."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if REPLICA_HEADER not in dict(headers):
            return None
        signed = [value for name, value in headers if name == REPLICA_HEADER]
        others = [pair for pair in headers if pair[0] != REPLICA_HEADER]
        method: str = scope["method"]
        found = (
            self._signatures.check(signed[0], method.encode(), target_of(scope), others)
            if len(signed) == 1
            else None
        )
        if found is None:
            return _FORGED
        if found.is_repeated:
            return _REPEATED
        # At once: a connection that many requests share must not be closed to make room for strangers.
        mark_authenticated(scope, is_of_peer=True)
        if target_of(scope) == GREETING_PATH:
            return RequestRefused(status=204, headers={REPLICA_HEADER.decode(): found.answer.decode()})
        if scope["path"].startswith(SERVERS_PATH):
            return partial(self.owners.serve, found.sender)
        scope["headers"] = others
        restore_address(scope)
        scope["client"] = found.client
        scope[FORWARDED] = found
        return None

    async def answer_elsewhere(  # noqa: PLR0913 - what a request is, and where it is here
        self,
        kind: str,
        bundle: str | None,
        here: Container[str],
        admitted: AuthenticatedRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Have another replica answer, if a request is for one. Returns whether it was answered.

        Args:
            kind: What stands first in its path.
            bundle: The bundle that it is for.
            here: The sessions that this replica has for that bundle: found first, without opening any id.
            admitted: Who made the request.
            scope: The request.
            receive: The rest of it.
            send: Where its answer goes.
        """
        if scope["method"] == "HEAD":  # its answer is one without what its head says, and begins no session
            return False
        session_id = _session_id(kind, scope)
        if session_id is None:
            return _opens_session(kind, scope) and await self._place_session(admitted, scope, receive, send)
        if session_id in here:
            return False
        sealed = self.session_ids.open(session_id, admitted.principal, bundle)
        if sealed is None:
            return False
        if sealed.owner == self.directory.id:
            if kind == "messages":
                scope["query_string"] = b"session_id=" + sealed.random.hex().encode()
            return False
        # One hop at most: who forwarded it took this replica for the owner.
        if FORWARDED in scope:
            await UNKNOWN_SESSION(scope, receive, send)
            return True
        body = await read_body(receive)
        if body is not None and not await self._forward_to_owner(sealed.owner, scope, body, receive, send):
            await UNKNOWN_SESSION(scope, receive, send)
        return True

    @property
    def page_prefix(self) -> str:
        """What the addresses of this replica's login links and dashboard sessions begin with."""
        return page_prefix(self.directory.id)

    async def answer_page(self, pages: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a browser's request, at the replica whose login link or dashboard session it is for.

        Where that is this one, is gone or cannot be reached, it is answered here: what is shared is found
        here, too, and the rest is unknown.

        Args:
            pages: Answers here.
            scope: The request.
            receive: Its body.
            send: Where the answer goes.
        """
        owner_id = page_owner(scope)
        owner = self.directory.known(owner_id) if owner_id not in (None, self.directory.id) else None
        if (
            owner is None
            or FORWARDED in scope
            or owner.protocol != PEER_PROTOCOL
            or self.forwarder.is_silent(owner.id)
        ):
            await pages(scope, receive, send)
        elif (body := await read_body(receive)) is not None:
            try:
                await self.forwarder.forward(owner, keep_address(scope), body, receive, send)
            except PeerUnreachable as exc:
                logger.info("a replica is unreachable", extra={"replica": owner.id, "reason": str(exc)})
                await pages(scope, replay_body(body, receive), send)

    async def resume_elsewhere(  # noqa: PLR0913 - what a request is, and where it goes on
        self,
        state: bytes,
        bundle: str | None,
        admitted: AuthenticatedRequest,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Have another replica go on with a stateless request that waits there for its client's answers.

        Args:
            state: Its `requestState`, as JSON.
            bundle: The bundle that it is for.
            admitted: Who made the request.
            scope: The request.
            body: Its body.
            receive: Tells when the client disconnects.
            send: Where its answer goes.

        Returns:
            Whether it was answered: not where it waits here, or at a replica that is gone.
        """
        try:
            nonce = msgspec.json.decode(state, type=str).partition(".")[0]
        except ValueError:
            return False
        sealed = self.session_ids.open(nonce, admitted.principal, bundle)
        if sealed is None or sealed.owner == self.directory.id or FORWARDED in scope:
            return False
        return await self._forward_to_owner(sealed.owner, scope, body, receive, send)

    async def answer_at_home(  # noqa: PLR0913 - what a request is, and whose
        self,
        client: str,
        bundle: str | None,
        admitted: AuthenticatedRequest,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Have the replica answer that a stateless client belongs to, if it is another one that is reached.

        All choose the same one without a directory of clients: of those that live, by the highest digest. One
        that comes or goes moves only the clients that are, or will be, its own.

        Args:
            client: What tells the client from others with its token.
            bundle: The bundle that it uses.
            admitted: Who made the request.
            scope: The request.
            body: Its body, which was read.
            receive: Tells when the client disconnects.
            send: Where its answer goes.
        """
        # A token of this machine opens no other one, and is not to leave it.
        if FORWARDED in scope or admitted.is_of_machine:
            return False
        name = self.home_name(client, bundle, admitted)
        # While the store is away, leases cannot be renewed: then those that were known last count.
        takes_all = not self.directory.is_announced
        homes = [
            seen.replica
            for seen in self.directory.seen()
            if (seen.is_living or takes_all)
            and not seen.replica.is_draining
            and seen.replica.protocol == PEER_PROTOCOL
        ]
        for replica in sorted(homes, key=lambda each: sha256(each.id.encode() + name).digest(), reverse=True):
            if replica.id == self.directory.id:
                return False
            if self.forwarder.is_silent(replica.id):  # each of its clients' requests would wait for it
                continue
            try:
                await self.forwarder.forward(replica, scope, body, receive, send)
            except PeerUnreachable as exc:
                logger.info("a replica is unreachable", extra={"replica": replica.id, "reason": str(exc)})
            else:
                return True
        return False

    @staticmethod
    def home_name(client: str, bundle: str | None, admitted: AuthenticatedRequest) -> bytes:
        """Return the name by which a stateless client's home is chosen: no two credentials have one.

        Args:
            client: What tells the client from others with its token.
            bundle: The bundle that it uses.
            admitted: Who makes its requests.
        """
        groups = sorted(admitted.groups)
        return msgspec.json.encode((admitted.principal, admitted.credential, groups, bundle, client))

    async def _forward_to_owner(
        self, owner_id: str, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> bool:
        """Have the owner answer, or say why it does not. Returns False where it is gone."""
        try:
            owner = await self.forwarder.find(owner_id)
            if owner is None or owner.protocol != PEER_PROTOCOL:
                return False
            await self.forwarder.forward(owner, scope, body, receive, send)
        except StoreError:
            await _OWNER_UNKNOWN(scope, receive, send)
        except PeerUnreachable as exc:
            if exc.is_gone:
                if owner_id not in self._misplaced:  # one that was killed, or has another's address
                    self._misplaced.add(owner_id)
                    logger.warning(
                        "a replica is not at its address", extra={"replica": owner_id, "reason": str(exc)}
                    )
                return False
            logger.warning("a replica is unreachable", extra={"replica": owner_id, "reason": str(exc)})
            failed = ReplicaFailed(
                f"the gateway's replica {owner_id} that has this session is unreachable: {exc}",
                delivery="not_sent",
                hint="try again in a moment, or begin a new session",
            )
            await failure_answer(failed, body)(scope, receive, send)
        return True

    async def _place_session(
        self, admitted: AuthenticatedRequest, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Have another replica begin a session, where this one takes none."""
        if self.is_ready:
            return False
        if FORWARDED in scope:
            await _DRAINING(scope, receive, send)
            return True
        if not self.directory.is_draining:
            # A session that no other replica could find would be lost with the next request.
            await _STORE_AWAY(scope, receive, send)
            return True
        if admitted.is_of_machine:  # no other replica knows its token
            await _NO_PLACE(scope, receive, send)
            return True
        body = await read_body(receive)
        if body is None:
            return True
        for replica in self._others()[:_PLACES]:
            try:
                await self.forwarder.forward(replica, scope, body, receive, send)
            except PeerUnreachable:
                continue
            return True
        await _NO_PLACE(scope, receive, send)
        return True

    def _others(self) -> list[Replica]:
        """The replicas that take new sessions, those with the fewest first."""
        own = self.directory.id
        found = [
            replica
            for replica in self.directory.living()
            if replica.id != own and not replica.is_draining and replica.protocol == PEER_PROTOCOL
        ]
        return sorted(found, key=lambda replica: (replica.sessions, replica.id))


class PeerApp:
    """ASGI application for a socket that only replicas use: it answers them, and refuses all else.

    Args:
        cluster: The replicas, seen from this one; None where there are none.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._lifespan = Starlette()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of another replica."""
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        answer = self._cluster.receive(scope) if self._cluster is not None else None
        # No signature, or a client's request on its way: neither has a place here.
        await (answer or _NOT_HERE)(scope, receive, send)


def refusal_of_client(kind: str, scope: Scope, refused: RequestRefused) -> RequestRefused:
    """The refusal of a client's token or bundle. To the replica that accepted it, nothing was carried out.

    That one has heard of the token, or of a new bundle, before this one did, and can answer by itself; not
    what names a session, which is here alone.
    """
    if FORWARDED not in scope or _session_id(kind, scope) is not None:
        return refused
    return replace(refused, headers={**refused.headers, REFUSAL_HEADER.decode(): "not-sent"})


def _session_id(kind: str, scope: Scope) -> str | None:
    """The session that a request names, in its header or, over HTTP+SSE, in its query."""
    if kind == "messages":
        return parse_qs(scope["query_string"].decode("latin-1")).get("session_id", [None])[-1]
    if kind == "mcp":
        for name, value in scope["headers"]:
            if name == _SESSION_HEADER:
                return value.decode("latin-1")
    return None


def _opens_session(kind: str, scope: Scope) -> bool:
    """Whether a request that names no session begins one."""
    if kind == "sse":
        return scope["method"] == "GET"
    if kind != "mcp" or scope["method"] != "POST":
        return False
    version = next((value for name, value in scope["headers"] if name == _VERSION_HEADER), b"")
    return not version or version in _HANDSHAKE
