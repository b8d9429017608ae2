"""The host: owns every connection, and knows the order things happen in."""

import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.naming import Scheme
from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import Listing, ToolEntry, sanitize_entry
from fairlead.config.argument_types import check_types, require_types, wrong_type
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.config.document.files import reserve_standard_descriptors
from fairlead.config.load import LoadedConfig, LoadedServer, load_config, program_server
from fairlead.config.models import ApprovalMode, Server
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL, GroupedPrincipal
from fairlead.config.secrets.log_filter import mask_logs
from fairlead.connection.connection import Connection
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.tracing import Tracer
from fairlead.connection.transport.factory import TransportContext
from fairlead.connection.transport.request_headers import AuthProvider
from fairlead.errors import ConnectFailed, ConsentRequired, FairleadError, StoreError
from fairlead.events import Event, McpToolsChanged
from fairlead.host.background import run_off_loop, size_of_tools, task_owner
from fairlead.host.call import (
    CallRunner,
    OnProgress,
    call_options,
    listing_of,
    require_approved,
    require_consent,
)
from fairlead.host.catalogs import Catalogs
from fairlead.host.events import EventBus, Subscriber
from fairlead.host.extensions import CustomCapabilities, ExtensionMessages
from fairlead.host.logins import Logins
from fairlead.host.managed_server import HumanSide, ManagedServer, ServerStatus
from fairlead.host.managed_servers import ManagedServers
from fairlead.host.model.bundles import Selection, select
from fairlead.host.model.meta_tools import RESERVED
from fairlead.host.model.toolset import Toolset
from fairlead.host.offers.listing import KnownOffers
from fairlead.host.offers.prompts import Prompts
from fairlead.host.offers.resources import Resources
from fairlead.host.offers.skills import Skills
from fairlead.host.offers.tasks import Tasks
from fairlead.host.operator import UNATTENDED, Operator
from fairlead.host.permission import CallPermission, ProposedCall, require_callable
from fairlead.host.records import HostRecords, open_records
from fairlead.host.startup import Startups
from fairlead.host.telemetry import programs_tracer
from fairlead.net.http import open_client
from fairlead.policy.approvals import Approvals
from fairlead.policy.decision import BundleFilter
from fairlead.policy.pins import UntrustedPins

if TYPE_CHECKING:
    from fairlead.servers.framework.server import McpServer


# Here as well as in `Host.open`: an event loop is usually made after this import and before that call.
reserve_standard_descriptors()

_APPROVAL_MODES = get_args(ApprovalMode)
_CONFIG_HINT = "pass a document as `overrides`, the path of a file as `path`, or what `load_config` returns"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerInfo:
    """Who a server says it is, and the protocol version it speaks with us."""

    name: str | None
    version: str
    instructions: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayBacking:
    """How a host stands behind something that serves many: its tools' names."""

    names: Scheme = "gateway"


