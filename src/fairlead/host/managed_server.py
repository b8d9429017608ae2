"""A managed server: one configured server with its connection, listing, pins and state."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fairlead.catalog.repair.protocol_versions import ALL_NAMED
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.models import CHILD_TRANSPORTS, RemoteServer, Server
from fairlead.config.principal import LOCAL
from fairlead.connection.connection import Connection
from fairlead.connection.peer import LogIn
from fairlead.connection.start_limit import StartLimit
from fairlead.connection.supervisor import Supervisor
from fairlead.connection.transport.factory import TransportContext, transports_of
from fairlead.errors import ConfigInvalid, ConnectFailed, ServerError
from fairlead.events import DOWN, McpToolsChanged, OffersChanged, ServerState, StateChanged, ToolsQuarantined
from fairlead.host.background import run_off_loop, size_of
from fairlead.host.events import EventBus
from fairlead.host.operator import Operator
from fairlead.host.server_peer import CustomCapabilities, ServerPeer
from fairlead.host.server_status import ServerStatus
from fairlead.host.snapshots import KnownServerState, LastFailure, Snapshot, load_pins
from fairlead.policy.decision import BundleFilter, CallPolicy
from fairlead.policy.lockfile import LockedServer
from fairlead.policy.pins import Pins, UntrustedPins, extend, is_guarded, is_held, merge_pins
from fairlead.policy.quarantine import (
    CallRefusal,
    PreparedListing,
    ScreenedListing,
    first_use,
    prepare,
    screen,
)
from fairlead.policy.unreviewed import review_notes
from fairlead.store.protocol import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HumanSide:
    """The user's side of connections: operator, declared capabilities, logins."""

    operator: Operator
    capabilities: CustomCapabilities
    log_in: LogIn
    shared: bool = False
    """Many clients share the connections, and the operator answers for the client of each request."""
    principal: str = LOCAL
    """The principal whose logins the connections use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerContext:
    """Everything that the managed servers of one host are made with, besides their definitions."""

    tasks: TaskGroup
    """Runs their connections; its owner closes it."""
    transports: TransportContext
    store: Store | None
    human: HumanSide
    bus: EventBus
    start_limit: StartLimit
    """Limits how many processes start at the same time, over all hosts of a gateway."""


def login_notes(server: LoadedServer) -> tuple[str, ...]:
    """Notes for the user about whose login a server is used with."""
    is_shared = isinstance(server.config, RemoteServer) and server.config.login == "shared"
    return ("login: shared: every principal of a gateway uses the local user's login",) if is_shared else ()


def entry_notes(server: LoadedServer) -> tuple[str, ...]:
    """Notes on what is ignored of a server's entry, though the server works."""
    return tuple(str(problem) for problem in server.problems if problem.severity == "warning")


