"""The gateway: its ASGI application, its endpoints, and the hosts of its principals."""

import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.config.load import LoadedConfig
from fairlead.config.models import AGENT_ID
from fairlead.config.principal import LOCAL
from fairlead.config.store_location import store_location
from fairlead.connection.peer import detach_from_caller
from fairlead.connection.tracing import Tracer
from fairlead.errors import UnknownBundle
from fairlead.events import Event, ServerLogged
from fairlead.gateway.access.auth import OpenStreams, RequestAuthenticator, TokenRevocations, token_in
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.agent import AgentTools, require_free_id
from fairlead.gateway.client_session import ClientSession, SessionInfo
from fairlead.gateway.cluster.cluster import (
    Cluster,
    ReplicaPlace,
    read_replica_keys,
    refusal_of_client,
)
from fairlead.gateway.cluster.replica_keys import ReplicaKeys
from fairlead.gateway.cluster.replicas import ReplicaLoad
from fairlead.gateway.cluster.server_owners import ServerOwners, server_key
from fairlead.gateway.endpoint import GatewayEndpoint
from fairlead.gateway.fast_path import FastPath
from fairlead.gateway.load_meter import LoadMeter
from fairlead.gateway.login_links import LoginLinks
from fairlead.gateway.operator import ClientOperator
from fairlead.gateway.options import GatewayOptions
from fairlead.gateway.peer_states import PeerStates
from fairlead.gateway.pending_approvals import PendingApprovals
from fairlead.gateway.quotas import Quotas
from fairlead.gateway.sdk_server import ADMITTED
from fairlead.gateway.services import TokenKey
from fairlead.gateway.worker_ids import NO_OWNER
from fairlead.gateway.workers.member import PoolMember
from fairlead.host.client_host import open_principal_host
from fairlead.host.events import Subscriber
from fairlead.host.host import Host
from fairlead.host.logins import is_personal
from fairlead.host.parts import GatewayBacking
from fairlead.host.server_status import ServerStatus, combine
from fairlead.jsonrpc.stdio import open_stdio
from fairlead.net.exchange import close_connection_after
from fairlead.store.protocol import Store
from fairlead.store.sealed import choose_shared_store

if TYPE_CHECKING:
    from fairlead.servers.framework.server import McpServer


_MCP_PATHS = frozenset({"mcp", "sse", "messages"})


