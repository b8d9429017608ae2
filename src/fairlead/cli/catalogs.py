"""The catalog for commands that show it: from snapshots, and from servers that have none.

A running gateway is used in place of a host of the command's own.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.actions.known_catalog import KnownCatalog, UnavailableServer
from fairlead.actions.saved_state import SavedState, read_saved
from fairlead.catalog.tools import Listing, ServerOffer
from fairlead.cli.options import load
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.sources import place_of, workspace
from fairlead.errors import FairleadError, GatewayGone
from fairlead.gateway.registry import RunningGateway, find, sources_of
from fairlead.host.snapshots import snapshot_of
from fairlead.policy.quarantine import ScreenedListing
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import say, warn

if TYPE_CHECKING:
    from fairlead.gateway.control.protocol import KnownServer
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import CombinedList

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def bundle_option(function: FunctionT) -> FunctionT:
    """Add `--bundle`: the selection of tools."""
    return click.option("--bundle", metavar="NAME", help="Only the tools of this bundle, as it offers them.")(
        function
    )


def ask_unknown(
    found: KnownCatalog, servers: Iterable[LoadedServer], *, refresh: bool = False
) -> KnownCatalog:
    """Return the catalog after connecting servers without a snapshot; with `refresh`, all of them.

    Servers that need consent are not contacted.
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
    """Exit status of a command for which some servers were unavailable."""
    absences = [found.absence(server.server_id) for server in missing]
    if not absences:
        return Exit.OK
    persons = all(absence is not None and absence.needs_a_person for absence in absences)
    return Exit.NEEDS_A_PERSON if persons else Exit.NOT_READY


def warn_of_absent(found: KnownCatalog, servers: Iterable[LoadedServer]) -> None:
    """Warn of unavailable servers, so that their tools are not taken for non-existent."""
    for server in servers:
        if (absence := found.absence(server.server_id)) is not None:
            warn(absence.reason, absence.hint)


def ask_now(loaded: LoadedConfig, server_ids: list[str]) -> dict[str, FairleadError]:
    """Connect servers and keep what they offer. Returns what went wrong, by server."""
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    failures: dict[str, FairleadError] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        doing = f"connecting {', '.join(server_ids)} …"
        async with Host.open(loaded, operator=operator) as host, spinning(doing, host.bus):
            failures.update(await host.connect(*server_ids))
        return 0

    run_async(main)
    return failures


def with_live(
    found: KnownCatalog, servers: Sequence[LoadedServer], running: RunningGateway, *, refresh: bool
) -> KnownCatalog:
    """Return the catalog with a gateway's listings, of servers never listed too; raises `GatewayGone`."""
    from fairlead.gateway.control.client import attach_to_gateway
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    live: dict[str, KnownServer] = {}

    async def main() -> int:
        operator = operator_here()  # who is there can log in where a server wants it
        async with attach_to_gateway(running, found.loaded, operator) as host, spinning("asking …"):
            wanted = tuple(server.server_id for server in servers)
            live.update(await host.servers(wanted, refresh=refresh))
        return 0

    run_async(main)
    return replace(
        found,
        saved={
            **found.saved,
            **{name: _update_saved_state(found.saved[name], name, state) for name, state in live.items()},
        },
        failed={name: _absence(state) for name, state in live.items() if state.failure},
    )


def _update_saved_state(before: SavedState, server_id: str, live: "KnownServer") -> SavedState:
    snapshot = snapshot_of(server_id, live.snapshot) if live.snapshot else None
    screened = ScreenedListing(listing=snapshot.listing, quarantined=live.quarantined) if snapshot else None
    return replace(before, snapshot=snapshot, screened=screened, trouble=live.trouble)


def _absence(live: "KnownServer") -> UnavailableServer:
    from fairlead.gateway.carried_errors import decode_error

    assert live.failure is not None
    return UnavailableServer.because(decode_error(live.failure))


OfferT = TypeVar("OfferT", bound=ServerOffer)

KnownOffers = Callable[[str, Listing], Iterable[OfferT]]
"""Picks what is wanted from what a server is known to offer."""
Ask = Callable[["Host", str | None], Awaitable["CombinedList[OfferT]"]]
"""Has a host say what one server offers, or all."""


def list_offers(
    ctx: click.Context,
    server_id: str | None,
    known: KnownOffers[OfferT],
    ask: "Ask[OfferT]",
    *,
    refresh: bool,
) -> tuple[list[OfferT], Exit]:
    """List offers of one server or all, with the exit status. Servers with a snapshot are not contacted."""
    loaded = load(ctx)
    wanted = [loaded.server(server_id)] if server_id else [s for s in loaded.servers.values() if s.enabled]
    saved = read_saved(loaded)
    found: list[OfferT] = []
    unknown = False
    for server in wanted:
        screened = saved[server.server_id].screened
        unknown = unknown or screened is None
        found += known(server.server_id, screened.listing) if screened else ()
    # A server that is named may have what it did not declare.
    if refresh or unknown or (server_id is not None and not found):
        return _list_offers_live(loaded, server_id, ask, refresh=refresh)
    return found, Exit.OK


def _list_offers_live(
    loaded: LoadedConfig, server_id: str | None, ask: "Ask[OfferT]", *, refresh: bool
) -> tuple[list[OfferT], Exit]:
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

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

    run_async(main)
    for failure in failures.values():
        warn(str(failure), failure.hint)
    return found, Exit.NOT_READY if failures else Exit.OK


def no_gateway_option(function: FunctionT) -> FunctionT:
    """Add `--no-gateway`: start servers though a gateway has them."""
    return click.option(
        "--no-gateway", is_flag=True, help="Start servers, though a gateway runs that has them."
    )(function)


def gateway_for(loaded: LoadedConfig, *, no_gateway: bool) -> RunningGateway | None:
    """Return the running gateway to use for this configuration and folder, if any, and say so."""
    if no_gateway:
        return None
    running = find(os.environ, sources_of(loaded), workspace(place_of(os.environ, Path.cwd())))
    if running is not None:
        say(f"through the gateway at {running.url}")
    return running


def warn_of_gone(gone: GatewayGone) -> None:
    """Warn that a gateway did not answer, and say what is done instead."""
    warn(f"{gone}; continuing without the gateway")
