"""The dashboard's data and actions, over one host."""

import hashlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from fairlead.actions.approvals import ApprovalQueue, PendingCall, answer_call
from fairlead.actions.config_edits import edit_choices
from fairlead.actions.context import (
    ActionContext,
    Notice,
    RunningConfiguration,
    Surface,
    running_context,
)
from fairlead.actions.explain import explain_live_tools
from fairlead.actions.logins import own_way_in, require_ready
from fairlead.actions.logs import server_log
from fairlead.actions.replicas import ReplicaState, list_replicas
from fairlead.actions.review import ServerReview, by_risk, live_review, record_review
from fairlead.actions.switch import restart_server, switch_server
from fairlead.catalog.catalog import Catalog
from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.config.edit_scope import EditTarget
from fairlead.config.load import LoadedServer
from fairlead.config.models import Bundle, RemoteServer
from fairlead.config.principal import LOCAL
from fairlead.connection.process.stderr import log_tail
from fairlead.errors import ConfigError, FairleadError, ListFailed, UnknownServer, UnknownTool
from fairlead.events import Event, McpToolsChanged
from fairlead.gateway.client_session import SessionInfo
from fairlead.gateway.cluster.cluster import Cluster
from fairlead.gateway.cluster.replicas import ReplicaDirectory
from fairlead.host.events import Subscriber
from fairlead.host.host import Host
from fairlead.host.model.bundles import Selection
from fairlead.host.model.catalogs import cost_of, is_direct, token_cost
from fairlead.host.model.explain import ToolExplanation
from fairlead.host.operator import ApprovalAnswer
from fairlead.host.server_status import ServerStatus
from fairlead.policy.findings import has_findings
from fairlead.policy.review import REVIEW_FIELDS, ReviewDecision, instructions_diff
from fairlead.web.config_panel import ConfigPanel
from fairlead.web.live import Activity, ChangeSignal
from fairlead.web.logins import DashboardLogins
from fairlead.web.panel import (
    MOST_EXPLAINED,
    ListedTool,
    NoQueue,
    OpenReviews,
    PanelReview,
    PanelVerdict,
    PendingLogin,
    ServerDetails,
    ToolDetails,
    ToolPage,
)
from fairlead.web.trials import ToolTrial, ToolTrials
from fairlead.web.watch import Watch

MAX_HITS: Final = 200
_PREPARED_AT_ONCE: Final = 200
"""Tools whose definitions are looked through before the next pause."""

logger = logging.getLogger(__name__)


class Connections(Protocol):
    """Connections to servers over which the dashboard acts: of a host, or of all sessions of a gateway."""

    def status(self) -> Sequence[ServerStatus]:
        """State of every server."""
        ...

    async def refresh(self) -> None:
        """Read the states that other processes of the gateway have, if there are any."""
        ...

    async def close_server(self, server_id: str) -> None:
        """End every connection to a server."""
        ...

    def host_of(self, principal: str) -> AbstractAsyncContextManager[Host]:
        """Open the host that the calls of a principal go through, for the length of the block."""
        ...


class _HostConnections:
    """The connections of a host that has no gateway in front."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.status = host.status
        self.close_server = host.close

    async def refresh(self) -> None:
        """Do nothing: there is one process."""

    @asynccontextmanager
    async def host_of(self, principal: str) -> AsyncGenerator[Host]:
        yield self._host


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    """State that exists only while the panel runs."""

    tasks: TaskGroup
    logins: DashboardLogins


class _EventCounter(Subscriber):
    """Hears what happens in a host at once, as part of every call: no task has to wake up for it."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        super().__init__()
        self._note = note

    def put(self, event: Event) -> None:
        """Count an event."""
        self._note(event)


