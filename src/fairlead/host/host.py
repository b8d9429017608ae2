"""The host: all configured servers behind one object, and the public API to list, read and call them.

What it is made of is in `parts`, the way of a call in `call`, the servers in `managed_servers`.
"""

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.config.argument_types import check_types
from fairlead.config.document.files import reserve_standard_descriptors
from fairlead.config.load import LoadedConfig, LoadedServer, load_config, program_server
from fairlead.config.models import ApprovalMode, Server
from fairlead.config.principal import LOCAL, GroupedPrincipal
from fairlead.config.secrets.log_filter import mask_logs
from fairlead.connection.connection import Connection
from fairlead.connection.tracing import Tracer
from fairlead.connection.transport.auth_flow import AuthFlow
from fairlead.connection.transport.request_headers import AuthProvider
from fairlead.errors import ConnectFailed, ConsentRequired, FairleadError, StoreError
from fairlead.host.background import run_off_loop, size_of_tools
from fairlead.host.call import CallRunner, OnProgress, call_settings, listing_of, require_consent
from fairlead.host.events import EventStream, Subscriber
from fairlead.host.extensions import ExtensionMessages
from fairlead.host.managed_server import ManagedServer
from fairlead.host.model.bundles import Selection, filter_in_force, select
from fairlead.host.model.catalogs import CatalogBuilder, HostCatalogs
from fairlead.host.model.meta_tools import RESERVED
from fairlead.host.model.toolset import Toolset
from fairlead.host.named_calls import NO_ARGUMENTS, read_named_call, unexpected_keywords
from fairlead.host.offers.offer_requests import KnownOffers, OfferRequests
from fairlead.host.offers.prompts import Prompts
from fairlead.host.offers.resources import Resources
from fairlead.host.offers.skills import Skills
from fairlead.host.offers.tasks import Tasks
from fairlead.host.opening import host_opener
from fairlead.host.operator import UNATTENDED, Operator
from fairlead.host.parts import GatewayBacking, HostParts, open_parts, require_sound
from fairlead.host.permission import CallPermission, ProposedCall, check_proposal
from fairlead.host.search_memory import SearchSession
from fairlead.host.server_access import ServerAccess
from fairlead.host.server_peer import CustomCapabilities
from fairlead.host.server_status import ServerStatus
from fairlead.host.startup import ServerInfo, Startups
from fairlead.policy.approvals import Approvals
from fairlead.policy.decision import BundleFilter

if TYPE_CHECKING:
    from fairlead.servers.framework.server import McpServer


# Here as well as in `Host.open`: an event loop is usually made after this import and before that call.
reserve_standard_descriptors()

_CONFIG_HINT = "pass a document as `overrides`, the path of a file as `path`, or what `load_config` returns"


