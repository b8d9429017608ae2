"""Resources, templates and prompts of one server or of all, from what is known or by asking."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import anyio

from fairlead.catalog.cleaning import clean_offers
from fairlead.catalog.entries import Listing
from fairlead.catalog.offers import Offer, Prompt, Resource, ResourceTemplate
from fairlead.errors import FairleadError
from fairlead.host.contents import Gathered

if TYPE_CHECKING:
    from fairlead.host.host import Host

OfferT = TypeVar("OfferT", bound=Offer)

_LISTS: dict[type[Offer], str] = {
    Resource: "resources/list",
    ResourceTemplate: "resources/templates/list",
    Prompt: "prompts/list",
}


def _every(server_id: str) -> bool:
    return True


async def gather(
    host: "Host",
    kind: type[OfferT],
    server_id: str | None,
    *,
    among: Callable[[str], bool] = _every,
) -> Gathered[OfferT]:
    """What one server offers, or all. One server that cannot say costs only its own."""
    if server_id is not None:
        return Gathered(items=await _of_one(host, kind, server_id), failures={})
    found: dict[str, tuple[OfferT, ...]] = {}
    failures: dict[str, FairleadError] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = offers_in(await host.offers(name), kind, name)
        except FairleadError as exc:
            failures[name] = exc

    names = [status.server_id for status in host.status() if status.enabled and among(status.server_id)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(ask, name)
    items = tuple(item for name in names for item in found.get(name, ()))
    return Gathered(items=items, failures=failures)


async def _of_one(host: "Host", kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
    listing = await host.offers(server_id)
    known = offers_in(listing, kind, server_id)
    if known:
        return known
    # Some offer what they did not declare, and were not asked for it when they connected.
    connection = await host.reach(server_id)
    asked = await connection.list_undeclared(_LISTS[kind])
    return tuple(clean_offers(server_id, kind, asked))


def offers_in(listing: Listing, kind: type[OfferT], server_id: str) -> tuple[OfferT, ...]:
    """What of that kind is in what a server said it offers."""
    definitions: dict[type[Offer], tuple[bytes, ...]] = {
        Resource: listing.resources,
        ResourceTemplate: listing.templates,
        Prompt: listing.prompts,
    }
    return tuple(clean_offers(server_id, kind, definitions[kind]))