class HostPanel:
    """The operations of pages. What cannot be done raises a `FairleadError`.

    Its block, `running`, is to be left before that of the HTTP server.
    """

    def __init__(  # noqa: PLR0913 - what the pages show, each by name
        self,
        host: Host,
        configuration: RunningConfiguration,
        *,
        env: Mapping[str, str],
        queue: ApprovalQueue | None = None,
        sessions: Callable[[], Sequence[SessionInfo]] = tuple,
        connections: Connections | None = None,
        cluster: Cluster | None = None,
        directory: ReplicaDirectory | None = None,
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._env = env
        self._queue = queue or NoQueue()
        self._connections: Connections = connections or _HostConnections(host)
        self.sessions = sessions
        """All clients of the gateway."""
        self.cluster = cluster
        self.is_stopping = False
        """Whether this process is about to stop."""
        """The replicas that act as one gateway with this one, if there may be any."""
        self.directory = directory
        """The processes of the gateway: replicas, or workers; None where there is one alone."""
        self._changes = ChangeSignal()
        self._listed = anyio.Event()
        """Set when a server lists tools anew."""
        self._running: _Running | None = None
        self.activity = Activity()
        self.edits = ConfigPanel(self._actions, self._connect_soon, self.note_change)
        """Edits of configuration files."""
        self.watch = Watch(host, configuration, env, self.activity)
        """Calls, records and logs."""
        self.trials = ToolTrials(self._connections.host_of, self.note_change)
        """Calls that visitors make from forms."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow the host's events for the length of the block. At its end open pages stop waiting."""
        async with anyio.create_task_group() as tasks:
            self._running = _Running(tasks=tasks, logins=DashboardLogins(self._host, self._changes, tasks))
            tasks.start_soon(self.watch.warm_up)
            tasks.start_soon(self._prepare_reviews)
            try:
                with (
                    self._host.bus.listening(_EventCounter(self._note_event)),
                    self.watch.log.keep(),
                ):
                    yield
            finally:
                self._running = None
                self._changes.close()
                tasks.cancel_scope.cancel()

    def _note_event(self, event: Event) -> None:
        self.activity.note(event)
        self._changes.note()
        if isinstance(event, McpToolsChanged):
            self._listed.set()
            self._listed = anyio.Event()

    def note_change(self) -> None:
        """Update open pages after a change without an event of the host."""
        self._changes.note()

    def changes(self, idle_seconds: float) -> AsyncGenerator[bool]:
        """True whenever something changed, False after each `idle_seconds` in which nothing did."""
        return self._changes.watch(idle_seconds)

    @property
    def is_ready(self) -> bool:
        """Whether the host is open, every required server is ready, and this replica is in its gateway.

        One that is about to stop is not, nor one whose store does not answer.
        """
        is_replica = self.cluster is None or self.cluster.is_ready
        return self._running is not None and not self.is_stopping and is_replica and self.has_required()

    def has_required(self) -> bool:
        """Whether every server is ready that is required."""
        servers = self._configuration.loaded.servers
        required = {name for name, server in servers.items() if server.config and server.config.required}
        return not required or all(
            status.state == "ready"
            for status in self.status()
            if status.enabled and status.server_id in required
        )

    def replicas(self) -> Sequence[ReplicaState]:
        """The processes that act as one gateway, this one among them; none where there is one alone."""
        return list_replicas(self.directory)

    # Servers.

    def status(self) -> Sequence[ServerStatus]:
        """State of every server, over all connections to it."""
        return self._connections.status()

    async def refresh(self) -> None:
        """Read the states that other processes of the gateway have, before they are shown."""
        await self._connections.refresh()

    async def details(self, server_id: str) -> ServerDetails:
        """Details of one server."""
        self._host.listing(server_id)  # raises where there is none
        status = next(each for each in self.status() if each.server_id == server_id)
        server = self._configuration.loaded.servers.get(server_id)
        config = server.config if server else None
        tools: Sequence[ToolExplanation] = ()
        if config is not None:
            loaded, selection = self._configuration.loaded, self._selection
            tools = await explain_live_tools(self._host, loaded, server_id, selection, most=MOST_EXPLAINED)
        return ServerDetails(
            status=status,
            target=server.target if server else "part of this program",
            description=config.description if config else None,
            log=await to_thread.run_sync(log_tail, server_log(self._env, server_id)),
            can_switch=server is not None,
            files=self._files(server, ("enabled",)) if server else (),
            has_login=isinstance(config, RemoteServer) and own_way_in(config) is None,
            tools=tools,
        )

    @property
    def _selection(self) -> Selection:
        """The tools as the local user's agents get them over the gateway."""
        settings = self._configuration.loaded.config.gateway
        return replace(self._host.tools.selection, approval=settings.approval)

    async def restart(self, server_id: str, *, principal: str) -> Sequence[Notice]:
        """End all connections to a server, and connect it again in the background."""
        close, tasks = self._connections.close_server, self._now().tasks
        actions = self._actions(principal)
        return _log_notices(await restart_server(actions, self._host, server_id, close=close, tasks=tasks))

    async def switch(
        self, server_id: str, *, on: bool, principal: str, scope: str | None = None
    ) -> Sequence[Notice]:
        """Enable or disable a server in its file, or in that of a scope, and have the host follow."""
        switch = partial(switch_server, self._actions(principal), server_id, on=on, scope=scope)
        switched = await to_thread.run_sync(switch)
        _log_notices(switched.edit.notices)
        switched.require_effect()
        self.note_change()
        return switched.edit.notices

    # Logins.

    def login(self, server_id: str, owner: str = LOCAL) -> PendingLogin | None:
        """The login of a principal that was begun here last, if any."""
        return self._running.logins.latest(server_id, owner) if self._running else None

    async def begin_login(self, server_id: str, owner: str = LOCAL, *, principal: str) -> None:
        """Begin to log in, and wait until there is a page to open.

        Args:
            server_id: The server.
            owner: The principal that the login is for.
            principal: Who begins it, for the audit record.

        Raises:
            ConfigError: A login would not be used.
            ConsentRequired: The server is a project's, and the user has not let it start.
        """
        server = self._server(server_id)
        await to_thread.run_sync(require_ready, self._configuration.loaded, server)
        await self._now().logins.begin(server, self._actions(principal), owner)

    def finish_login(self, server_id: str, address: str, owner: str = LOCAL) -> str | None:
        """Complete a login with the URL that the browser was redirected to."""
        return self._now().logins.finish(server_id, address, owner)

    # Tools.

    async def tools(
        self, query: str, server_id: str | None, *, start: int, limit: int, sort: str = ""
    ) -> ToolPage:
        """Tools that match a query, the best first; without a query, all in order.

        `sort` orders them by `name`, `server` or `tokens` (the most first) instead.
        """
        selection = self._selection
        # In a thread, because the first search in a large catalog makes its index.
        some = partial(_tool_page, self._host.catalog(selection), selection, query, server_id, sort)
        return await to_thread.run_sync(partial(some, slice(start, start + limit)))

    def describe_tool(self, server_id: str, tool: str) -> str | None:
        """Description of a tool in the words of its server; None where it is not known."""
        try:
            entry = self._host.servers.get_known(server_id).entry(tool)
        except UnknownServer:
            return None
        return clean_tool(entry).entry.description if entry else None

    async def tool(self, server_id: str, name: str) -> ToolDetails:
        """One tool of a server, by its own name.

        Raises:
            UnknownServer: There is no such server.
            UnknownTool: The server has no such tool, or it is not usable before it is reviewed.
        """
        listing = self._host.listing(server_id)
        entry = next((each for each in listing.tools if each.key.tool == name), None) if listing else None
        if entry is None:
            hint = "review it first, if it is new or changed; else connect the server to list its tools"
            raise UnknownTool(f"`{server_id}` offers no tool `{name}`", hint=hint)
        shown = clean_tool(entry).entry
        definition = shown.read()
        offered = self._host.catalog(self._selection).of(entry.key)
        loaded, selection = self._configuration.loaded, self._selection
        explained = await explain_live_tools(self._host, loaded, server_id, selection, only=name)
        return ToolDetails(
            entry=shown,
            schema=definition.get("inputSchema"),
            output_schema=definition.get("outputSchema"),
            tokens=token_cost(entry),
            agent_name=offered.name if offered else None,
            explanation=next(iter(explained), None),
        )

    async def try_tool(self, trial: ToolTrial) -> None:
        """Make a call from a form, and wait a moment for its end."""
        self._host.listing(trial.server_id)  # raises where there is no such server
        trial.default_mode = self._selection.approval
        await self.trials.begin(trial, self._now().tasks)

    def held_back(self) -> Mapping[str, int]:
        """Number of tools of each server that are not offered before a review."""
        hidden = self._host.tools.catalog.hidden
        return Counter(key.server_id for key, why in hidden.items() if why.absence == "quarantined")

    def unreviewed(self) -> Mapping[str, str]:
        """Reasons for a review of a server, by server."""
        notes = {managed.server.server_id: managed.review_notes() for managed in self._host.servers}
        return {server_id: said[0] for server_id, said in notes.items() if said}

    def unapproved(self) -> Sequence[str]:
        """Servers of a project that do not start before the user approves their entries."""
        waiting = [member.server for member in self._host.servers if member.awaits_consent]
        return [server.server_id for server in waiting if server.enabled]

    async def review(self, server_id: str) -> PanelReview:
        """Review of a server as it last listed its tools."""
        server = self._server(server_id)
        found = await self._find_review(server)
        if server.config is None or found is None:
            return PanelReview(server_id=server_id, problem="it has not been listed yet")
        is_withheld = found.withheld is not None
        return PanelReview(
            server_id=server_id,
            tools=found.tools,
            files=self._files(server, REVIEW_FIELDS),
            instructions=tuple(instructions_diff(found.listing, found.pins)) if is_withheld else (),
            instructions_digest=_digest(found.listing.instructions) if is_withheld else "",
            are_refused=found.withheld == "refused",
            unread=found.unread,
        )

    async def reviews(self) -> OpenReviews:
        """Open reviews of all servers that were listed, the riskiest tools first."""
        found: list[ServerReview] = []
        for server in self._configuration.loaded.servers.values():
            review = await self._find_review(server) if server.usable else None
            if review is not None:
                found.append(review)
        return await to_thread.run_sync(_open_reviews, found)

    async def _prepare_reviews(self) -> None:
        """Look through listed definitions before anyone reviews them: the first page need not wait for it."""
        while True:
            listed = self._listed
            for managed in [*self._host.servers]:
                tools = managed.snapshot.listing.tools if managed.snapshot else ()
                for start in range(0, len(tools), _PREPARED_AT_ONCE):  # a thread cannot be stopped
                    some = tools[start : start + _PREPARED_AT_ONCE]
                    await to_thread.run_sync(lambda some=some: [*map(has_findings, some)])
            await listed.wait()

    def bundles(self) -> dict[str, Bundle]:
        """The bundles of the configuration."""
        return dict(self._configuration.loaded.config.bundles)

    def server_ids(self) -> list[str]:
        """The ids of all configured servers."""
        return list(self._configuration.loaded.servers)

    async def tool_costs(self) -> Mapping[str, int]:
        """Approximate number of tokens of each server's tool definitions."""
        tools = self._host.catalog(self._selection).tools

        def add_up() -> Mapping[str, int]:
            costs: Counter[str] = Counter()
            for tool in tools:
                costs[tool.key.server_id] += token_cost(tool.entry)
            return costs

        return await to_thread.run_sync(add_up)  # the first time all definitions are read

    async def decide(
        self, server_id: str, verdict: PanelVerdict, scope: str | None = None, *, principal: str
    ) -> Sequence[Notice]:
        """Record the answers of a review, if the definitions are still those that were shown.

        Returns:
            What the user should know besides.
        """
        server = self._server(server_id)
        found = await self._find_review(server)
        if found is None:
            raise ConfigError(f"`{server_id}` has not been listed yet")
        tools = {tool.digest: tool.entry for tool in found.tools}
        seen = verdict.instructions
        gone = {*verdict.allow, *verdict.ask, *verdict.deny} - tools.keys()
        is_other = verdict.reading is not None and verdict.reading != found.unread
        if gone or is_other or (seen is not None and seen != _digest(found.listing.instructions)):
            raise ConfigError("the server changed this while you looked at it", hint="look at it again")
        decided = ReviewDecision(
            allow=[tools[digest] for digest in verdict.allow],
            ask=[tools[digest] for digest in verdict.ask],
            deny=[tools[digest].key.tool for digest in verdict.deny],
            instructions=verdict.are_accepted if seen is not None else None,
            reading=verdict.reading is not None,
        )
        record = partial(record_review, self._actions(principal), server, found.listing, decided, scope=scope)
        recorded = await to_thread.run_sync(record)
        notices = [*recorded.notices, *(recorded.edit.notices if recorded.edit is not None else ())]
        _log_notices(notices)
        if recorded.edit is not None:
            recorded.edit.require_loaded()
        recorded.require_effect()
        self._now().tasks.start_soon(self._host.connect, server_id)
        self.note_change()
        return notices

    async def _find_review(self, server: LoadedServer) -> ServerReview | None:
        """None where the server has not been listed."""
        try:
            return await live_review(self._host, server)
        except ListFailed:
            return None

    def _files(self, server: LoadedServer, fields: Sequence[str]) -> Sequence[EditTarget]:
        return edit_choices(self._actions(LOCAL), server, fields)

    # Calls.

    async def cancel(self, call_id: int, *, principal: str) -> tuple[str, Sequence[Notice]]:
        """Cancel a call that is under way. Returns its name, and what the user should know."""
        return await self.watch.cancel(self._actions(principal), call_id)

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """The calls that wait for approval: all, or one principal's."""
        return self._queue.pending(principal)

    async def answer(
        self,
        call_id: str,
        answer: ApprovalAnswer,
        *,
        principal: str,
        decides_for: str | None,
        surface: Surface = "dashboard",
    ) -> Sequence[Notice] | None:
        """Answer a call that waits.

        Args:
            call_id: The call.
            answer: The answer.
            principal: Who answers, for the audit record.
            decides_for: The only principal whose calls they may answer; None for all.
            surface: Where they do so.

        Returns:
            What the user should know; None where it waits no more, or is not theirs to answer.
        """
        context = self._actions(principal, surface)
        notices = await answer_call(context, self._queue, call_id, answer, decides_for=decides_for)
        _log_notices(notices or ())
        self.note_change()
        return notices

    # How it is done.

    def _server(self, server_id: str) -> LoadedServer:
        return self._configuration.loaded.server(server_id)

    def _connect_soon(self, server_id: str) -> None:
        self._now().tasks.start_soon(self._host.connect, server_id)

    def _now(self) -> "_Running":
        if self._running is None:
            raise FairleadError("the gateway is starting, or ending")
        return self._running

    def _actions(self, principal: str, surface: Surface = "dashboard") -> ActionContext:
        """The context of actions of the user with that principal, which the audit log names."""
        return running_context(surface, self._configuration, self._env, principal)


def _log_notices(notices: Sequence[Notice]) -> Sequence[Notice]:
    for notice in notices:
        logger.warning("after an action in the dashboard", extra={"notice": notice.message})
    return notices


def _tool_page(
    catalog: Catalog, selection: Selection, query: str, server_id: str | None, sort: str, wanted: slice
) -> ToolPage:
    if query:
        hits = catalog.find(query, server=server_id, limit=MAX_HITS)
        found = [tool for hit in hits if (tool := catalog.of(hit.key)) is not None]
    else:
        found = [tool for tool in catalog.tools if server_id in (None, tool.key.server_id)]
    match sort:
        case "name":
            found.sort(key=lambda tool: tool.key.tool.lower())
        case "server":
            found.sort(key=lambda tool: (tool.key.server_id, tool.key.tool.lower()))
        case "tokens":
            found.sort(key=lambda tool: -token_cost(tool.entry))
        case _:
            pass
    cost = cost_of(catalog)
    return ToolPage(
        tools=[ListedTool(tool=tool, tokens=token_cost(tool.entry)) for tool in found[wanted]],
        matching=len(found),
        total=len(catalog),
        total_tokens=cost,
        is_direct=all(is_direct(tool.key, selection, cost) for tool in catalog.tools),
        hidden={key: hidden for key, hidden in catalog.hidden.items() if server_id in (None, key.server_id)},
    )


def _open_reviews(reviews: Sequence[ServerReview]) -> OpenReviews:
    """Sorted by tool: findings first, then what claims to be destructive, then what is held back."""
    opened = [(review, tools) for review in by_risk(reviews) if (tools := review.open_tools)]
    every = [(review.server.server_id, tool) for review, tools in opened for tool in tools]
    return OpenReviews(
        tools=sorted(every, key=lambda each: (-each[1].risk, not each[1].waits)),
        servers=len(opened),
        waiting=sum(tool.waits for _, tool in every),
        instructions=[review.server.server_id for review in reviews if review.asks_about_instructions],
    )


def _digest(text: str | None) -> str:
    return hashlib.sha256((text or "").encode(errors="replace")).hexdigest()
