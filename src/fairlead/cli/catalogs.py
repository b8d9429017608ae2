"""The catalog for the commands that look into it: what is known at once, servers never asked by asking.

The catalog of the gateway that runs, for the commands that look into it.

Resources and prompts, for the commands that show them: what is known at once, the rest by asking.

What earlier runs left behind, read without starting or contacting anything or loading the SDK.

Commands that use the gateway which runs already, in place of a host of their own.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.tools import Listing, ServerOffer
from fairlead.cli.exit_codes import Exit, exit_of
from fairlead.cli.options import load
from fairlead.cli.output import say, warn
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.paths import store_file
from fairlead.config.principal import LOCAL, LOCAL_CALLER, GroupedPrincipal
from fairlead.config.sources import place_of, workspace
from fairlead.errors import FairleadError, GatewayGone, StoreError, UnknownServer
from fairlead.gateway.registry import RunningGateway, find, sources_of
from fairlead.host.catalogs import catalog_of
from fairlead.host.model.bundles import Selection, select
from fairlead.host.snapshots import (
    NAMESPACE,
    TROUBLE,
    LastFailure,
    Snapshot,
    read_snapshot,
    read_trouble,
    snapshot_key,
    snapshot_of,
)
from fairlead.policy.approvals import NAMESPACE as APPROVALS
from fairlead.policy.approvals import KeptApproval, read_kept
from fairlead.policy.consent import NAMESPACE as CONSENT
from fairlead.policy.consent import consent_store_key
from fairlead.policy.lockfile import LockedServer, locks_of
from fairlead.policy.pins import NAMESPACE as PINS
from fairlead.policy.pins import Pins, UntrustedPins, pins_key, read_pins
from fairlead.policy.quarantine import ScreenedListing, screen
from fairlead.policy.review import review_notes
from fairlead.policy.upgrade import read_before_defaults
from fairlead.store.sqlite import Database

if TYPE_CHECKING:
    from fairlead.gateway.control.protocol import KnownServer
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import CombinedList


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedState:
    """What is known of a server: what it offered, what went wrong since, whether it may start."""

    snapshot: Snapshot | None = None
    """What it offered, as it came."""
    screened: ScreenedListing | None = None
    """What may be offered of that."""
    pins: Pins | None = None
    """None where nothing is pinned, or it cannot be read: then `screened` lets nothing through."""
    trouble: LastFailure | None = None
    approved: bool = True
    before_defaults: bool = False
    """Do its calls stay asked about, as they were before trusted servers went by their annotations?"""


def read_saved(loaded: LoadedConfig) -> dict[str, SavedState]:
    """What is known of each configured server."""
    path = store_file(os.environ, loaded.config.store.path)
    if not path.exists():
        return {
            name: SavedState(approved=not server.needs_consent) for name, server in loaded.servers.items()
        }
    locks = locks_of(loaded.servers.values())
    with Database.open_for_reading(path) as database:
        return {name: _read(database, server, locks.get(name)) for name, server in loaded.servers.items()}


def read_answers(loaded: LoadedConfig) -> list[tuple[str, KeptApproval]]:
    """The answers to approvals that are remembered for good, each with its key in the store."""
    path = store_file(os.environ, loaded.config.store.path)
    if not path.exists():
        return []
    with Database.open_for_reading(path) as database:
        return read_kept(database.scan(APPROVALS))


def notes_to_review(server: LoadedServer, saved: SavedState) -> tuple[str, ...]:
    """What a review of a server would settle, as far as it is known without asking the server."""
    tools = len(saved.snapshot.listing.tools) if saved.snapshot else 0
    return review_notes(server, tools, before_defaults=saved.before_defaults)


def _read(database: Database, server: LoadedServer, lock: LockedServer | str | None) -> SavedState:
    key = snapshot_key(server)
    consent = server.consent
    approved = consent is None or database.get(CONSENT, consent_store_key(consent)) is not None
    stored, noted = database.get(NAMESPACE, key), database.get(TROUBLE, key)
    try:
        snapshot = read_snapshot(server.server_id, stored.value) if stored else None
        trouble = read_trouble(noted.value) if noted else None
    except msgspec.DecodeError:
        return SavedState(approved=approved, before_defaults=read_before_defaults(database, server))
    if trouble is not None and (trouble.is_cleared or (snapshot and snapshot.saved_at >= trouble.at)):
        trouble = None
    pins = _pins(database, server)
    # What a project file describes is not offered before the user approved it.
    screened = screen(server, snapshot.listing, pins, lock) if snapshot and approved else None
    known = None if isinstance(pins, UntrustedPins) else pins
    return SavedState(
        snapshot=snapshot,
        screened=screened,
        pins=known,
        trouble=trouble,
        approved=approved,
        before_defaults=read_before_defaults(database, server),
    )


def _pins(database: Database, server: LoadedServer) -> Pins | UntrustedPins | None:
    try:
        pinned = database.get(PINS, pins_key(server))
        return read_pins(pinned.value, server.server_id) if pinned else None
    except StoreError as exc:
        return UntrustedPins.because(exc)


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def bundle_option(function: FunctionT) -> FunctionT:
    """Add `--bundle`: whose tools."""
    return click.option("--bundle", metavar="NAME", help="Only what this bundle has, as it has it.")(function)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnavailableServer:
    """Why a server cannot be had, and what to do."""

    reason: str
    hint: str | None = None
    needs_a_person: bool = False
    """A login or an approval is all that is missing."""

    @classmethod
    def because(cls, error: FairleadError) -> "UnavailableServer":
        """What an error means for whoever wants the server."""
        wanted = exit_of(error) == Exit.NEEDS_A_PERSON
        return cls(reason=str(error), hint=error.hint, needs_a_person=wanted)


@dataclass(frozen=True, kw_only=True)
class KnownCatalog:
    """A configuration, a choice of it, and what is known of its servers."""

    loaded: LoadedConfig
    selection: Selection
    saved: Mapping[str, SavedState]
    failed: Mapping[str, UnavailableServer] = field(default_factory=dict[str, UnavailableServer])
    """What went wrong just now."""

    @property
    def chosen(self) -> list[LoadedServer]:
        """The servers of the choice that are switched on."""
        return [
            server
            for server_id, server in self.loaded.servers.items()
            if server.enabled and self.selection.has(server_id)
        ]

    def server(self, server_id: str) -> LoadedServer:
        """The server of the choice with that id, switched on or not."""
        server = self.loaded.server(server_id)
        if not self.selection.has(server_id):
            raise UnknownServer(f"the bundle `{self.selection.name}` has no server `{server_id}`")
        return server

    @cached_property
    def listings(self) -> dict[str, Listing]:
        """What servers are known to offer."""
        return {name: screened.listing for name, screened in self.screened.items()}

    @cached_property
    def screened(self) -> dict[str, ScreenedListing]:
        """The same, with what of it waits for a review."""
        return {name: saved.screened for name, saved in self.saved.items() if saved.screened}

    @property
    def before_defaults(self) -> set[str]:
        """The servers that keep the defaults of an earlier release (see `policy.upgrade`)."""
        return {name for name, saved in self.saved.items() if saved.before_defaults}

    @cached_property
    def catalog(self) -> Catalog:
        """The tools of the choice, as agents get them."""
        return catalog_of(self.loaded, self.selection, self.screened)

    def absence(self, server_id: str) -> UnavailableServer | None:
        """Why a server cannot be had, as far as that is known without trying."""
        server, saved = self.loaded.servers[server_id], self.saved[server_id]
        if not server.enabled:
            return UnavailableServer(
                reason=f"server `{server_id}`: it is switched off", hint=server.enable_hint
            )
        for problem in server.problems:
            if problem.severity == "error":
                return UnavailableServer(reason=str(problem), hint=problem.hint)
        if not saved.approved:
            return UnavailableServer(
                reason=f"server `{server_id}`: you have not approved this entry",
                hint=f"run `{command_line('approve', server_id)}`",
                needs_a_person=True,
            )
        if saved.trouble is not None:
            wanted = saved.trouble.state == "auth_required"
            return UnavailableServer(
                reason=saved.trouble.message, hint=saved.trouble.hint, needs_a_person=wanted
            )
        return self.failed.get(server_id)


def known(
    loaded: LoadedConfig, bundle: str | None = None, caller: GroupedPrincipal = LOCAL_CALLER
) -> KnownCatalog:
    """What earlier runs left behind, as a caller sees it. Contacts nobody.

    Another principal than the local user calls over the gateway, whose `approval` counts for it.
    """
    selection = select(loaded, bundle, caller)
    if caller.principal != LOCAL:
        selection = replace(selection, approval=loaded.config.gateway.approval)
    return KnownCatalog(loaded=loaded, selection=selection, saved=read_saved(loaded))


def with_unasked(
    found: KnownCatalog, servers: Iterable[LoadedServer], *, refresh: bool = False
) -> KnownCatalog:
    """The same, after asking those of the servers that never were; with `refresh`, all of them.

    Servers that need an approval are not asked.
    """
    ask = [
        server.server_id
        for server in servers
        if server.usable
        and found.saved[server.server_id].approved
        and (refresh or server.server_id not in found.listings)
    ]
    if not ask:
        return found
    failures = ask_now(found.loaded, ask)
    return KnownCatalog(
        loaded=found.loaded,
        selection=found.selection,
        saved=read_saved(found.loaded),
        failed={name: UnavailableServer.because(error) for name, error in failures.items()},
    )


def exit_without(found: KnownCatalog, missing: Iterable[LoadedServer]) -> Exit:
    """The status of a command that had to do without some servers."""
    absences = [found.absence(server.server_id) for server in missing]
    if not absences:
        return Exit.OK
    persons = all(absence is not None and absence.needs_a_person for absence in absences)
    return Exit.NEEDS_A_PERSON if persons else Exit.NOT_READY


def warn_of_absent(found: KnownCatalog, servers: Iterable[LoadedServer]) -> None:
    """Name the servers that cannot be had, so that what is missing is not taken for what is not there."""
    for server in servers:
        if (absence := found.absence(server.server_id)) is not None:
            warn(absence.reason, absence.hint)


def ask_now(loaded: LoadedConfig, server_ids: list[str]) -> dict[str, FairleadError]:
    """Connect servers and keep what they offer. Returns what went wrong, by server."""
    from fairlead.cli.host_run import run_with_host, spinning
    from fairlead.cli.prompts import operator_here
    from fairlead.host.host import Host

    failures: dict[str, FairleadError] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        doing = f"connecting {', '.join(server_ids)} …"
        async with Host.open(loaded, operator=operator) as host, spinning(doing):
            failures.update(await host.connect(*server_ids))
        return 0

    run_with_host(main)
    return failures


def with_live(
    found: KnownCatalog, servers: Sequence[LoadedServer], running: RunningGateway, *, refresh: bool
) -> KnownCatalog:
    """What a gateway knows of servers, once those that never were asked are; raises `GatewayGone`."""
    from fairlead.cli.host_run import run_with_host, spinning
    from fairlead.cli.prompts import operator_here
    from fairlead.gateway.control.client import attach_to_gateway

    live: dict[str, KnownServer] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        async with attach_to_gateway(running, found.loaded, operator) as host, spinning("asking …"):
            wanted = tuple(server.server_id for server in servers)
            live.update(await host.servers(wanted, refresh=refresh))
        return 0

    run_with_host(main)
    return replace(
        found,
        saved={
            **found.saved,
            **{name: _update_saved_state(found.saved[name], name, said) for name, said in live.items()},
        },
        failed={name: _absence(said) for name, said in live.items() if said.failure},
    )


def _update_saved_state(before: SavedState, server_id: str, said: "KnownServer") -> SavedState:
    snapshot = snapshot_of(server_id, said.snapshot) if said.snapshot else None
    screened = ScreenedListing(listing=snapshot.listing, quarantined=said.quarantined) if snapshot else None
    return replace(before, snapshot=snapshot, screened=screened, trouble=said.trouble)


def _absence(said: "KnownServer") -> UnavailableServer:
    from fairlead.gateway.control.protocol import decode_error

    assert said.failure is not None
    return UnavailableServer.because(decode_error(said.failure))


OfferT = TypeVar("OfferT", bound=ServerOffer)

KnownOffers = Callable[[str, Listing], Iterable[OfferT]]
"""Picks what is wanted from what a server is known to offer."""
Ask = Callable[["Host", str | None], Awaitable["CombinedList[OfferT]"]]
"""Has a host say what one server offers, or all."""


def offered(
    ctx: click.Context,
    server_id: str | None,
    known: KnownOffers[OfferT],
    ask: "Ask[OfferT]",
    *,
    refresh: bool,
) -> tuple[list[OfferT], Exit]:
    """What one server offers, or all, and the status to end with. Nobody is asked whose word is known."""
    loaded = load(ctx)
    wanted = [loaded.server(server_id)] if server_id else [s for s in loaded.servers.values() if s.enabled]
    saved = read_saved(loaded)
    found: list[OfferT] = []
    unknown = False
    for server in wanted:
        screened = saved[server.server_id].screened
        unknown = unknown or screened is None
        found += known(server.server_id, screened.listing) if screened else ()
    # A server that is asked for by name may have what it did not declare.
    if refresh or unknown or (server_id is not None and not found):
        return _list_offers_live(loaded, server_id, ask, refresh=refresh)
    return found, Exit.OK


def _list_offers_live(
    loaded: LoadedConfig, server_id: str | None, ask: "Ask[OfferT]", *, refresh: bool
) -> tuple[list[OfferT], Exit]:
    from fairlead.cli.host_run import run_with_host, spinning
    from fairlead.cli.prompts import operator_here
    from fairlead.host.host import Host

    found: list[OfferT] = []
    failures: dict[str, FairleadError] = {}

    async def main() -> int:
        async with Host.open(loaded, operator=operator_here()) as host, spinning("asking …"):
            if refresh:
                failures.update(await (host.connect(server_id) if server_id else host.connect_all()))
            gathered = await ask(host, server_id)
            found.extend(gathered.items)
            failures.update(gathered.failures)
        return Exit.OK

    run_with_host(main)
    for failure in failures.values():
        warn(str(failure), failure.hint)
    return found, Exit.NOT_READY if failures else Exit.OK


def on_one_line(text: str | None, limit: int = 80) -> str:
    """A server's words in a cell of a table."""
    line = " ".join((text or "").split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def no_gateway_option(function: FunctionT) -> FunctionT:
    """Add `--no-gateway`: start servers though a gateway has them."""
    return click.option(
        "--no-gateway", is_flag=True, help="Start servers, though a gateway runs that has them."
    )(function)


def gateway_for(loaded: LoadedConfig, *, no_gateway: bool) -> RunningGateway | None:
    """The gateway that runs with this configuration and works in this folder, and is wanted; says so."""
    if no_gateway:
        return None
    running = find(os.environ, sources_of(loaded), workspace(place_of(os.environ, Path.cwd())))
    if running is not None:
        say(f"through the gateway at {running.url}")
    return running


def warn_of_gone(gone: GatewayGone) -> None:
    """Say that a gateway could not be asked after all, and what is done instead."""
    warn(f"{gone}; doing it without")