class Host:
    """All configured servers behind one object. Open it with `async with Host.open() as host:`.

    ```python
    async with Host.open() as host:
        print(await host.call("time.get_current_time", timezone="UTC"), host.status())
    ```

    Methods that take a `server_id` raise `UnknownServer` if no server has that id, and `ConnectFailed` once
    the host is closed. Methods that contact a server also raise `ConnectFailed`, `AuthRequired` and
    `ConsentRequired` if it cannot be used.
    """

    def __init__(self, config: LoadedConfig, parts: HostParts) -> None:
        self.config = config
        """The configuration in force."""
        self.parts = parts
        """What it is made of, for a host below it."""
        self.servers = parts.servers
        """The managed servers, by id."""
        self.store = parts.records.store
        self._tasks = parts.context.tasks
        self._transports = parts.context.transports
        self.bus = parts.context.bus
        """The event bus."""
        self.catalogs = HostCatalogs(
            parts.servers,
            parts.names or config.config.tools.names,
            RESERVED,
            CatalogBuilder(self._tasks, self.bus.emit),
            parts.catalogs_above,
        )
        """The known tools, by selection."""
        self._startups = Startups(self._tasks, self.bus.emit)
        self.docs_allow: tuple[str, ...] = ()
        """The sites that the built-in documentation server may read."""
        self._access = ServerAccess(parts.servers, parts.records.store, self.bus)
        self.known_offers = KnownOffers()
        """Cache of parsed offers."""
        self.offer_requests = OfferRequests(self._access, self.known_offers)
        self.resources = Resources(self.offer_requests)
        self.prompts = Prompts(self.offer_requests)
        self.custom = ExtensionMessages(self._access)
        self.approvals = Approvals(parts.records.store)
        """The remembered approvals of tools."""
        human = parts.context.human
        self.permission = CallPermission(human.operator, self.approvals, lambda: self.config, filter_in_force)
        self.logins = parts.logins
        """The OAuth logins to servers."""
        self.artifacts = parts.records.artifacts
        """The parts of results that exceeded the result budget."""
        self.search_memory = parts.records.search_memory
        """The tools that searches led to, by principal."""
        self._searches = SearchSession()  # of all toolsets that `tools` returns
        self.embeddings = parts.embeddings
        self.calls = CallRunner(parts.records, self.permission, self.bus, parts.running_calls)
        self.tasks = Tasks(self._access, self.calls, parts.records.store)
        self._close: Callable[[], Awaitable[None]] | None = None

    def __repr__(self) -> str:
        states = Counter(status.state for status in self.status())
        shown = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        return f"<Host: {'closed' if self._access.is_closed else 'open'}; servers: {shown or 'none'}>"

    @classmethod
    @check_types(hints={"config": _CONFIG_HINT})
    @host_opener
    async def open(  # noqa: PLR0913 - everything a host can be given, named
        cls,
        config: LoadedConfig | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        servers: Mapping[str, "McpServer"] | None = None,
        operator: Operator = UNATTENDED,
        capabilities: CustomCapabilities | None = None,
        auth_providers: Mapping[str, AuthProvider | AuthFlow] | None = None,
        backing: GatewayBacking | None = None,
        subscriber: Subscriber | None = None,
        tracer: Tracer | None = None,
    ) -> AsyncGenerator["Host"]:
        """Run a host: `async with Host.open() as host`, or `host = await Host.open()` with `host.aclose()`.

        The block may end, and `aclose` be called, in another task than it began in. Servers start on first
        use, except those configured with `lazy: false`.

        Args:
            config: A loaded configuration; without one, it is loaded from the next four.
            path: One configuration file instead of the user's and the project's.
            overrides: A document that is merged over all files.
            env: The environment; `os.environ` if not given.
            cwd: Where to look for a project's configuration; the current directory if not given.
            servers: Servers of your own that run in this process, by id.
            operator: Answers approvals and elicitations for the user.
            capabilities: Client capabilities that are declared to every server.
            auth_providers: Sources of credentials, by the `auth_provider_id` of entries: the MCP SDK's
                `OAuthClientProvider`, any auth flow that httpx takes, or objects with a method `headers`.
            backing: Given if the host serves the clients of a gateway.
            subscriber: Gets all events from the start.
            tracer: Records requests to servers as spans; the program's own OpenTelemetry if not given.

        Raises:
            ConfigError: The configuration cannot be used.
            ServerError: A server configured with `required: true` is not ready. Others never fail the start.
        """
        require_sound(Host.open, operator, servers or {}, auth_providers or {})
        reserve_standard_descriptors()
        env = os.environ if env is None else env
        mask_logs(gate.log_line)
        loaded = config or load_config(path, overrides, env, cwd)
        async with open_parts(
            loaded.config,
            env,
            programs=servers or {},
            operator=operator,
            capabilities=capabilities,
            auth_providers=auth_providers,
            backing=backing,
            tracer=tracer,
            docs_allow=lambda: host.docs_allow,
            own_code=lambda: host.config.own_code,
        ) as parts:
            host = cls(loaded, parts)
            if subscriber is not None:
                host.bus.subscribe(subscriber)
            try:
                await host.reload(loaded)
                required = [each.server for each in host.servers if each.server.entry.get("required") is True]
                if needed := [server.server_id for server in required if server.enabled]:
                    await host.require(needed)
                yield host
            finally:
                with anyio.CancelScope(shield=True):
                    await host.end()

    # Servers.

    def login_hint(self, server_id: str) -> str:
        """The way in which the user of this host logs in to a server."""
        return self.parts.login_hint(server_id)

    def status(self) -> list[ServerStatus]:
        """The state of every server. Contacts no server."""
        return self._access.statuses()

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """The states of a server's connections that belong to single clients of a gateway."""
        return self.servers.statuses_besides(server_id)

    @check_types
    async def connect(self, *server_ids: str) -> dict[str, FairleadError]:
        """Connect servers concurrently and list what they offer.

        Args:
            server_ids: The servers. One that is ready stays connected, and is not listed again.

        Returns:
            What went wrong, by server; empty if all are ready.
        """
        failures: dict[str, FairleadError] = {}
        managed: list[ManagedServer] = []
        for server_id in server_ids:
            try:
                managed.append(self._access.inspect(server_id))
            except FairleadError as exc:
                failures[server_id] = exc
        ready = partial(listing_of, store=self.store, fresh=True)
        return failures | await self._startups.start(managed, ready)

    @check_types
    def retry(self, *server_ids: str) -> None:
        """Reconnect servers that failed, in the background, unless their circuit breaker is open."""
        for server_id in server_ids:
            connection = self._access.inspect(server_id).connection
            if connection is not None and not connection.backoff.is_open:
                self._tasks.start_soon(self.connect, server_id)

    async def connect_all(self) -> dict[str, FairleadError]:
        """Connect every enabled server.

        Returns:
            What went wrong, by server; empty if all are ready.
        """
        return await self.connect(*(each.server.server_id for each in self.servers if each.server.enabled))

    @check_types
    async def require(self, server_ids: Iterable[str], *, seconds: float = 60.0) -> None:
        """Connect servers and wait until all are ready.

        Args:
            server_ids: The servers.
            seconds: How long to wait for all of them together.

        Raises:
            FairleadError: What is wrong with the first server that is not ready.
        """
        failures: dict[str, FairleadError] = {}
        wanted = list(server_ids)
        with anyio.move_on_after(seconds) as scope:
            failures = await self.connect(*wanted)
        if scope.cancelled_caught:
            late = [name for name in wanted if self._access.inspect(name).status().state != "ready"]
            raise ConnectFailed(late[0] if late else wanted[0], f"not ready after {seconds:g} s")
        for failure in failures.values():
            raise failure

    @check_types
    async def close(self, server_id: str) -> None:
        """Close all connections to a server, from any task, in bounded time. The next use reconnects it.

        Args:
            server_id: The server. The host of a gateway's client closes its own connection to it alone.
        """
        await self.servers.end(self._access.inspect(server_id).server.server_id)

    async def aclose(self) -> None:
        """Close every connection, in bounded time, and open none any more."""
        if self._access.is_closed and self._access.is_in_other_loop:
            return  # it ended with its event loop
        self._access.require_own_loop()
        await (self._close or self.end)()

    def close_with(self, close: Callable[[], Awaitable[None]], /) -> None:
        """Await this function in `aclose`: it ends the block that runs the host."""
        self._close = close

    async def end(self) -> None:
        """Close every connection, and leave the rest to the block that runs the host."""
        self._access.close()
        self.catalogs.close()
        await self.servers.close()
        self.bus.close()

    @check_types
    async def reload(self, config: LoadedConfig) -> None:
        """Put another configuration in force. Only servers that changed restart, after their calls.

        Args:
            config: What `load_config` returns.
        """
        self._access.require_own_loop()
        self.docs_allow = config.config.docs.allow
        self.parts.records.audit.settings = config.config.audit
        for server_id, server in config.servers.items():
            before = self.config.servers.get(server_id)
            if before is not None and before.entry != server.entry:
                self.approvals.forget_session(server_id)  # the changed entry is the newer decision
        self.config = config
        self.catalogs.reset(self.parts.names or config.config.tools.names)
        own = {
            name: program_server(name, Path(), config.rules, call_seconds=program.call_seconds)
            for name, program in self._transports.programs.items()
        }
        wanted = config.servers | own
        self.servers.keep_only(wanted)
        await self._take(wanted.values())
        self.permission.decide_again()

    @check_types
    async def add(self, server: LoadedServer) -> None:
        """Add a server, or replace the definition of the one with its id."""
        self._access.require_own_loop()
        await self._take([server])

    @check_types
    def remove(self, server_id: str) -> None:
        """Remove a server. Its calls under way finish first."""
        self.servers.drop(self._access.inspect(server_id).server.server_id)

    @check_types
    def configured(self, server_id: str) -> Server:
        """The configuration of a server.

        Raises:
            ConfigInvalid: Its entry is not valid.
        """
        return self._access.inspect(server_id).config

    async def notice_consents(self) -> None:
        """Look up whether servers that wait for the user's consent have been approved meanwhile."""
        for managed in self.servers:
            if managed.awaits_consent:
                with suppress(ConsentRequired, StoreError):
                    await require_consent(managed, self.store)

    def is_untrusted(self, server_id: str) -> bool:
        """Whether what this server says is untrusted content. Raises what `configured` raises."""
        return self._access.is_untrusted(server_id)

    def is_trusted(self, server_id: str) -> bool:
        """Whether a server is trusted. False for one that is unknown, or whose entry is not valid."""
        try:
            return not self.is_untrusted(server_id)
        except FairleadError:
            return False

    # What servers offer.

    @check_types
    def listing(self, server_id: str) -> Listing | None:
        """The listing of a server, of this run or a snapshot; None if there is none. Contacts no server."""
        return self._access.inspect(server_id).listing

    @check_types
    def toolset(
        self, bundle: str | None = None, *, principal: str = LOCAL, groups: frozenset[str] = frozenset()
    ) -> Toolset:
        """The tools of a bundle, to give to a model, to search, and to call by name.

        Args:
            bundle: The bundle; all enabled servers if not given.
            principal: The identity that calls are made for. Rules may hide tools from it.
            groups: The groups that the principal is a member of.

        Raises:
            UnknownBundle: No bundle has that name.
        """
        self._access.require_own_loop()
        selection = select(self.config, bundle, GroupedPrincipal(principal, groups))
        return Toolset(self, selection, principal, groups)

    @property
    def tools(self) -> Toolset:
        """The tools of every enabled server. Calls may follow searches of an earlier access to this."""
        toolset = self.toolset()
        toolset.session = SearchSession(part_of=self._searches)
        return toolset

    def catalog(self, selection: Selection) -> Catalog:
        """The tools of a selection that are known now. Contacts no server."""
        return self.catalogs.current(selection)

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog is built; with `only_first` not for one that replaces another."""
        await self.catalogs.wait(selection, only_first=only_first)

    @check_types
    async def tools_of(self, server_id: str) -> tuple[ToolEntry, ...]:
        """The tools of a server. It is connected only if it was never listed.

        Args:
            server_id: The server.

        Returns:
            Their definitions, sanitized and with secrets masked. Each `key` has the tool's own name.

        Raises:
            ListFailed: The server does not list its tools.
        """
        listing = await self.offers(server_id)
        if listing.is_partial and not listing.tools:
            listing = await self.list_now(server_id)  # which raises why there are none
        tools = listing.tools

        def show() -> tuple[ToolEntry, ...]:
            return tuple(clean_tool(tool).entry for tool in tools)  # anew: secrets become known meanwhile

        return await run_off_loop(show, size_of_tools(tools))

    @check_types
    async def list_now(self, server_id: str) -> Listing:
        """The listing of a server from this run. It is connected if it is not.

        Raises:
            ListFailed: The server does not list what it offers.
        """
        return await self._access.list_now(server_id)

    @check_types
    async def offers(self, server_id: str) -> Listing:
        """The listing of a server, of this run or a snapshot. It is connected only if it was never listed.

        Raises:
            ListFailed: The server does not list what it offers.
        """
        return await self._access.offers(server_id)

    @check_types
    async def reach(self, server_id: str) -> Connection:
        """The connection of a server, open or not, for requests to this server alone."""
        return await self._access.reach(server_id)

    @check_types
    def skills(self, server_id: str) -> Skills:
        """The skills that a server offers to models."""
        return Skills(server_id, self.custom, self.resources)

    @check_types
    async def describe(self, server_id: str) -> ServerInfo:
        """Facts that a server reports about itself. It is connected if it is not."""
        connection = await self.reach(server_id)
        session = await connection.ready()
        listing = await self.offers(server_id)  # its instructions are left out until they are reviewed
        name = connection.vitals.server
        return ServerInfo(name=name, version=session.version, instructions=listing.instructions)

    async def call(  # noqa: PLR0913 - the parts of one call
        self,
        server_id: str,
        tool: str | Mapping[str, Any] = NO_ARGUMENTS,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        request_timeout_ms: int | None = None,
        confirmed: bool = False,
        bundle_filter: BundleFilter | None = None,
        principal: str = LOCAL,
        full_result: bool = False,
        groups: frozenset[str] = frozenset(),
        default_mode: ApprovalMode | None = None,
        max_structured_bytes: int | None = None,
        **named: Any,  # noqa: ANN401 - any JSON value
    ) -> ToolResult:
        """Call a tool, after the operator's approval if policy says `ask`.

        ```python
        await host.call("time", "get_current_time", {"timezone": "Europe/Berlin"}, confirmed=True)
        await host.call("time.get_current_time", timezone="Europe/Berlin")  # takes no options
        ```

        Args:
            server_id: The server; or `server.tool`, or the public name of a tool.
            tool: The tool's own name at the server; after `server.tool` its arguments.
            arguments: Its arguments, by name.
            on_progress: Awaited with progress, total and message whenever the server reports progress.
            request_timeout_ms: Idle timeout instead of the server's configured one; progress resets it.
            confirmed: The user saw and confirmed this very call, so that policy need not ask.
            bundle_filter: The effect of a bundle on this server.
            principal: The identity that the call is made for.
            full_result: Return the whole result rather than what fits the result budget.
            groups: The groups that the principal is a member of.
            default_mode: The approval mode of tools that no rule and no other mode matches.
            max_structured_bytes: A budget of its own for structured content; else it shares the result's.
            named: Arguments of the tool, after `server.tool`.

        Returns:
            The result, cut to the result budget with the rest in `artifacts`. Where the tool itself failed,
            it has `is_error`.

        Raises:
            CallDenied: Policy or the user denied it; `ApprovalRequired` if the operator cannot ask.
            UnknownTool: The tool's definition was rejected.
            ArgumentsInvalid: The arguments do not fit the tool's schema.
            CallFailed: No result came; `delivery` says whether the server may have carried it out.
        """
        settings = call_settings(on_progress, request_timeout_ms, max_structured_bytes, full=full_result)
        if not isinstance(tool, str):
            options = (arguments, confirmed, bundle_filter, principal, groups, default_mode, settings)
            key, arguments = await read_named_call(self, server_id, tool, named, options)
            server_id, tool = key.server_id, key.tool
        elif named:
            raise unexpected_keywords(named)
        proposal = self.propose(
            server_id,
            tool,
            bundle_filter,
            principal,
            confirmed=confirmed,
            groups=groups,
            default_mode=default_mode,
        )
        return await self.calls.call(proposal, {} if arguments is None else arguments, settings)

    @check_types
    async def allow(self, server_id: str, tool: str, *, principal: str = LOCAL) -> None:
        """Remember an approval of a tool, as it is defined now.

        Args:
            server_id: The server.
            tool: The tool's own name at the server.
            principal: The identity whose calls are approved.

        Raises:
            UnknownTool: The tool's definition is not known.
            CallDenied: The tool is quarantined.
        """
        await self.permission.allow_always(self.propose(server_id, tool, None, principal, confirmed=True))
        audit, details = self.parts.records.audit, {"tool": tool}
        audit.record_event("always allow", principal=principal, server=server_id, details=details)

    @check_types
    def allow_for_session(self, server_id: str, tool: str, *, principal: str = LOCAL) -> None:
        """Like `allow`, for as long as this host is open. Denied tools stay denied."""
        self.permission.allow_for_session(self.propose(server_id, tool, None, principal, confirmed=True))

    def propose(  # noqa: PLR0913 - the parts of a proposal
        self,
        server_id: str,
        tool: str,
        bundle_filter: BundleFilter | None,
        principal: str,
        *,
        confirmed: bool = False,
        groups: frozenset[str] = frozenset(),
        default_mode: ApprovalMode | None = None,
    ) -> ProposedCall:
        """Describe a call for a decision of policy, without making it. The parameters are those of `call`."""
        # `check_types` would cost every call some microseconds.
        check_proposal(Host.call, server_id, tool, bundle_filter, principal, groups, default_mode)
        return ProposedCall(
            managed=self._access.use(server_id),
            tool=tool,
            bundle_filter=bundle_filter,
            principal=principal,
            confirmed=confirmed,
            groups=groups,
            default_mode=default_mode,
        )

    @check_types
    def events(self, *, calls: bool = True) -> EventStream:
        """Events from now on: `async for event in host.events(): …`.

        The host of a gateway's client has those of its own connections and of shared servers.

        Args:
            calls: Include the events of single calls.
        """
        return self._access.events(calls=calls)

    @property
    def tracer(self) -> Tracer | None:
        """The tracer that records requests to servers, if there is one."""
        return self._transports.tracer

    async def _take(self, servers: Iterable[LoadedServer]) -> None:
        taken = await self.servers.take(servers)
        eager = [managed for managed in taken if managed.connection is not None and not managed.config.lazy]
        if eager:
            self._tasks.start_soon(self.connect, *(managed.server.server_id for managed in eager))