class Host:
    """Many servers behind one object. Open it with `async with Host.open() as host:`."""

    def __init__(  # noqa: PLR0913 - what a host is made of
        self,
        config: LoadedConfig,
        tasks: TaskGroup,
        around: TransportContext,
        records: HostRecords,
        person: HumanSide,
        logins: Logins,
        names: Scheme | None = None,
    ) -> None:
        self._config = config
        self._names: Scheme | None = names
        self._catalogs = Catalogs(names or config.config.tools.names, RESERVED, self)
        self._tasks = tasks
        self._around = around
        self._records = records
        self._person = person
        self.store = records.store
        self._bus = self._new_bus()
        self._startups = Startups(tasks, self._bus.emit)
        self._members = self._new_members()
        self.docs_allow: tuple[str, ...] = ()
        """The sites that the built-in documentation reader may read."""
        self.resources = Resources(self)
        self.prompts = Prompts(self)
        self.known_offers = KnownOffers()
        self.tasks = Tasks(self)
        self.custom = ExtensionMessages(self)
        self.approvals = Approvals(records.store)
        """What people answered about calls, for as long as they wanted it to hold."""
        self._permission = CallPermission(person.operator, self.approvals)
        self.logins = logins
        """Who this host is to which server."""
        self.artifacts = records.artifacts
        """What did not fit into results."""
        self._audit = records.audit
        self._calls = CallRunner(records, self._permission, self._bus)
        self._closed = False

    def _new_bus(self) -> EventBus:
        return EventBus()

    def _new_members(self) -> ManagedServers:
        failure = self._records.store_error
        no_pins = UntrustedPins.because(failure) if failure is not None else None
        return ManagedServers(self._tasks, self._around, self.store, self._person, self._bus, no_pins=no_pins)

    @classmethod
    @check_types(hints={"config": _CONFIG_HINT})
    @asynccontextmanager
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
        auth_providers: Mapping[str, AuthProvider] | None = None,
        backing: GatewayBacking | None = None,
        subscriber: Subscriber | None = None,
        tracer: Tracer | None = None,
    ) -> AsyncGenerator["Host"]:
        """Run a host for the length of the block, and leave nothing behind.

        `servers` are servers of your own that run in this process, by id, beside the configured ones.
        `operator` answers for a person when a server asks, `capabilities` are declared to every server,
        `auth_providers` are what entries mean by their `auth_provider_id`, `backing` says
        how it stands behind something that serves many, `subscriber` hears what happens from the very start,
        and `tracer` records what servers are asked: where none is given, the program's own if it has set one.
        The block may end in another task than it began in.
        Servers start on first use, except those that say `lazy: false`. A `required` server that is not ready
        fails the start; others never do.
        """
        _require_sound(operator, servers or {})
        reserve_standard_descriptors()
        env = os.environ if env is None else env
        mask_logs(gate.log_line)
        loaded = config or load_config(path, overrides, env, cwd)
        async with AsyncExitStack() as stack:
            records = await open_records(stack, loaded.config, env)
            http = _http_client(stack)
            guardian = Guardian()
            stack.callback(guardian.close)
            around = TransportContext(
                env=env,
                guardian=guardian,
                http=http,
                logs=state_folder(env) / "logs",
                cache=state_folder(env) / "cache",
                docs_allow=lambda: host.docs_allow,
                programs=servers or {},
                headers_for=lambda server, resolved: host.logins.headers_for(server, resolved),
                require_approved=lambda key: host.require_approved(key),
                tracer=tracer or programs_tracer(),
            )
            async with task_owner("Host") as tasks:
                logins = Logins(
                    env,
                    records,
                    operator=operator,
                    providers=auth_providers or {},
                    http=http,
                    tasks=tasks,
                )
                person = HumanSide(
                    operator=operator,
                    capabilities=capabilities or CustomCapabilities(),
                    log_in=logins.wanted,
                    shared=backing is not None,
                )
                names = backing.names if backing else None
                host = cls(loaded, tasks, around, records, person, logins, names)
                tasks.start_soon(records.audit.rotate)
                if subscriber is not None:
                    host._bus.subscribe(subscriber)
                try:
                    await host._begin(loaded)
                    yield host
                finally:
                    with anyio.CancelScope(shield=True):
                        await host.aclose()

    # Servers.

    def login_hint(self, server_id: str) -> str:
        """How the one that this host acts for logs in to a server."""
        return f"run `{command_line('login', server_id)}`"

    def status(self) -> list[ServerStatus]:
        """Where every server stands. Contacts nobody."""
        return [member.status() for member in self._members]

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """Where a server stands over the connections of single clients that stand beside this host."""
        return self._members.statuses_besides(server_id)

    @check_types
    async def connect(self, *server_ids: str) -> dict[str, FairleadError]:
        """Connect servers, all at once, and list what they offer. Returns what went wrong, by server."""
        failures: dict[str, FairleadError] = {}
        members: list[ManagedServer] = []
        for server_id in server_ids:
            try:
                members.append(self._require_member(server_id))
            except FairleadError as exc:
                failures[server_id] = exc
        return failures | await self._startups.start(members, partial(self._listing, fresh=True))

    @check_types
    def retry(self, *server_ids: str) -> None:
        """Try servers that failed again, beside; one that failed often and lately is left alone."""
        for server_id in server_ids:
            connection = self._require_member(server_id).connection
            if connection is not None and not connection.backoff.is_open:
                self._tasks.start_soon(self.connect, server_id)

    async def connect_all(self) -> dict[str, FairleadError]:
        """Connect every server that is switched on."""
        enabled = (member.server for member in self._members if member.server.enabled)
        return await self.connect(*(server.server_id for server in enabled))

    @check_types
    async def require(self, server_ids: Iterable[str], *, seconds: float = 60.0) -> None:
        """Make sure that servers are ready, or raise what is wrong with the first that is not."""
        failures: dict[str, FairleadError] = {}
        wanted = list(server_ids)
        with anyio.move_on_after(seconds) as scope:
            failures = await self.connect(*wanted)
        if scope.cancelled_caught:
            late = [name for name in wanted if self._require_member(name).status().state != "ready"]
            raise ConnectFailed(late[0] if late else wanted[0], f"not ready after {seconds:g} s")
        for failure in failures.values():
            raise failure

    @check_types
    async def close(self, server_id: str) -> None:
        """End all connections to one server, from any task, in bounded time. The next use starts it again."""
        await self._members.end(self._member(server_id).server.server_id)

    async def aclose(self) -> None:
        """End every connection, in bounded time, and start none any more."""
        self._closed = True
        await self._members.close()
        self._bus.close()

    @check_types
    async def reload(self, config: LoadedConfig) -> None:
        """Take over a configuration. Only what changed restarts, and its calls under way finish first."""
        self.docs_allow = config.config.docs.allow
        self._audit.settings = config.config.audit
        for server_id, server in config.servers.items():
            before = self._config.servers.get(server_id)
            if before is not None and before.entry != server.entry:
                self.approvals.forget_session(server_id)  # what its entry says now is the newer word
        self._config = config
        self._catalogs = Catalogs(self._names or config.config.tools.names, RESERVED, self)
        own = {name: program_server(name, Path(), config.rules) for name in self._around.programs}
        wanted = config.servers | own
        self._members.keep_only(wanted)
        await self._take(wanted.values())
        self._permission.decide_again()

    @check_types
    async def add(self, server: LoadedServer) -> None:
        """Add a server, or put another definition in its place."""
        await self._take([server])

    @check_types
    def remove(self, server_id: str) -> None:
        """Take a server out. Its calls under way finish first."""
        self._members.drop(self._member(server_id).server.server_id)

    @check_types
    def configured(self, server_id: str) -> Server:
        """How a server is configured. Raises where that is not sound."""
        return self._require_member(server_id).config

    def is_untrusted(self, server_id: str) -> bool:
        """Is what this server says data, and never instructions?"""
        return self._require_member(server_id).config.trust != "trusted"

    def is_trusted(self, server_id: str) -> bool:
        """The same the other way round, and no for a server that is unknown or not configured soundly."""
        try:
            return not self.is_untrusted(server_id)
        except FairleadError:
            return False

    # Tools.

    @check_types
    def listing(self, server_id: str) -> Listing | None:
        """What a server offers, as far as anybody knows. Contacts nobody."""
        return self._require_member(server_id).listing

    @check_types
    def toolset(
        self, bundle: str | None = None, *, principal: str = LOCAL, groups: frozenset[str] = frozenset()
    ) -> Toolset:
        """The tools of a bundle, or of everything: to hand to a model, to search, and to call by name.

        Rules that name the principal, or one of its `groups`, hide tools from it.
        """
        return Toolset(
            self, select(self._config, bundle, GroupedPrincipal(principal, groups)), principal, groups
        )

    @property
    def tools(self) -> Toolset:
        """The tools of every server that is switched on."""
        return self.toolset()

    def catalog(self, selection: Selection) -> Catalog:
        """The tools that are known now, as a selection has them. Contacts nobody."""
        return self._catalogs.current(selection, self._members, self._members.generation)

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being made is there. Contacts no server.

        With `only_first`, a catalog that replaces an earlier one is not waited for.
        """
        self.catalog(selection)
        await self._catalogs.wait(selection, only_first=only_first)

    @property
    def is_open(self) -> bool:
        """Can something still be started beside? For large catalogs."""
        return not self._closed

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside for as long as the host is open. For large catalogs."""
        self._tasks.start_soon(work)

    def built(self, members: Sequence[ManagedServer]) -> None:
        """Say that servers' tools are there now, or others. For large catalogs."""
        for member in members:
            listing = member.listing
            self._bus.emit(
                McpToolsChanged(server_id=member.server.server_id, tools=len(listing.tools) if listing else 0)
            )

    @check_types
    async def tools_of(self, server_id: str) -> tuple[ToolEntry, ...]:
        """A server's tools: at once where they are known, else it is connected and asked."""
        listing = await self.offers(server_id)
        if listing.is_partial and not listing.tools:
            listing = await self.list_now(server_id)  # which raises why there are none
        tools = listing.tools

        def show() -> tuple[ToolEntry, ...]:
            return tuple(map(sanitize_entry, tools))  # anew: secrets become known meanwhile

        return await run_off_loop(show, size_of_tools(tools))

    @check_types
    async def list_now(self, server_id: str) -> Listing:
        """What a server offers, as it says in this run. It is connected if it is not."""
        return await self._listing(self._require_member(server_id), fresh=True)

    @check_types
    async def offers(self, server_id: str) -> Listing:
        """What a server offers: at once where that is known, else it is connected and asked."""
        member = self._require_member(server_id)
        member.refresh_if_stale()
        return await self._listing(member)

    @check_types
    async def reach(self, server_id: str) -> Connection:
        """A server's connection, open or not, for requests that go to it and nowhere else."""
        member = self._member(server_id)
        connection = member.live()
        await require_consent(member, self.store)
        return connection

    async def require_approved(self, key: ConsentKey) -> None:
        """Raise unless the user approved this very start of a project's server."""
        member = self._require_member(key.server_id)
        try:
            await require_approved(key, self.store)
        except ConsentRequired:
            member.set_approved(False)
            raise
        member.set_approved(True)

    async def notice_consents(self) -> None:
        """Find out whether servers that wait for the user's consent have been approved meanwhile."""
        for member in self._members:
            if member.awaits_consent:
                with suppress(ConsentRequired, StoreError):
                    await require_consent(member, self.store)

    @check_types
    def skills(self, server_id: str) -> Skills:
        """What a server can teach a model, where it has such skills."""
        return Skills(self, server_id)

    @check_types
    async def describe(self, server_id: str) -> ServerInfo:
        """Who a server says it is. It is connected if it is not."""
        connection = await self.reach(server_id)
        session = await connection.ready()
        listing = await self.offers(server_id)  # which has no instructions that nobody has looked at
        return ServerInfo(
            name=connection.vitals.server, version=session.version, instructions=listing.instructions
        )

    async def call(  # noqa: PLR0913 - the parts of one call
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress | None = None,
        request_timeout_ms: int | None = None,
        reviewed: bool = False,
        bundle_filter: BundleFilter | None = None,
        principal: str = LOCAL,
        whole: bool = False,
        groups: frozenset[str] = frozenset(),
        default: ApprovalMode | None = None,
        max_structured_bytes: int | None = None,
    ) -> ToolResult:
        """Call a tool. `reviewed` says that a person looked at this very call and wants it; `within` is what
        a bundle takes from the server; `principal` is who it is made for. The result is as large as a model
        may be handed, and the rest is kept in `artifacts`, unless you want it `whole`. `groups` are those
        that the principal is a member of, and `default` is the approval mode of tools that no rule and no
        other mode is about, for a surface that is configured with one.
        Structured content is part of what a model may be handed, or has a limit of its own with
        `max_structured_bytes`.

        Where the configuration says `ask`, the operator's person is asked first. Raises `CallDenied` where
        policy or that person says no (`ApprovalRequired` where nobody can be asked), `UnknownTool` where the
        tool's definition was rejected, `ArgumentsInvalid` where the arguments do not fit it, and `CallFailed`
        where no result came, which says in `delivery` whether the server may have carried it out. A tool that
        failed returns a result with `is_error`.
        """
        proposal = self._proposal(
            server_id, tool, bundle_filter, principal, reviewed=reviewed, groups=groups, default=default
        )
        options = call_options(on_progress, request_timeout_ms, max_structured_bytes, whole=whole)
        return await self._calls.call(proposal, {} if arguments is None else arguments, options)

    def require_callable(
        self,
        server_id: str,
        tool: str,
        bundle_filter: BundleFilter | None,
        caller: GroupedPrincipal,
        default: ApprovalMode | None,
    ) -> None:
        """Raise what every call of a tool is refused with (`CallDenied`, `UnknownTool`), if it is."""
        proposal = self._proposal(
            server_id,
            tool,
            bundle_filter,
            caller.principal,
            reviewed=False,
            groups=caller.groups,
            default=default,
        )
        self._permission.refuse_hopeless(proposal)
        require_callable(proposal)

    @check_types
    async def allow(self, server_id: str, tool: str, *, principal: str = LOCAL) -> None:
        """Remember a person's yes: this tool, as it is defined now, is not asked about again."""
        await self._permission.allow_always(self._proposal(server_id, tool, None, principal, reviewed=True))

    @check_types
    def allow_for_session(self, server_id: str, tool: str, *, principal: str = LOCAL) -> None:
        """The same for as long as this host is open. What is denied stays denied."""
        proposal = self._proposal(server_id, tool, None, principal, reviewed=True)
        self._permission.allow_for_session(proposal)

    async def begin_call(
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        reviewed: bool = False,
        principal: str = LOCAL,
        groups: frozenset[str] = frozenset(),
    ) -> msgspec.Raw:
        """Call a tool, in the background if its server can, and return what comes first, for `host.tasks`."""
        proposal = self._proposal(server_id, tool, None, principal, reviewed=reviewed, groups=groups)
        return await self._calls.begin(proposal, {} if arguments is None else arguments)

    @check_types
    async def delivered(
        self, server_id: str, tool: str, raw: msgspec.Raw, *, principal: str = LOCAL
    ) -> ToolResult:
        """What a call that went on in the background brought, as it may be handed on."""
        proposal = self._proposal(server_id, tool, None, principal, reviewed=False)
        return await self._calls.deliver(raw, proposal)

    @check_types
    @asynccontextmanager
    async def events(self, *, calls: bool = True) -> AsyncGenerator[AsyncIterator[Event]]:
        """What happens in this host from now on: `async with host.events() as events: async for …`.

        Who does not want to be woken for every single call leaves out `calls`.
        """
        subscriber = self._bus.subscribe(Subscriber(hears_calls=calls))
        try:
            yield subscriber
        finally:
            self._bus.unsubscribe(subscriber)

    def _attach(self, subscriber: Subscriber) -> list[tuple[EventBus, Subscriber]]:
        """Have a subscriber of a host beside this one hear what happens here. Returns what to undo."""
        return [(self._bus, self._bus.subscribe(subscriber))]

    @contextmanager
    def listening(self, subscriber: Subscriber) -> Generator[None]:
        """Have a subscriber of your own hear what happens, at once, for the length of the block."""
        self._bus.subscribe(subscriber)
        try:
            yield
        finally:
            self._bus.unsubscribe(subscriber)

    @property
    def tracer(self) -> Tracer | None:
        """Who records what is asked, if anybody does."""
        return self._around.tracer

    @property
    def members(self) -> Iterable[ManagedServer]:
        """Its servers, as they stand."""
        return self._members

    # How it is done.

    async def _begin(self, loaded: LoadedConfig) -> None:
        await self.reload(loaded)
        required = [
            member.server.server_id
            for member in self._members
            if member.server.enabled and member.server.entry.get("required") is True
        ]
        if required:
            await self.require(required)

    async def _take(self, servers: Iterable[LoadedServer]) -> None:
        taken = await self._members.take(servers)
        eager = [member for member in taken if member.connection is not None and not member.config.lazy]
        if eager:
            self._tasks.start_soon(self.connect, *(member.server.server_id for member in eager))

    def _member(self, server_id: str) -> ManagedServer:
        if self._closed:
            raise ConnectFailed(server_id, "the host is closed")
        return self._members[server_id]

    def _require_member(self, server_id: str) -> ManagedServer:
        if self._closed:
            raise ConnectFailed(server_id, "the host is closed")
        return self._members.known(server_id)

    async def _listing(self, member: ManagedServer, *, fresh: bool = False) -> Listing:
        return await listing_of(member, self.store, fresh=fresh)

    def _proposal(  # noqa: PLR0913 - the parts of a proposal
        self,
        server_id: str,
        tool: str,
        bundle_filter: BundleFilter | None,
        principal: str,
        *,
        reviewed: bool,
        groups: frozenset[str] = frozenset(),
        default: ApprovalMode | None = None,
    ) -> ProposedCall:
        # `check_types` would cost every call some microseconds.
        if not (
            type(server_id) is type(tool) is type(principal) is str
            and type(groups) is frozenset
            and (bundle_filter is None or type(bundle_filter) is BundleFilter)
            and (default is None or default in _APPROVAL_MODES)
        ):
            require_types(
                Host.call,
                server_id=server_id,
                tool=tool,
                principal=principal,
                groups=groups,
                bundle_filter=bundle_filter,
                default=default,
            )
        member = self._member(server_id)
        if member.connection is None:
            member.live()  # raises what is wrong with it, rather than what policy would say
        return ProposedCall(
            member=member,
            tool=tool,
            bundle_filter=bundle_filter,
            principal=principal,
            reviewed=reviewed,
            groups=groups,
            default=default,
        )


def _require_sound(operator: object, servers: Mapping[str, object]) -> None:
    """Raise `WrongType` for an operator or a server of the program's own that is none."""
    if not isinstance(getattr(operator, "abilities", None), frozenset):
        hint = "pass `Callbacks(on_approve=…)`, or an object with all methods of `Operator`"
        raise wrong_type(Host.open, "operator", Operator, operator, hint=hint)
    for server_id, server in servers.items():
        if not callable(getattr(server, "sdk_server", None)):
            hint = (
                f"`servers` are `McpServer`s by id; configure others as `servers.{server_id}` in `overrides`"
            )
            raise wrong_type(Host.open, f"servers[{server_id!r}]", "McpServer", server, hint=hint)


def _http_client(stack: AsyncExitStack) -> Callable[[], aiohttp.ClientSession]:
    """The HTTP client all servers share, opened when the first needs it."""
    clients: list[aiohttp.ClientSession] = []

    def client() -> aiohttp.ClientSession:
        if not clients:
            clients.append(open_client())
            stack.push_async_callback(clients[0].close)
        return clients[0]

    return client