class ManagedServer:
    """A configured server in a host. A valid one has a connection, open or not."""

    is_retired = False
    """Whether it was disabled, or another definition replaced it. Its calls under way finish."""

    def __init__(
        self,
        server: LoadedServer,
        context: ServerContext,
        known: KnownServerState,
        *,
        save: Callable[["ManagedServer"], None],
        changed: Callable[[], None],
        screened: Callable[["ManagedServer"], None],
    ) -> None:
        self.server = server
        self.principal = context.human.principal
        self.is_usable = server.usable
        """Whether it is enabled and its entry is valid."""
        self.before_defaults = known.before_defaults
        self.policy = CallPolicy(server, before_defaults=known.before_defaults)
        self.snapshot = snapshot = known.snapshot
        """The listing as the server sent it."""
        self.pins = known.pins
        """Its pins, or why they cannot be trusted."""
        self.lock = known.lock
        """Its entry in the lockfile, or why that cannot be read."""
        self.findings: Mapping[str, str] = {}
        """The quarantine findings of this listing, by tool."""
        self._elsewhere: Mapping[str, str] = {}
        """The quarantine findings of a newer listing over another connection."""
        self._extended = 0
        self.screened: ScreenedListing | None = None
        """The part of the listing that may be offered; a new object whenever it changes."""
        self.call_plans: dict[object, Any] = {}
        """The plans of calls of its tools (`CallPlan`)."""
        self.awaits_consent = server.needs_consent and not known.approved
        """Whether it is from a project file and the user has not consented to it as it is now."""
        self.unsaved: Snapshot | None = None
        self.unsaved_trouble: LastFailure | None = None
        self.unsaved_pins: Pins | None = None
        self.listed = anyio.Event()
        """Set whenever the server has been listed in this run, or will not be."""
        self._emit = context.bus.emit
        self._changed = changed
        self._on_screened = screened
        self._prepared: PreparedListing | None = None
        """What was prepared off the event loop for the next listing."""
        self._save = save
        self.connection: Connection | None = None
        if server.config is not None and server.usable:
            self.connection = self._connect_with(server.config, context)
        if snapshot is not None:
            self._update_pins(snapshot.listing)
            self._screen(snapshot.listing)

    def _connect_with(self, config: Server, context: ServerContext) -> Connection:
        """Its connection, which opens on first use."""
        server, snapshot = self.server, self.snapshot
        supervisor = Supervisor(
            server.server_id,
            config,
            transports_of(server, context.transports, version=lambda: self.version),
            tasks=context.tasks,
            admission=context.start_limit if server.transport in CHILD_TRANSPORTS else None,
            known_version=snapshot.known_version if snapshot else None,
            known_listing=snapshot.listing if snapshot else None,
            peer=ServerPeer(
                server.server_id,
                config,
                context.human.operator,
                roots=server.root_folders(),
                custom=context.human.capabilities,
                emit=context.bus.emit,
                shared=context.human.shared,
                in_force=lambda: not self.is_retired,
            ),
            log_level=config.log_level,
            log_in=context.human.log_in,
            on_state=self._on_state_changed,
            on_connected=self._note_connected,
            on_download=self._on_download,
            prepare=partial(self._prepare, context.store if self.server.transport != "in_process" else None),
            on_listed=self._on_listed,
        )
        return Connection(supervisor, tracer=context.transports.tracer)

    @property
    def config(self) -> Server:
        """Its configuration. Raises where that is not valid."""
        if self.server.config is None:
            raise ConfigInvalid(*self.server.problems)
        return self.server.config

    def live(self) -> Connection:
        """Its connection. Raises where it cannot have one: it is disabled, or its entry is not valid."""
        if self.connection is not None:
            return self.connection
        if not self.server.enabled:
            raise ConnectFailed(self.server.server_id, "it is disabled", hint=self.server.enable_hint)
        raise ConfigInvalid(*(problem for problem in self.server.problems if problem.severity == "error"))

    @property
    def version(self) -> str | None:
        """The protocol version it speaks, or spoke when it was last listed."""
        negotiated = self.connection.vitals.version if self.connection else None
        return negotiated or (self.snapshot.version if self.snapshot else None)

    @property
    def keeps_sessions(self) -> bool:
        """Whether it is, or was last time, a gateway that keeps sessions for stateless requests."""
        if self.connection is not None and self.connection.vitals.connects:
            return self.connection.vitals.keeps_sessions
        return self.snapshot is not None and self.snapshot.keeps_sessions

    @property
    def listing(self) -> Listing | None:
        """Its known listing without quarantined tools; None before consent."""
        return self.screened.listing if self.screened and not self.awaits_consent else None

    def entry(self, tool: str) -> ToolEntry | None:
        """The visible definition of a tool, as far as it is known."""
        return self.screened.entry(tool) if self.screened and not self.awaits_consent else None

    def find_listed_entry(self, tool: str) -> ToolEntry | None:
        """The definition of a tool as its server listed it: for digests, never to be shown."""
        listing = self.snapshot.listing if self.snapshot else Listing()
        return next((entry for entry in listing.tools if entry.key.tool == tool), None)

    def take_rules(self, server: LoadedServer) -> None:
        """Apply a configuration in which only rules and modes of this server changed."""
        is_other = server.config != self.server.config
        self.server = server
        self.is_usable = server.usable
        self.policy = CallPolicy(server, before_defaults=self.before_defaults)
        if is_other and self.snapshot is not None:
            self._update_pins(self.snapshot.listing)
            self._screen(self.snapshot.listing)
        self._changed()

    def set_approved(self, approved: bool) -> None:  # noqa: FBT001 - the one thing it sets
        """Note that the user has approved it as it is now, or that what was approved has changed."""
        if self.awaits_consent is approved:
            self.awaits_consent = not approved
            self._changed()

    def refusal(self, tool: str) -> CallRefusal | None:
        """Why a tool may not be called now; None where nothing but the policy decides.

        This is checked for every call over every surface; nothing else decides it.
        """
        if self.screened is not None:
            return self.screened.refusal(tool)
        if isinstance(self.pins, UntrustedPins) and is_guarded(self.server):
            return CallRefusal(kind="quarantined", reason=self.pins.reason, hint=self.pins.hint)
        return None

    @property
    def is_held(self) -> bool:
        """Whether any of its tools is held to a lock or to pins."""
        return self.lock is not None or is_held(self.server, self.pins)

    @property
    def is_unchecked(self) -> bool:
        """Whether it must be listed before a call: it is held to pins or a lock, and may have changed."""
        connection = self.connection
        if connection is None or (self.screened is not None and connection.vitals.state == "ready"):
            return False
        return self.is_held

    def use_first(self, bundle_filter: BundleFilter) -> None:
        """Pin the tools that a bundle lets through, if it is the first to."""
        if self._pin_on_first_use(bundle_filter):
            assert self.snapshot is not None, "what is pinned was listed"
            self._screen(self.snapshot.listing)

    def repin(self, pins: Pins | UntrustedPins | None) -> None:
        """Apply other pins: after a review, or when the store became trusted or untrusted."""
        if self.unsaved_pins is None or isinstance(pins, UntrustedPins):
            self.pins = pins
        else:
            self.pins = merge_pins(self.unsaved_pins, pins)
        self._elsewhere = {}
        if self.snapshot is not None:
            self._update_pins(self.snapshot.listing)
        self._screen_again()

    def relock(self, lock: LockedServer | str | None) -> None:
        """Apply the current lockfile; while that cannot be read, nothing is offered."""
        self.lock = lock
        self.call_plans.clear()  # they were worked out under the old lock
        self._changed()
        self._screen_again()

    @property
    def locked_out(self) -> Mapping[str, str]:
        """The tools that its lock alone holds back, each with the reason."""
        if self.snapshot is None:
            return {}
        return screen(self.server, self.snapshot.listing, None, self.lock).quarantined

    def follow(self, findings: Mapping[str, str]) -> None:
        """Quarantine what a newer listing over another connection to the same server is quarantined for."""
        if findings != self._elsewhere:
            self._elsewhere = findings
            self._screen_again()

    def _screen_again(self) -> None:
        if self.snapshot is not None:
            before = self._held_back
            self._screen(self.snapshot.listing)
            if self._held_back != before:
                self._emit_tools()

    def adopt(self, snapshot: Snapshot, *, ends: bool = False) -> None:
        """Take over another connection's listing, where the own one is too old or refused.

        Not while this one is connected, unless its connection `ends`.
        """
        known = self.snapshot
        apart = ends or not self._is_connected
        outdated = known is not None and apart and snapshot.saved_at > known.saved_at and bool(self.findings)
        stale = known is not None and apart and known.is_stale(self._ttl_ms())
        if known is None or outdated or stale:
            self._take_listing(snapshot.listing, snapshot.version, keeps_sessions=snapshot.keeps_sessions)

    def lacks(self, tools: Collection[str]) -> bool:
        """Whether any of these tools is missing from its listing."""
        listing = self.snapshot.listing if self.snapshot is not None else None
        return listing is not None and not {entry.key.tool for entry in listing.tools}.issuperset(tools)

    def catch_up(self, snapshot: Snapshot) -> None:
        """Offer another connection's newer listing; an open connection requests its own list again."""
        if self._is_connected and self.connection is not None:
            self.connection.refresh()
        elif self.snapshot is None or snapshot.saved_at > self.snapshot.saved_at:
            self._take_listing(snapshot.listing, snapshot.version, keeps_sessions=snapshot.keeps_sessions)

    def join_pins(self, first_use: Pins) -> None:
        """Pin what was first used over another connection to the server, too."""
        if not isinstance(self.pins, UntrustedPins):
            self.pins = merge_pins(first_use, self.pins)
            self.unsaved_pins = merge_pins(self.unsaved_pins, first_use) if self.unsaved_pins else first_use
            self._save(self)
            self._screen_again()

    @property
    def _is_connected(self) -> bool:
        return self.connection is not None and self.connection.vitals.state == "ready"

    @property
    def is_connecting(self) -> bool:
        """Whether its connection is being opened, or has yet to list in this run."""
        return self.connection is not None and self.connection.vitals.state == "connecting"

    @property
    def is_listed(self) -> bool:
        """Whether its listing is of this run rather than a snapshot."""
        return self.listed.is_set() and self.connection is not None and self.connection.vitals.connects > 0

    def status(self) -> ServerStatus:
        """Its state."""
        connection, error = self.connection, self._error()
        vitals = connection.vitals if connection else None
        return ServerStatus(
            server_id=self.server.server_id,
            transport=self.server.transport,
            source=self.server.source,
            enabled=self.server.enabled,
            state=self._state(),
            version=self.version,
            tools=self._count_tools(),
            stale=self.snapshot is not None and self.snapshot.is_stale(self._ttl_ms()),
            last_error=error[0],
            last_error_at=vitals.last_error_at if vitals else None,
            hint=error[1],
            last_connected_at=vitals.last_connected_at if vitals else None,
            connects=vitals.connects if vitals else 0,
            calls=vitals.calls if vitals else 0,
            notes=(
                *(vitals.notes if vitals else ()),
                *entry_notes(self.server),
                *login_notes(self.server),
                *self.review_notes(),
                *self._listing_notes(),
            ),
        )

    def _listing_notes(self) -> Iterator[str]:
        command = f"`{command_line('lint', self.server.server_id)}`"
        for note in self.screened.listing.notes if self.screened else ():
            yield note.replace(ALL_NAMED, command)

    def review_notes(self) -> tuple[str, ...]:
        """Notes on what waits for a review."""
        listing = self.snapshot.listing if self.snapshot else None
        return review_notes(self.server, listing, self.pins, before_defaults=self.before_defaults)

    def _count_tools(self) -> int | None:
        listing = self.snapshot.listing if self.snapshot else None
        if listing is None or (listing.is_partial and not listing.tools):
            return None
        return len(listing.tools)

    def retire(self, tasks: TaskGroup) -> None:
        """End it: its calls under way finish in the background, and no new ones are made."""
        self.is_retired = True
        if self.connection is not None:
            self.connection.withdraw()
            tasks.start_soon(partial(self.connection.aclose, drain=True))

    def refresh_if_stale(self) -> None:
        """Ask a connected server again for what it offers, if the answer is too old."""
        if self._is_connected and self.snapshot is not None and self.snapshot.is_stale(self._ttl_ms()):
            self.live().refresh()

    def _ttl_ms(self) -> int:
        return self.server.config.tools_ttl_ms if self.server.config else 0

    def _state(self) -> ServerState:
        if not self.server.enabled:
            return "disabled"
        if self.connection is None:
            return "error"
        # Calls do not wait for its lists, which may take long: it works.
        return "ready" if self.connection.is_answering else self.connection.vitals.state

    def _error(self) -> tuple[str | None, str | None]:
        error: ServerError | None = self.connection.vitals.last_error if self.connection else None
        if error is not None:
            return gate.error_text(error), error.hint
        problem = next((p for p in self.server.problems if p.severity == "error"), None)
        return (str(problem), problem.hint) if problem and self.server.enabled else (None, None)

    def _on_state_changed(self, state: ServerState, reason: str | None) -> None:
        if state in (*DOWN, "idle"):
            self.listed.set()
        elif state == "connecting":
            self.listed = anyio.Event()
        if state in DOWN:
            self._note_trouble()
        self._emit(StateChanged(server_id=self.server.server_id, state=state, reason=reason))

    def _on_download(self, what: str | None) -> None:
        self._emit(StateChanged(server_id=self.server.server_id, state="connecting", reason=what))

    def _note_connected(self) -> None:
        """Outdate what went wrong before, for commands that read it when no host runs."""
        self.unsaved_trouble = LastFailure.make_cleared(time.time())
        self._save(self)

    def take_trouble(self, trouble: LastFailure) -> None:
        """Record an error, or a recovery, of a client's own connection."""
        self.unsaved_trouble = trouble
        self._save(self)

    def _note_trouble(self) -> None:
        """Save what went wrong, for `fairlead status` when no host runs. A later listing replaces it."""
        vitals = self.live().vitals
        error = vitals.last_error
        self.unsaved_trouble = LastFailure(
            state=vitals.state,
            message=gate.error_text(error),
            hint=error.hint if error else None,
            at=time.time(),
        )
        self._save(self)

    async def _prepare(self, store: Store | None, listing: Listing) -> None:
        """Work out what takes long about a large listing, while the earlier one is still offered.

        A server without pins may have got some from another process since: they hold for this listing, too.
        """
        if self.pins is None and store is not None and is_guarded(self.server):
            pins = await load_pins(store, self.server)
            if self.pins is None:
                self.pins = pins
        work = partial(prepare, self.server, listing, self.pins, self.lock)
        self._prepared = await run_off_loop(work, size_of(listing))

    def _on_listed(self, listing: Listing, version: str) -> None:
        self._take_listing(listing, version, keeps_sessions=self.keeps_sessions)

    def _take_listing(self, listing: Listing, version: str, *, keeps_sessions: bool) -> None:
        before = self.snapshot
        self.snapshot = Snapshot(
            listing=listing, version=version, saved_at=time.time(), keeps_sessions=keeps_sessions
        )
        if listing.is_partial:
            # The tools are as old as they were, and the next run had better ask again.
            self.snapshot = replace(self.snapshot, saved_at=before.saved_at if before else 0.0)
        else:
            self.unsaved = self.snapshot
        self._elsewhere = {}  # this is the newest
        self._update_pins(listing)
        self._screen(listing)
        self._save(self)
        if not listing.is_partial:  # else the failure that follows says that it has been listed
            self.listed.set()
        if before is None or before.listing.tools != listing.tools:
            self._emit_tools()
        self._emit_offers(before.listing if before else Listing(), listing)

    def _emit_tools(self) -> None:
        assert self.screened is not None, "it was listed"
        self._emit(McpToolsChanged(server_id=self.server.server_id, tools=len(self.screened.listing.tools)))

    def _emit_offers(self, before: Listing, now: Listing) -> None:
        server_id = self.server.server_id
        if (before.resources, before.templates) != (now.resources, now.templates):
            self._emit(OffersChanged(server_id=server_id, kind="resources"))
        if before.prompts != now.prompts:
            self._emit(OffersChanged(server_id=server_id, kind="prompts"))

    def _screen(self, listing: Listing) -> None:
        """Screen its listing by pins and lock, and emit an event when tools become quarantined."""
        before = self._held_back
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.is_about(self.server, listing, self.pins, self.lock):
            screened = prepared.screened
        else:
            screened = screen(self.server, listing, self.pins, self.lock)
        self.findings = screened.quarantined
        if self._elsewhere:
            screened = screen(self.server, listing, self.pins, self.lock, self._elsewhere)
        if self._extended:
            notes = (*screened.listing.notes, _extension_notice(self._extended))
            screened = replace(screened, listing=replace(screened.listing, notes=notes), _answers={})
        self.screened = screened
        self._changed()
        self._on_screened(self)
        if self._held_back.keys() - before.keys():
            self._emit(ToolsQuarantined(server_id=self.server.server_id, tools=tuple(self._held_back)))

    @property
    def _held_back(self) -> Mapping[str, str]:
        return self.screened.quarantined if self.screened else {}

    def _update_pins(self, listing: Listing) -> None:
        """Extend pins of an older format, and pin what is used for the first time."""
        if isinstance(self.pins, Pins) and is_guarded(self.server):
            extended = extend(self.pins, listing)
            if extended is not None:
                before = self.pins.tools
                self._extended += sum(
                    pin.format > before[tool].format for tool, pin in extended.tools.items() if tool in before
                )
                logger.info("pins were extended", extra={"server_id": self.server.server_id})
                self.pins = self.unsaved_pins = extended
                self._save(self)
        self._pin_on_first_use(None)

    def _pin_on_first_use(self, bundle_filter: BundleFilter | None) -> bool:
        """Pin what an allow list lets through for the first time. Says whether there was anything."""
        if self.snapshot is None:
            return False
        listing, prepared = self.snapshot.listing, self._prepared
        is_prepared = prepared is not None and prepared.is_about(self.server, listing, self.pins, self.lock)
        if prepared is not None and is_prepared and bundle_filter is None:
            pins = prepared.first_use
            self._prepared = replace(prepared, pins=pins or self.pins)  # what it was screened with
        else:
            pins = first_use(
                self.server, listing, self.pins, self.lock, at=time.time(), bundle_filter=bundle_filter
            )
        if pins is None:
            return False
        self.pins = self.unsaved_pins = pins
        self._save(self)
        return True


def _extension_notice(tools: int) -> str:
    what = "the pin of 1 tool covers" if tools == 1 else f"the pins of {tools} tools cover"
    return f"{what} icons and `_meta` too from now on, as they are at this moment"
