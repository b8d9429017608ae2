"""One downstream client: its session, its client host, and its tools, resources and prompts."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import anyio
import anyio.abc
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fairlead.catalog.catalog import CatalogTool
from fairlead.catalog.results import DELIVERY, ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import Listing, ToolKey
from fairlead.config.load import LoadedConfig
from fairlead.config.principal import GroupedPrincipal
from fairlead.config.untyped import is_object
from fairlead.connection.peer import SESSION_META_KEY, detach_from_caller
from fairlead.errors import AuthRequired, CallRejected, FairleadError, UnknownTool
from fairlead.gateway.lists import OfferKind, OfferLists, ToolList, names_resources, with_public_uris
from fairlead.gateway.notifications import Notifier, OfferListName
from fairlead.gateway.open_requests import OpenRequests
from fairlead.gateway.operator import ClientOperator
from fairlead.gateway.principal_view import PrincipalView
from fairlead.gateway.request_context import (
    UNASKABLE,
    MultiRoundContext,
    PlainCall,
    ProtocolFamily,
    RequestContext,
    TaskStarter,
    abilities_of,
)
from fairlead.gateway.services import GatewayServices, TokenKey
from fairlead.host.background import run_off_loop
from fairlead.host.call import OnProgress
from fairlead.host.client_host import ClientHost, open_client_host
from fairlead.host.host import Host
from fairlead.host.model.bundles import Selection
from fairlead.host.model.resource_tools import ReadingTools
from fairlead.host.model.toolset import CATALOG_SECONDS, Toolset
from fairlead.host.operator import Ability
from fairlead.host.search_memory import SearchSession

CALLING_TOOLS: Final = frozenset({"mcp_call_tool", "mcp.callTool"})

LIST_FIELDS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The methods that list what there is, and where in their results it is."""
_OFFER_KINDS: Final[Mapping[str, OfferKind]] = {
    "resources/list": "resource",
    "resources/templates/list": "template",
    "prompts/list": "prompt",
}
MAX_SESSION_KEY: Final = 128
"""How long the key of a stateless client's session may be."""


class ClientKey(NamedTuple):
    """Identity of one stateless client of an endpoint.

    A client that names its session (`_meta["fairlead/session"]`) has it to itself. The others are one client
    for each token and client name, and share what stateful servers keep.
    """

    principal: str
    credential: str | None
    """The digest of its token; None for issuers' tokens, which change from hour to hour."""
    session: str | None = None
    name: str = ""
    groups: frozenset[str] = frozenset()
    """The groups of the principal: a token with others is another client, and may be offered other tools."""


