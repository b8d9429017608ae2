"""Resources and prompts, for the commands that show them: what is known at once, the rest by asking."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from fairlead.catalog.entries import Listing
from fairlead.catalog.offers import Offer
from fairlead.cli.exits import Exit
from fairlead.cli.options import load
from fairlead.cli.output import warn
from fairlead.cli.saved import read_saved
from fairlead.config.load import LoadedConfig
from fairlead.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.host.contents import Gathered
    from fairlead.host.host import Host

OfferT = TypeVar("OfferT", bound=Offer)

Known = Callable[[str, Listing], Iterable[OfferT]]
"""Picks what is wanted from what a server is known to offer."""
Ask = Callable[["Host", str | None], Awaitable["Gathered[OfferT]"]]
"""Has a host say what one server offers, or all."""


def offered(
    ctx: click.Context, server_id: str | None, known: Known[OfferT], ask: "Ask[OfferT]", *, refresh: bool
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
        return _asked(loaded, server_id, ask, refresh=refresh)
    return found, Exit.OK


def _asked(
    loaded: LoadedConfig, server_id: str | None, ask: "Ask[OfferT]", *, refresh: bool
) -> tuple[list[OfferT], Exit]:
    from fairlead.cli.running import run_with_host, spinning
    from fairlead.cli.terminal import operator_here
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
