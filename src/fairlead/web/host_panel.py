"""The dashboard's view of a host."""

import hashlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.signatures import estimate
from fairlead.catalog.tools import Listing
from fairlead.config.edit_scope import set_enabled
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.paths import state_folder, store_file
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigError, ConnectFailed, FairleadError, StoreError
from fairlead.events import Event
from fairlead.gateway.client_session import SessionInfo
from fairlead.host.catalogs import cost_of, is_direct
from fairlead.host.events import Subscriber
from fairlead.host.host import Host
from fairlead.host.managed_server import ManagedServer, ServerStatus, log_tail
from fairlead.host.model.bundles import Selection
from fairlead.host.model.explain import Explainer, ToolExplanation, names_of
from fairlead.host.operator import ApprovalAnswer
from fairlead.host.snapshots import load_pins
from fairlead.policy.audit import AuditQuery, AuditRecord, latest_calls, note
from fairlead.policy.consent import has_consent, record_consent
from fairlead.policy.pins import Pins, UntrustedPins, is_guarded
from fairlead.policy.review import (
    ReviewDecision,
    ReviewedTool,
    instructions_changed,
    instructions_diff,
    record_decision,
    tools_to_review,
)
from fairlead.store.sqlite import Database
from fairlead.web.live import Activity, ChangeSignal
from fairlead.web.logins import DashboardLogins
from fairlead.web.panel import (
    MOST_EXPLAINED,
    ApprovalQueue,
    ListedTool,
    NoQueue,
    PanelReview,
    PanelVerdict,
    PendingCall,
    PendingLogin,
    ServerDetails,
    ToolPage,
)

MAX_HITS: Final = 200

logger = logging.getLogger(__name__)


class PanelConfiguration(Protocol):
    """The configuration a host runs with."""

    @property
    def loaded(self) -> LoadedConfig:
        """As it is in effect."""
        ...

    async def reload(self) -> None:
        """Read the files again, and have the host take them over."""
        ...


class Connections(Protocol):
    """All connections to servers: those of a gateway's sessions too, where there is one."""

    def status(self) -> Sequence[ServerStatus]:
        """Where every server stands."""
        ...

    async def close_server(self, server_id: str) -> None:
        """End every connection to a server."""
        ...


class _HostConnections:
    """The connections of a host that has no gateway in front."""

    def __init__(self, host: Host) -> None:
        self.status = host.status
        self.close_server = host.close


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    """What there is only while the panel runs."""

    tasks: TaskGroup
    visits: DashboardLogins


class _EventCounter(Subscriber):
    """Hears what happens in a host at once, as part of every call: no task has to wake up for it."""

    def __init__(self, activity: Activity, changes: ChangeSignal) -> None:
        super().__init__()
        self._activity = activity
        self._changes = changes

    def put(self, event: Event) -> None:
        """Take an event in."""
        self._activity.note(event)
        self._changes.note()