def session_key(meta: Mapping[str, Any]) -> str | None:
    """Return the session that a stateless request names. Raises `MCPError` for an invalid key."""
    key = meta.get(SESSION_META_KEY)
    if key is None or (isinstance(key, str) and 0 < len(key) <= MAX_SESSION_KEY):
        return key
    raise MCPError(
        INVALID_PARAMS, f"`{SESSION_META_KEY}` must be a string of 1 to {MAX_SESSION_KEY} characters"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionInfo:
    """A client session, for display."""

    id: str
    principal: str
    bundle: str | None
    client: str | None
    family: ProtocolFamily
    upstreams: tuple[str, ...]
    """The servers that it has a connection of its own to."""
    since: float
    label: str | None = None
    """What its token is called, if that has a name."""


class SessionEndpoint(Protocol):
    """An endpoint, as the sessions of its clients know it."""

    @property
    def gateway(self) -> GatewayServices:
        """The gateway that it belongs to."""
        ...

    @property
    def bundle(self) -> str | None:
        """The bundle that it serves; None where it serves everything."""
        ...

    def selection_for(self, caller: GroupedPrincipal) -> Selection:
        """Return what it selects for a caller."""
        ...

    def view(self, caller: GroupedPrincipal, host: Host) -> PrincipalView:
        """Return what it offers to a principal, whose client hosts are built on that host."""
        ...

    async def end(self, client: "ClientSession") -> None:
        """End a client's session."""
        ...


class ClientSession:
    """One client and its client host, shared with no other client.

    Args:
        endpoint: The endpoint that it came to.
        principal: The identity that its calls are made for.
        family: Whether the client keeps a session or sends stateless requests.
        abilities: The elicitations and sampling requests that the client can answer.
        key: What its requests are recognized by, where the protocol has no session.
        credential: The digest of its token, where there is no key.
        label: The name of its token, for the dashboard.
        groups: The groups of the principal, where there is no key.
        session_id: What it is known by; something random if not given.
    """

    def __init__(  # noqa: PLR0913, PLR0915 - what a client is made of
        self,
        endpoint: SessionEndpoint,
        principal: str,
        family: ProtocolFamily,
        abilities: frozenset[Ability] = UNASKABLE,
        *,
        key: ClientKey | None = None,
        credential: str | None = None,
        label: str | None = None,
        groups: frozenset[str] = frozenset(),
        session_id: str | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.principal = principal
        self.caller = GroupedPrincipal(principal, key.groups if key is not None else groups)
        """The principal and groups that its calls are made for."""
        self.key = key
        """What its requests are recognized by, where the protocol has no session."""
        self.credential = key.credential if key is not None else credential
        """The digest of the token that began its session."""
        self.label = label
        self.family: ProtocolFamily = family
        self.id = session_id or secrets.token_hex(16)
        self.name: str | None = None
        self.since = time.time()
        self.last_used = time.monotonic()
        self.is_streaming = False
        """Whether it lasts as long as one connection of the HTTP+SSE transport."""
        self.busy = 0
        """Number of requests of its transport that are under way."""
        self.abilities = abilities
        """What requests of servers it takes, as far as it declared; handshake servers learn this once."""
        self.version: str | None = None
        self.log_level: types.LoggingLevel | None = "info" if family == "session" else None
        """From which level on it gets log messages, where requests do not say so; None for none."""
        self.has_set_level = False
        self.parked: dict[str, MultiRoundContext[Any]] = {}
        self.tools = ToolList()
        self.ended = anyio.Event()
        self.tasks: anyio.abc.TaskGroup
        self.host: Host
        self._client_host: ClientHost
        self.view: PrincipalView
        """What its endpoint offers to its principal."""
        self._shared: Host
        self.selection: Selection
        self.toolset: Toolset
        self.loop = asyncio.get_running_loop()
        self.starter = TaskStarter()
        """Starts tasks for callbacks of the event loop."""
        self.plain_calls: dict[int | str | None, PlainCall] = {}
        """Its calls on the fast path, by request id."""
        self._in_use = _InUse(self)
        self._fresh: set[Host] = set()
        """The hosts of single requests, for servers with `sharing: "call"`."""
        self.requests = OpenRequests(is_one_agent=self.is_one_agent, on_end=endpoint.gateway.note_request_end)
        """Its requests that are being handled."""
        self.notifier = Notifier(self)
        self._offered: OfferLists | None = None
        self._searches = SearchSession(is_one_agent=self.is_one_agent)

    # Lifetime.

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the client host and run the client's tasks for the length of the block."""
        self._operator = ClientOperator(self.endpoint.gateway.approvals, self)
        async with (
            self.endpoint.gateway.host_of(self.principal) as shared,
            open_client_host(shared, operator=self._operator) as self._client_host,
        ):
            self._shared = shared
            self.host = self._client_host.host
            self.view = self.endpoint.view(self.caller, shared)
            self.renew()
            async with anyio.create_task_group() as self.tasks:
                detach_from_caller()
                self.tasks.start_soon(self.notifier.run)
                self.tasks.start_soon(self.starter.run, self.tasks)
                try:
                    yield
                finally:
                    self.ended.set()
                    self.tasks.cancel_scope.cancel()

    async def reload(self, loaded: LoadedConfig) -> None:
        """Apply a configuration, also for calls that wait."""
        for host in (self.host, *self._fresh):
            await host.reload(loaded)
        self.renew()

    def renew(self) -> None:
        """Apply the present selection."""
        self.selection = self.endpoint.selection_for(self.caller)
        self.toolset = self._toolset_of(self.host)
        self._reading = ReadingTools(self.host, self.selection, self.principal)
        self._per_call = self._client_host.per_call_servers()
        self._offered = None

    def _toolset_of(self, host: Host) -> Toolset:
        patience = self.endpoint.gateway.startup_wait
        return Toolset(host, self.selection, *self.caller, session=self._searches, patience=patience)

    def meet(self, session: ServerSession) -> None:
        """Take note of its SDK session: who it is, and the way for notifications."""
        self.notifier.session = session
        self.version = session.protocol_version
        self.hear_of(session)

    def hear_of(self, session: ServerSession) -> None:
        """Take note of the client's name and abilities, as this request declares them."""
        if self.family == "session":
            self.abilities = abilities_of(session.client_capabilities)
        if session.client_params is not None:
            info = session.client_params.client_info
            self.name = f"{info.name} {info.version}".strip()

    def learn_abilities(self, abilities: frozenset[Ability]) -> None:
        """Note that it has more abilities than it declared before.

        Handshake servers learn them at `initialize`, so they are connected again; calls under way finish.
        """
        if not abilities <= self.abilities:
            self.abilities |= abilities
            for managed in self._client_host.own_servers:
                if managed.connection is not None and managed.version in HANDSHAKE_PROTOCOL_VERSIONS:
                    managed.connection.renew()

    @property
    def is_one_agent(self) -> bool:
        """Whether all its requests certainly come from one agent."""
        return self.key is None or self.key.session is not None

    @property
    def token_key(self) -> TokenKey:
        """The principal and token that its quotas are counted for."""
        return self.principal, self.credential

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is under way, and no elicitation open."""
        return not self.busy and not self.parked and not self.requests

    @property
    def is_met(self) -> bool:
        """Whether it has sent `initialize`."""
        return self.notifier.session is not None

    @property
    def may_approve(self) -> bool:
        """Whether an approval that is answered in it counts as its user's."""
        return self.endpoint.gateway.trusts_clients

    @property
    def has_many_servers(self) -> bool:
        """Whether it has several servers, so that an elicitation must name its own."""
        chosen = (status for status in self.host.status() if self.selection.has(status.server_id))
        return sum(status.enabled for status in chosen) > 1

    def info(self) -> SessionInfo:
        """Return its description, for display."""
        return SessionInfo(
            id=self.id,
            principal=self.principal,
            bundle=self.endpoint.bundle,
            client=self.name,
            label=self.label,
            family=self.family,
            upstreams=tuple(managed.server.server_id for managed in self._client_host.own_servers),
            since=self.since,
        )

    def new_state_nonce(self) -> str | None:
        """Return the nonce that tells replicas that its request waits here; None where there are none."""
        return self.endpoint.gateway.new_session_id(self.principal, self.endpoint.bundle)

    def in_use(self) -> "_InUse":
        """Count a request of its transport for the length of a block, so that it is not taken for idle."""
        return self._in_use

    # Requests.

    def shares(self, host: Host, server_id: str) -> bool:
        """Return whether it uses a host's connection to a server, where it shares one."""
        return self._shared.servers.owner(server_id) is host.servers.owner(server_id)

    def has_own(self, server_id: str) -> bool:
        """Return whether it has a connection of its own to a server."""
        return any(managed.server.server_id == server_id for managed in self._client_host.own_servers)

    @property
    def has_any_own(self) -> bool:
        """Whether it has a connection of its own to any server."""
        return bool(self._client_host.own_servers)

    def set_log_level(self, level: types.LoggingLevel) -> None:
        """Send it log messages from this level on."""
        self.log_level = level
        self.has_set_level = True

    @asynccontextmanager
    async def at(self, context: RequestContext, server_id: str) -> AsyncGenerator[Host]:
        """Attribute a request to a server. Yields the host to call: a new one with `sharing: "call"`."""
        context.server_id = server_id
        if server_id in self._per_call:
            async with self._fresh_host() as host:
                yield host
            return
        if context.log_level is not None and (self.has_set_level or self.family == "stateless"):
            await self._client_host.set_log_level(server_id, context.log_level)
        if self.is_one_agent or context.abilities == UNASKABLE:
            yield self.host
            return
        attribution = self.requests.attribution
        with attribution.space(context, server_id, is_wanted=await self._may_ask(server_id)):
            await attribution.enter(context, server_id)
            yield self.host

    async def _may_ask(self, server_id: str) -> bool:
        try:
            return await self._client_host.prepare_for_server_requests(server_id)
        except FairleadError:
            return False  # the request itself will say what is wrong

    @asynccontextmanager
    async def _fresh_host(self) -> AsyncGenerator[Host]:
        """A host for one request: its connections are made for it and end after it, without a wait."""
        over = anyio.Event()
        host: Host = await self.tasks.start(self._run_fresh_host, over)
        try:
            yield host
        finally:
            over.set()

    async def _run_fresh_host(self, over: anyio.Event, *, task_status: anyio.abc.TaskStatus[Host]) -> None:
        detach_from_caller()
        async with open_client_host(self._shared, operator=self._operator) as client_host:
            host = client_host.host
            self._fresh.add(host)
            try:
                task_status.started(host)
                await over.wait()
            finally:
                self._fresh.discard(host)

    async def list_tools(self) -> bytes:
        """Return its tools, valid for its protocol version: a JSON array."""
        deadline = anyio.current_time() + self.endpoint.gateway.startup_wait
        await self.view.prepare()
        if self.abilities != UNASKABLE:
            chosen = [name for name in self._server_ids() if self.selection.has(name)]
            left = max(deadline - anyio.current_time(), 0)
            await self._client_host.list_for_client(chosen, seconds=left)
        # A large catalog of its own is made in the background, from a part of the servers on; a client that
        # lists once would never see the others. No server is waited for any more.
        with anyio.CancelScope(deadline=max(deadline, anyio.current_time() + CATALOG_SECONDS)):
            await self.host.wait_for_catalog(self.selection, only_first=True)
        catalog = self.toolset.catalog  # it may change while its tools are written
        tools = (
            await self.tools.tools(self.toolset, self.version)
            if self._differs
            else await self.view.list_tools(self.version)
        )
        self.notifier.note_known_tools(catalog)
        return tools

    def _server_ids(self) -> list[str]:
        return [managed.server.server_id for managed in self.host.servers]

    @property
    def _differs(self) -> bool:
        return self.toolset.catalog is not self.view.toolset.catalog

    def find_tool(self, name: str) -> CatalogTool | None:
        """Return a tool by the name that the client uses; None for our own and for those not known yet."""
        return self.toolset.catalog.find_tool(name)

    async def call(
        self,
        context: RequestContext,
        name: str,
        tool: CatalogTool | None,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Call a tool. A failure is a result for the model to read, or an error as a server sent it.

        Args:
            context: The request that the call is made for.
            name: What the client calls the tool.
            tool: What `find_tool` returned for the name.
            arguments: The tool's arguments.
            on_progress: Called with the progress that the server reports.

        Returns:
            The tool's result.

        Raises:
            MCPError: There is no such tool, or its server answered with a protocol error.
        """
        if tool is None and not self._is_about_known_tool(name, arguments):
            await self.view.prepare()  # its server may not have been listed yet
            tool = self.find_tool(name)
        try:
            if tool is None:
                return await self._call_own(context, name, arguments)
            key = tool.key
            if self._is_plain(context) and key.server_id not in self._per_call:
                context.server_id = key.server_id
                return await self._call(self.host, key, arguments, on_progress)
            async with self.at(context, key.server_id) as host:
                return await self._call(host, key, arguments, on_progress)
        except AuthRequired as exc:
            url = self.endpoint.gateway.login_url(self.principal, exc.server_id) if tool is None else None
            if url is not None:
                await self._operator.offer_login(context, exc.server_id, url)
            return self.toolset.error_result(exc)
        except UnknownTool as exc:
            raise MCPError(INVALID_PARAMS, _with_hint(exc), {DELIVERY: exc.delivery}) from exc
        except CallRejected as exc:
            raise rejection(exc) from exc
        except FairleadError as exc:
            return self.toolset.error_result(exc)

    def _is_about_known_tool(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call is that of a meta-tool for a tool that is known: no server is waited for."""
        wanted = arguments.get("name") if name in CALLING_TOOLS else None
        return isinstance(wanted, str) and self.find_tool(wanted) is not None

    def _is_plain(self, context: RequestContext) -> bool:
        """Return whether `at` would do nothing, as for most calls: it would cost them a lot."""
        if self.family == "session":
            return not self.has_set_level
        return context.abilities is UNASKABLE and context.log_level is None

    async def _call_own(self, context: RequestContext, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a meta-tool, or an unknown tool. `mcp_call_tool` calls another tool in turn."""
        wanted = arguments.get("name") if name in CALLING_TOOLS else None
        tool = self.find_tool(wanted) if isinstance(wanted, str) else None
        if tool is None:
            result = await self.toolset.call(name, arguments)
        else:
            async with self.at(context, tool.key.server_id) as host:
                toolset = self.toolset if host is self.host else self._toolset_of(host)
                result = await toolset.call(name, arguments)
        # Meta-tools are listed without output schemas, also where the tool that one of them called has one.
        result.definition = None
        return result

    async def _call(
        self, host: Host, key: ToolKey, arguments: Mapping[str, Any], on_progress: OnProgress | None
    ) -> ToolResult:
        result = await host.call(
            key.server_id,
            key.tool,
            arguments,
            on_progress=on_progress,
            bundle_filter=self.selection.bundle_filter(key.server_id),
            principal=self.principal,
            groups=self.caller.groups,
            default_mode=self.selection.approval,
            max_structured_bytes=self.endpoint.gateway.loaded.config.gateway.max_structured_bytes,
        )
        if self._searches.has_searched:
            await self.toolset.note_call(key, result)
        if names_resources(result.raw):
            result.raw = with_public_uris(result.raw, key.server_id, await self.prepare_offers())
        return result

    async def fetch_offers(self) -> OfferLists:
        """Return the resources and prompts it is offered, after every server was listed once."""
        await self.view.prepare()
        return await self.prepare_offers()

    async def list_offers(self, kind: OfferListName) -> OfferLists:
        """Like `fetch_offers`; the client is notified when those of this kind change."""
        offered = await self.fetch_offers()
        self.notifier.note_known_offers(kind, offered)
        return offered

    async def list_array(self, method: str) -> bytes:
        """Return the result of one of `LIST_FIELDS`, valid for its protocol version: a JSON array."""
        if method == "tools/list":
            return await self.list_tools()
        kind: OfferKind = _OFFER_KINDS[method]
        offered = await self.list_offers("prompts" if kind == "prompt" else "resources")
        return await offered.list_as_json(kind, self.version)

    async def prepare_offers(self) -> OfferLists:
        """Return what is known now, ready to be listed: prepared off the event loop where it is much."""
        offered = self.known_offers()
        if not offered.is_prepared:
            await run_off_loop(offered.prepare, offered.size)
        return offered

    def known_offers(self) -> OfferLists:
        """Return the resources and prompts that are known now. Contacts no server."""
        listings: dict[str, Listing] = {}
        for status in self.host.status():
            if status.enabled and self._reading.may_read(status.server_id):
                listing = self.host.listing(status.server_id)
                if listing is not None:
                    listings[status.server_id] = listing
        if self._offered is None or not self._offered.is_of(listings):
            scheme = "plain" if self.selection.plain_names else "gateway"
            trusted = [name for name in listings if self.host.configured(name).trust == "trusted"]
            self._offered = OfferLists(listings, scheme, trusted)
        return self._offered


# A class rather than a generator, which takes three times as long: every call is in this block.


class _InUse:
    __slots__ = ("_client",)

    def __init__(self, client: ClientSession) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._client.busy += 1

    def __exit__(self, *exc: object) -> None:
        self._client.busy -= 1
        self._client.last_used = time.monotonic()


def rejection(exc: CallRejected) -> MCPError:
    """Return a server's protocol error as the client gets it."""
    data = gate.mark_error_data(exc.data, exc.server_id if exc.untrusted else None)
    members = data if is_object(data) else {} if data is None else {"data": data}
    return MCPError(exc.rpc_code, exc.words, {**members, DELIVERY: exc.delivery})


def _with_hint(exc: FairleadError) -> str:
    return f"{exc}\n\nhint: {exc.hint}" if exc.hint else str(exc)