class GatewayApp:
    """Serves MCP at `/mcp` and `/mcp/<bundle>`, and to old clients at `/sse`; all else is for the routes."""

    def __init__(self, gateway: "Gateway", access: RequestAuthenticator, routes: Sequence[BaseRoute]) -> None:
        self._gateway = gateway
        self._access = access
        self._fast_path = FastPath(gateway.host.tracer, gateway.member)
        self._others = Starlette(routes=[*routes])
        if isinstance(access, TokenRevocations):
            gateway.tasks.start_soon(gateway.end_revoked, access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        cluster = self._gateway.cluster
        if (answer := self._find_other_answer(cluster, scope)) is not None:
            await answer(scope, receive, send)
            return
        send = close_connection_after(send) if self._gateway.is_draining else send
        kind, _, bundle = scope["path"].strip("/").partition("/")
        if kind not in _MCP_PATHS or "/" in bundle:
            answer = partial(cluster.answer_page, self._others) if cluster is not None else self._others
            await answer(scope, receive, send)
            return
        admitted = await self._access.admit(scope)
        if isinstance(admitted, RequestRefused):
            await refusal_of_client(kind, scope, admitted)(scope, receive, send)
            return
        scope[ADMITTED] = admitted
        endpoint = self._gateway.find_open_endpoint(bundle or None) or await self._find_endpoint(
            bundle or None
        )
        if endpoint is None:
            refused = RequestRefused.saying(404, f"there is no bundle `{bundle}`")
            await refusal_of_client(kind, scope, refused)(scope, receive, send)
        # Workers find each other's sessions without a directory; they have one for the servers they share.
        elif (
            cluster is not None
            and self._gateway.member is None
            and await cluster.answer_elsewhere(
                kind, endpoint.bundle, endpoint.sessions, admitted, scope, receive, send
            )
        ):
            pass
        elif scope["method"] == "GET":
            with self._gateway.streams.bind_to_token(token_in(scope)):
                await self._handle_get(kind, endpoint, scope, receive, send)
        elif kind == "mcp":
            await self._fast_path.handle(endpoint, scope, receive, send)
        elif kind == "messages":
            await self._fast_path.handle_message(endpoint, scope, receive, send)
        else:
            await RequestRefused.saying(405, "only GET begins a stream", {"Allow": "GET"})(
                scope, receive, send
            )

    async def _handle_get(
        self, kind: str, endpoint: GatewayEndpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if kind == "mcp":
            await endpoint.handle(scope, receive, send)
        elif kind == "sse":
            await endpoint.handle_sse(scope, receive, send)
        else:
            await self._fast_path.handle_message(endpoint, scope, receive, send)

    def _find_other_answer(self, cluster: Cluster | None, scope: Scope) -> ASGIApp | None:
        """The answer to a request that is no client's: one of another replica, or none over HTTP."""
        if scope["type"] != "http":
            return self._others
        return cluster.receive(scope) if cluster is not None else None

    async def _find_endpoint(self, bundle: str | None) -> "GatewayEndpoint | None":
        try:
            return await self._gateway.endpoint(bundle)
        except UnknownBundle:
            return None


_REAP_SECONDS = 30.0
_REVOKE_SECONDS = 0.5
"""How soon what a removed token has open is ended. Its requests are refused at once."""


class Gateway:
    """A host and its clients over MCP. Open it with `async with open_gateway(…) as gateway:`."""

    def __init__(
        self,
        host: Host,
        loaded: LoadedConfig,
        options: GatewayOptions,
        approvals: PendingApprovals,
        tasks: TaskGroup,
        member: PoolMember | None = None,
    ) -> None:
        loaded.require_section("gateway")  # who may answer approvals, say, is not for a default to decide
        self.host = host
        self.loaded = loaded
        self.options = options
        self.approvals = approvals
        """The calls that wait for the user's decision."""
        self.tasks = tasks
        self.member = member
        """This process among the workers of the gateway; None where it is the only one."""
        self.shared = choose_shared_store(host.store, member.key if member is not None else None)
        """The store for what is only in memory where the gateway has one process; None for such a gateway."""
        self._peers = PeerStates(self, member) if member is not None else None
        self.streams = OpenStreams()
        """The requests that may outlast the token they came with."""
        self.login_links = LoginLinks(self.id_prefix)
        """The pages where principals log in to servers, for clients without URL elicitation."""
        self.agent: AgentTools | None = None
        """The agent, if clients get one."""
        self.cluster: Cluster | None = None
        """The other processes that act as one gateway with this one, if there may be any."""
        self.since = time.time()
        self.is_draining = False
        """Whether it is about to stop: what is under way finishes, and clients are sent elsewhere."""
        self.meter = LoadMeter(f"worker {member.number}" if member is not None else None)
        """What this process costs its machine."""
        self._request_ended: anyio.Event | None = None
        """Set when a request ends, while `finish` waits for that."""
        self._endpoints: dict[str | None, GatewayEndpoint] = {}
        self._opening = anyio.Lock()
        self._quotas = Quotas(
            options,
            lambda: [client for endpoint in self._endpoints.values() for client in endpoint.live_clients()],
        )
        self._principals: dict[str, _Principal] = {}
        self._opening_hosts = anyio.Lock()

    def app(self, access: RequestAuthenticator, routes: Sequence[BaseRoute] = ()) -> GatewayApp:
        """The gateway as an ASGI application. `routes` are what it serves besides; they see to access."""
        return GatewayApp(self, access, routes)

    async def endpoint(self, bundle: str | None = None) -> GatewayEndpoint:
        """The endpoint of a bundle, or of everything. Raises `UnknownBundle`."""
        found = self._endpoints.get(bundle)
        if found is not None:
            return found
        async with self._opening:
            if bundle not in self._endpoints:
                endpoint = GatewayEndpoint(self, bundle, self.options.mode)
                await self.tasks.start(endpoint.run)
                self._endpoints[bundle] = endpoint
        return self._endpoints[bundle]

    def find_open_endpoint(self, bundle: str | None) -> GatewayEndpoint | None:
        """Return the endpoint of a bundle, if it is open already."""
        return self._endpoints.get(bundle)

    async def serve_stdio(self, bundle: str | None = None, *, principal: str = LOCAL) -> None:
        """Serve one client over stdin and stdout, until it disconnects."""
        endpoint = await self.endpoint(bundle)
        async with open_stdio(self.options.grace_seconds) as (received, sent):
            await endpoint.serve_streams(received, sent, principal)

    @property
    def id_prefix(self) -> str:
        """Prefix of the ids that this process gives out."""
        return self.member.id_prefix if self.member is not None else NO_OWNER

    @property
    def startup_wait(self) -> float:
        """Seconds that a client's first list waits for servers."""
        return self.loaded.config.gateway.startup_wait_ms / 1000

    @property
    def trusts_clients(self) -> bool:
        """Whether an approval that is answered in the client counts as its user's."""
        return self.loaded.config.gateway.approvals == "client"

    @asynccontextmanager
    async def host_of(self, principal: str) -> AsyncGenerator[Host]:
        """Open the host that a principal's client hosts are built on, for the length of the block.

        The local user's is the gateway's. Every other principal has one with logins of its own, even where no
        server wants a login now: another configuration may have one that does.
        """
        if principal == LOCAL:
            yield self.host
            return
        async with self._opening_hosts:
            held = self._principals.get(principal)
            if held is None:
                held = self._principals[principal] = await self.tasks.start(self._run_principal, principal)
            held.users += 1
        try:
            yield held.host
        finally:
            held.users -= 1
            held.idle_since = time.monotonic()

    async def _run_principal(
        self, principal: str, *, task_status: anyio.abc.TaskStatus["_Principal"]
    ) -> None:
        def login_hint(server_id: str) -> str:
            url = self.login_url(principal, server_id)
            return f"log in at {url}" if url else "ask the administrator of the gateway to log in"

        async with open_principal_host(self.host, self.loaded, principal, login_hint) as host:
            held = _Principal(host)
            with host.bus.listening(_SharedLogs(self, host)):
                task_status.started(held)
                await held.ended.wait()

    def login_url(self, principal: str, server_id: str) -> str | None:
        """Return where a principal logs in to a server; None for the local user, and without such a page."""
        if principal == LOCAL or not self.is_personal(server_id):
            return None
        return self.login_links.url(principal, server_id)

    def is_personal(self, server_id: str) -> bool:
        """Return whether two principals may be logged in differently at a server."""
        server = self.loaded.servers.get(server_id)
        return server is not None and is_personal(server)

    def use_login(self, principal: str, server_id: str) -> None:
        """Connect to the server that a principal has just logged in to."""
        held = self._principals.get(principal)
        if held is not None:
            self.tasks.start_soon(held.host.connect, server_id)

    def status(self) -> list[ServerStatus]:
        """Return the status of every server, over shared connections and those of principals and sessions."""
        hosts = [self.host, *(held.host for held in self._principals.values())]
        own = [
            combine(shared, [each for host in hosts for each in host.statuses_besides(shared.server_id)])
            for shared in self.host.status()
        ]
        return self._peers.combine(own) if self._peers is not None else own

    async def refresh(self) -> None:
        """Learn what other workers have of the servers and clients that `status` and `sessions` tell of."""
        if self._peers is not None:
            await self._peers.refresh()

    async def close_server(self, server_id: str) -> None:
        """End every connection to a server, whichever principal's or session's. The next use starts it."""
        await self.close_server_here(server_id)
        if self._peers is not None:
            await self._peers.close_server(server_id)
        elif self.cluster is not None and (server := self.loaded.servers.get(server_id)) is not None:
            await self.cluster.owners.close_elsewhere(server)

    async def close_server_here(self, server_id: str) -> None:
        """End every connection that this process has to a server."""
        async with anyio.create_task_group() as closing:
            for host in [self.host, *(held.host for held in self._principals.values())]:
                closing.start_soon(host.close, server_id)

    def sessions(self) -> list[SessionInfo]:
        """Return all client sessions, for display."""
        elsewhere = self._peers.sessions if self._peers is not None else ()
        return [*(client.info() for client in self.clients()), *elsewhere]

    def clients(self) -> list[ClientSession]:
        """Return all client sessions."""
        return [client for endpoint in self._endpoints.values() for client in endpoint.clients()]

    def new_session_id(self, principal: str, bundle: str | None, random: bytes | None = None) -> str | None:
        """Return an id for a session that other processes know to be this one's; None where there are none.

        Workers need none that stands for `random`: the path of a stream says whose it is.
        """
        if self.member is not None:
            return self.member.new_id() if random is None else None
        return self.cluster.session_ids.seal(principal, bundle, random) if self.cluster is not None else None

    def room_for_session(self, principal: str, credential: str | None) -> AbstractAsyncContextManager[bool]:
        """Make room for a session of a token, to be opened in the block. Yields False where there is none."""
        return self._quotas.room_for_session(principal, credential)

    def listening_stream(self, owner: TokenKey) -> AbstractContextManager[bool]:
        """Count a stream of `subscriptions/listen` during the block. Yields False at a quota."""
        return self._quotas.listening_stream(owner)

    async def reload(self, loaded: LoadedConfig) -> None:
        """Apply a configuration. Only what changed restarts, after its calls under way."""
        loaded.require_section("gateway")
        if self.agent is not None:
            require_free_id(loaded)
        trusted_clients, self.loaded = self.trusts_clients, loaded
        if trusted_clients and not self.trusts_clients:
            for client in self.clients():
                client.host.approvals.forget_session()  # some of it may have been answered in the client
        await self.host.reload(loaded)
        for held in [*self._principals.values()]:
            await held.host.reload(loaded)
        for bundle, endpoint in [*self._endpoints.items()]:
            try:
                endpoint.renew()
            except UnknownBundle:
                del self._endpoints[bundle]
                await endpoint.close()
        for client in self.clients():
            await client.reload(loaded)
        self.tasks.start_soon(self._announce_changes)

    async def _announce_changes(self) -> None:
        """Notify the clients whose tools changed, one after another: there may be many of both.

        Servers that are new, or may start now, are listed, which notifies clients in turn.
        """
        clients = self.clients()
        for client in clients:
            await client.notifier.compare_tools()
            await anyio.lowlevel.checkpoint()
        for client in clients:
            await client.view.prepare()

    async def announce_drain(self) -> None:
        """Begin to send clients elsewhere: what comes nevertheless is still served."""
        self.is_draining = True
        if self.cluster is not None:
            await self.cluster.directory.drain()
            self.cluster.owners.hand_over()

    async def drain(self) -> None:
        """Let requests under way finish while others are sent elsewhere, and leave the other replicas."""
        if not self.is_draining or (self.cluster is not None and not self.cluster.directory.is_draining):
            await self.announce_drain()
        await self.finish()
        if self.cluster is not None:
            await self.cluster.leave()
            await self.finish()  # what came until others knew

    async def finish(self) -> None:
        """Let requests under way finish, but not for long."""
        with anyio.move_on_after(self.options.grace_seconds):
            while self._calls() or self._is_handing_over():
                self._request_ended = anyio.Event()
                await self._request_ended.wait()

    def _is_handing_over(self) -> bool:
        return self.cluster is not None and self.cluster.owners.is_handing_over

    def _calls(self) -> int:
        """How many requests are under way, here or at other replicas."""
        here = sum(not context.is_parked for client in self.clients() for context in client.requests)
        if self.cluster is None:
            return here
        return here + self.cluster.forwarder.calls + self.cluster.owners.calls

    def load(self) -> ReplicaLoad:
        """Return the present load, for other replicas to see."""
        servers = self.cluster.owners.owned_servers if self.cluster is not None else ()
        return ReplicaLoad(
            sessions=len(self.clients()), calls=self._calls(), details=self.meter.measure(servers)
        )

    async def join(self, store: Store, place: ReplicaPlace, keys: ReplicaKeys, owners: ServerOwners) -> None:
        """Become one of the replicas that share a store, and servers. Raises `StoreError`."""
        cluster = Cluster(store, place, keys, load=self.load, on_end=self.note_request_end, owners=owners)
        await self.tasks.start(cluster.directory.run)
        self.tasks.start_soon(cluster.forwarder.run)
        self.tasks.start_soon(owners.run)
        cluster.share_servers(store, self._start_shared, self._close_shared, self._wake_finish)
        self.cluster = cluster
        if self.member is None:
            self.login_links.id_prefix = cluster.page_prefix

    def _start_shared(self, server_id: str, key: str) -> bool:
        """Start a server for another replica, which is about to stop. False where it is not the same here."""
        server = self.loaded.servers.get(server_id)
        if server is None or not server.enabled or server_key(server) != key:
            return False
        self.tasks.start_soon(self.host.connect, server_id)
        return True

    async def _close_shared(self, server_id: str, key: str) -> bool:
        """Close a server for another replica, whose user restarts it. False where it is not the same here."""
        server = self.loaded.servers.get(server_id)
        if server is None or server_key(server) != key:
            return False
        await self.close_server_here(server_id)
        return True

    def note_request_end(self) -> None:
        """Take note that a request of a client ended."""
        self.meter.ended += 1
        self._wake_finish()

    def _wake_finish(self) -> None:
        if self._request_ended is not None:
            self._request_ended.set()

    async def reap(self) -> None:
        """End idle sessions, at intervals, until cancelled."""
        while True:
            await anyio.sleep(min(_REAP_SECONDS, self.options.session_idle_seconds))
            for endpoint in [*self._endpoints.values()]:
                await endpoint.close_idle(self.options.session_idle_seconds)
            self._release_principals(self.options.session_idle_seconds)

    async def end_revoked(self, access: TokenRevocations) -> None:
        """End the sessions and streams of tokens that were removed, soon after that, until cancelled."""
        while True:
            await anyio.sleep(_REVOKE_SECONDS)
            await self.streams.end_revoked(access)
            for endpoint in [*self._endpoints.values()]:
                await endpoint.end_revoked(access)

    def _release_principals(self, seconds: float) -> None:
        """End the hosts of principals that have had no client for so long."""
        idle = [
            principal
            for principal, held in self._principals.items()
            if not held.users and time.monotonic() - held.idle_since > seconds
        ]
        for principal in idle:
            self._principals.pop(principal).ended.set()
            for endpoint in self._endpoints.values():
                endpoint.forget(principal)

    def forward_log(self, event: ServerLogged, host: Host) -> None:
        """Forward a log message of a shared connection, where only one client's request can be its cause."""
        asking = [
            client
            for client in self.clients()
            if client.requests.running_at(event.server_id) and client.shares(host, event.server_id)
        ]
        elsewhere = self.cluster.owners.calls_at(event.server_id) if self.cluster is not None else 0
        # With several it is unknown whose it is, and a log may quote one principal's data to another.
        if len(asking) == 1 and not elsewhere:
            asking[0].notifier.log(event)


@dataclass(eq=False, slots=True)
class _Principal:
    """The host of one principal, while its clients use it."""

    host: Host
    users: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    ended: anyio.Event = field(default_factory=anyio.Event)


class _SharedLogs(Subscriber):
    """Forwards log messages of shared servers at once: later it is unknown which request they belong to."""

    def __init__(self, gateway: Gateway, host: Host) -> None:
        super().__init__(overhears=False)
        self._gateway = gateway
        self._host = host

    def put(self, event: Event) -> None:
        """Forward a log message."""
        if isinstance(event, ServerLogged):
            self._gateway.forward_log(event, self._host)


async def _find_peers(
    gateway: Gateway, place: ReplicaPlace, owners: ServerOwners, env: Mapping[str, str]
) -> None:
    """Make a gateway one of several replicas, where its store is for several. Raises `StoreError`."""
    store = gateway.shared if gateway.shared is not None else gateway.host.store
    if store is None or not (store.is_shared or place.keys):
        owners.stay_alone()
        return
    keys = place.keys or await read_replica_keys(store_location(env, gateway.loaded.config.store))
    await gateway.join(store, place, keys, owners)


@asynccontextmanager
async def open_gateway(  # noqa: PLR0913 - what a gateway runs with, each by name
    loaded: LoadedConfig,
    options: GatewayOptions | None = None,
    *,
    env: Mapping[str, str] | None = None,
    servers: "Mapping[str, McpServer] | None" = None,
    tracer: Tracer | None = None,
    member: PoolMember | None = None,
    place: ReplicaPlace | None = None,
) -> AsyncGenerator[Gateway]:
    """Run a gateway for the length of the block. Requests under way at its end have some time to finish.

    Args:
        loaded: The configuration.
        options: How the gateway runs.
        env: The environment; `os.environ` if not given.
        servers: Additional servers that run in this process, by id.
        tracer: Records requests as spans.
        member: This process among the workers of the gateway, if it has several.
        place: Where other replicas reach it. It is one of them with a shared store, or with keys.

    Raises:
        ConfigError: The configuration cannot be used.
        StoreError: A shared store cannot be used.
    """
    options = options or GatewayOptions()
    approvals = PendingApprovals(options.approval_seconds)
    owners = ServerOwners() if place is not None else None
    failure: BaseException | None = None
    agent: AgentTools | None = None
    if options.agent or loaded.config.gateway.agent is not None:
        require_free_id(loaded)
        agent = AgentTools(env, member)
        servers = {**(servers or {}), AGENT_ID: agent.server()}
    async with Host.open(
        loaded,
        env=env,
        servers=servers,
        operator=ClientOperator(approvals),
        backing=GatewayBacking(ownership=owners),
        tracer=tracer,
    ) as host:
        async with anyio.create_task_group() as tasks:
            detach_from_caller()
            gateway = Gateway(host, loaded, options, approvals, tasks, member)
            gateway.agent = agent
            if gateway.shared is not None:
                approvals.store = gateway.shared
                tasks.start_soon(approvals.follow, gateway.shared)
            host.logins.on_login = gateway.use_login
            tasks.start_soon(gateway.reap)
            try:
                if place is not None and owners is not None:
                    await _find_peers(gateway, place, owners, os.environ if env is None else env)
                with host.bus.listening(_SharedLogs(gateway, host)):
                    yield gateway
            except BaseException as exc:  # noqa: BLE001 - kept out of the task group, which would wrap it
                failure = exc
            finally:
                with anyio.CancelScope(shield=True):
                    await gateway.finish()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