class HostPanel:
    """A `Panel` of one host. Its block, `running`, is to be left before that of the HTTP server."""

    def __init__(
        self,
        host: Host,
        configuration: PanelConfiguration,
        *,
        env: Mapping[str, str],
        queue: ApprovalQueue | None = None,
        sessions: Callable[[], Sequence[SessionInfo]] = tuple,
        connections: Connections | None = None,
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._env = env
        self._queue = queue or NoQueue()
        self._connections: Connections = connections or _HostConnections(host)
        self.sessions = sessions
        """Everybody who uses the gateway."""
        self._changes = ChangeSignal()
        self._running: _Running | None = None
        self.activity = Activity()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow what the host does, for the length of the block. Who watches is let go at its end."""
        async with anyio.create_task_group() as tasks:
            self._running = _Running(tasks=tasks, visits=DashboardLogins(self._host, self._changes, tasks))
            try:
                with self._host.bus.listening(_EventCounter(self.activity, self._changes)):
                    yield
            finally:
                self._running = None
                self._changes.close()
                tasks.cancel_scope.cancel()

    def changed(self) -> None:
        """Tell who watches: something is new that no event of the host says."""
        self._changes.note()

    def changes(self, idle_seconds: float) -> AsyncGenerator[bool]:
        """True whenever something changed, False after each `idle_seconds` in which nothing did."""
        return self._changes.watch(idle_seconds)

    @property
    def is_ready(self) -> bool:
        """Is the host open, and every server ready that is required?"""
        servers = self._configuration.loaded.servers
        required = {name for name, server in servers.items() if server.config and server.config.required}
        waiting = [
            status.server_id
            for status in self.status()
            if status.enabled and status.server_id in required and status.state != "ready"
        ]
        return self._running is not None and not waiting

    # Servers.

    def status(self) -> Sequence[ServerStatus]:
        """Where every server stands, over all connections to it."""
        return self._connections.status()

    async def details(self, server_id: str) -> ServerDetails:
        """All there is to say of one server."""
        self._host.listing(server_id)  # raises where there is none
        status = next(each for each in self.status() if each.server_id == server_id)
        server = self._configuration.loaded.servers.get(server_id)
        config = server.config if server else None
        return ServerDetails(
            status=status,
            target=server.target if server else "part of this program",
            description=config.description if config else None,
            log=await to_thread.run_sync(log_tail, state_folder(self._env) / "logs" / f"{server_id}.log"),
            can_switch=server is not None,
            has_login=isinstance(config, RemoteServer) and config.oauth is not False,
            tools=self._explain_tools(server_id) if config else (),
        )

    @property
    def _selection(self) -> Selection:
        """The tools as the local user's agents get them over the gateway."""
        settings = self._configuration.loaded.config.gateway
        return replace(self._host.tools.selection, approval=settings.approval)

    def _explain_tools(self, server_id: str) -> Sequence[ToolExplanation]:
        """What the tools of a server may do, by the configuration in effect and what is pinned."""
        member = self._member(server_id)
        if member is None or member.screened is None:
            return ()
        shown = member.screened.listing
        shown = replace(shown, tools=shown.tools[:MOST_EXPLAINED], rejected=())
        loaded, selection = self._configuration.loaded, self._selection
        names = names_of(loaded, {server_id: shown})
        before_defaults = (server_id,) if member.before_defaults else ()
        catalog = self._host.catalog(selection)
        explainer = Explainer(loaded, selection, catalog, names, before_defaults)
        return [explainer.explain(key) for key in names.names]

    async def restart(self, server_id: str) -> None:
        """End all connections to a server and begin another, beside."""
        status = (await self.details(server_id)).status
        if not status.enabled:
            raise ConnectFailed(server_id, "it is switched off")
        await self._connections.close_server(server_id)
        self._now().tasks.start_soon(self._host.connect, server_id)

    async def switch(self, server_id: str, *, on: bool) -> None:
        """Enable or disable a server in its file, and have the host follow."""
        loaded = self._configuration.loaded
        await to_thread.run_sync(partial(set_enabled, loaded, server_id, on=on))
        await self._configuration.reload()
        await self._note("enable" if on else "disable", server_id)
        now = self._configuration.loaded.server(server_id)
        if now.enabled != on:
            origin = now.definition.origin(("enabled",))
            raise ConfigError(f"that was written, but {origin} says otherwise, and counts more")
        self.changed()

    # Logins.

    def login(self, server_id: str, principal: str = LOCAL) -> PendingLogin | None:
        """The login of a principal that was begun here last."""
        return self._running.visits.latest(server_id, principal) if self._running else None

    async def begin_login(self, server_id: str, principal: str = LOCAL) -> None:
        """Begin to log in, and wait until there is a page to open."""
        await self._now().visits.begin(self._server(server_id), principal)

    def finish_login(self, server_id: str, address: str, principal: str = LOCAL) -> str | None:
        """Take the address at which a browser ended up."""
        return self._now().visits.finish(server_id, address, principal)

    # Tools.

    async def tools(self, query: str, server_id: str | None, *, start: int, limit: int) -> ToolPage:
        """The tools that fit a wish, the best first, or all in order where there is none."""
        selection = self._selection
        # In a thread, because the first search in a large catalog makes its index.
        some = partial(_tool_page, self._host.catalog(selection), selection, query, server_id)
        return await to_thread.run_sync(partial(some, slice(start, start + limit)))

    def held_back(self) -> Mapping[str, int]:
        """How many tools of each server are not offered before somebody reviews them."""
        hidden = self._host.tools.catalog.hidden
        return Counter(key.server_id for key, why in hidden.items() if why.absence == "quarantined")

    async def review(self, server_id: str) -> PanelReview:
        """What there is to review of a server, as it listed itself last."""
        server = self._server(server_id)
        listing, pins = await self._load_listing_and_pins(server)
        if server.config is None or listing is None:
            return PanelReview(server_id=server_id, problem="it has not said yet what it offers")
        # Without pins nobody has looked at anything yet, and the first tool to be allowed brings them along.
        is_held = pins is not None and is_guarded(server)
        is_new = is_held and instructions_changed(listing, pins)
        return PanelReview(
            server_id=server_id,
            tools=await self._tools_to_review(server, listing, pins),
            instructions=tuple(instructions_diff(listing, pins)) if is_new else (),
            instructions_digest=_digest(listing.instructions) if is_new else "",
        )

    async def decide(self, server_id: str, verdict: PanelVerdict) -> None:
        """Pin and write what a person decided, if all of it is still what they looked at."""
        server = self._server(server_id)
        listing, pins = await self._load_listing_and_pins(server)
        if listing is None:
            raise ConfigError(f"`{server_id}` has not said yet what it offers")
        reviewed = await self._tools_to_review(server, listing, pins)
        tools = {tool.digest: tool.entry for tool in reviewed}
        seen = verdict.instructions
        gone = {*verdict.allow, *verdict.ask, *verdict.deny} - tools.keys()
        if gone or (seen is not None and seen != _digest(listing.instructions)):
            raise ConfigError("the server changed this while you looked at it", hint="look at it again")
        decided = ReviewDecision(
            allow=[tools[digest] for digest in verdict.allow],
            ask=[tools[digest] for digest in verdict.ask],
            deny=[tools[digest].key.tool for digest in verdict.deny],
            instructions=seen is not None,
        )
        approved = await to_thread.run_sync(self._is_approved, server)
        written = await to_thread.run_sync(record_decision, self._store_file, server, listing, decided)
        if written is not None:
            await self._configuration.reload()
            if written.target.scope == "project" and approved:
                await self._consent(server_id)
        await self._note(
            "review",
            server_id,
            allowed=[entry.key.tool for entry in decided.allow],
            asked=[entry.key.tool for entry in decided.ask],
            denied=[*decided.deny],
        )
        self._now().tasks.start_soon(self._host.connect, server_id)
        self.changed()

    async def _tools_to_review(
        self, server: LoadedServer, listing: Listing, pins: Pins | None
    ) -> list[ReviewedTool]:
        member = self._member(server.server_id)
        before_defaults = member is not None and member.before_defaults
        find = partial(tools_to_review, server, listing, pins, before_defaults=before_defaults)
        return await to_thread.run_sync(find)

    def _is_approved(self, server: LoadedServer) -> bool:
        key = server.consent
        return key is None or has_consent(self._store_file, key)

    async def _consent(self, server_id: str) -> None:
        """Approve the entry anew: what was written into it is what the person just decided."""
        key = await to_thread.run_sync(lambda: self._server(server_id).consent)
        if key is not None:
            await to_thread.run_sync(record_consent, self._store_file, [key])

    async def _load_listing_and_pins(self, server: LoadedServer) -> tuple[Listing | None, Pins | None]:
        """What a server listed last, as it came, and what is pinned of it by now, in whatever process."""
        member = self._member(server.server_id)
        store = self._host.store
        pins = await load_pins(store, server) if store is not None else None
        listing = member.snapshot.listing if member is not None and member.snapshot else None
        pins = pins or (member.pins if member is not None else None)
        return listing, None if isinstance(pins, UntrustedPins) else pins

    def _member(self, server_id: str) -> ManagedServer | None:
        return next((each for each in self._host.members if each.server.server_id == server_id), None)

    # Calls.

    async def audit(self, wanted: AuditQuery, limit: int) -> Sequence[AuditRecord]:
        """The last calls, the newest first."""
        if self._host.store is None:
            return ()
        await self._host.store.flush()

        def read() -> Sequence[AuditRecord]:
            with Database.open(self._store_file) as database:
                return latest_calls(database, wanted, limit)[::-1]

        return await to_thread.run_sync(read)

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """The calls that wait for a person's word: all, or one principal's."""
        return self._queue.pending(principal)

    def answer(self, call_id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:
        """Give that word, if the call is one of the principal's."""
        given = self._queue.answer(call_id, answer, principal=principal)
        self.changed()
        return given

    # How it is done.

    @property
    def _store_file(self) -> Path:
        return store_file(self._env, self._configuration.loaded.config.store.path)

    def _server(self, server_id: str) -> LoadedServer:
        return self._configuration.loaded.server(server_id)

    def _now(self) -> "_Running":
        if self._running is None:
            raise FairleadError("the gateway is starting, or ending")
        return self._running

    async def _note(self, kind: str, server_id: str, **details: object) -> None:
        """Record what a person did here. That it cannot be recorded does not undo it."""
        settings = self._configuration.loaded.config.audit

        def write() -> None:
            with Database.open(self._store_file) as database:
                note(database, settings, kind, server=server_id, details={"in": "dashboard", **details})

        try:
            await to_thread.run_sync(write)
        except StoreError:
            logger.warning("what was done in the dashboard is not recorded", exc_info=True)


def _tool_page(
    catalog: Catalog, selection: Selection, query: str, server_id: str | None, wanted: slice
) -> ToolPage:
    if query:
        hits = catalog.find(query, server=server_id, limit=MAX_HITS)
        found = [tool for hit in hits if (tool := catalog.of(hit.key)) is not None]
    else:
        found = [tool for tool in catalog.tools if server_id in (None, tool.key.server_id)]
    cost = cost_of(catalog)
    return ToolPage(
        tools=[ListedTool(tool=tool, tokens=estimate(tool.entry.definition)) for tool in found[wanted]],
        matching=len(found),
        total=len(catalog),
        total_tokens=cost,
        is_direct=all(is_direct(tool.key, selection, cost) for tool in catalog.tools),
        hidden={key: hidden for key, hidden in catalog.hidden.items() if server_id in (None, key.server_id)},
    )


def _digest(text: str | None) -> str:
    return hashlib.sha256((text or "").encode(errors="replace")).hexdigest()
