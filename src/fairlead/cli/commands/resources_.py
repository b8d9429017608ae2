"""`fairlead resources`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fairlead.catalog.sanitize.definitions import clean_offers
from fairlead.catalog.tools import Listing, ResourceOffer, ResourceTemplate
from fairlead.cli.catalogs import list_offers
from fairlead.cli.options import json_option
from fairlead.terminal.output import on_one_line, print_json, print_table, say

if TYPE_CHECKING:
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import CombinedList

Readable = ResourceOffer | ResourceTemplate


@click.command("resources")
@click.argument("server_id", metavar="[ID]", required=False)
@click.option("--refresh", is_flag=True, help="Ask the servers again.")
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, refresh: bool, as_json: bool) -> int:
    """Show the resources of one server, or of all: from snapshots; servers without one are listed now.

    \b
    Examples:
      fairlead resources
      fairlead resources files --json
    """
    found, status = list_offers(ctx, server_id, _read_known_resources, _ask, refresh=refresh)
    if as_json:
        print_json(
            {
                "resources": [_as_json(item) for item in found if isinstance(item, ResourceOffer)],
                "templates": [_as_json(item) for item in found if isinstance(item, ResourceTemplate)],
            }
        )
    elif found:
        print_table(("server", "uri", "type", "description"), [_row(item) for item in found])
        if any(isinstance(item, ResourceTemplate) for item in found):
            say("\nhint: fill in a `{…}` with `fairlead read ID 'URI' --arg NAME=VALUE`")
    else:
        say("no resources known")
    return status


def _read_known_resources(server_id: str, listing: Listing) -> Iterator[Readable]:
    yield from clean_offers(server_id, ResourceOffer, listing.resources)
    yield from clean_offers(server_id, ResourceTemplate, listing.templates)


async def _ask(host: "Host", server_id: str | None) -> "CombinedList[Readable]":
    from fairlead.host.offers.contents import CombinedList

    resources = await host.resources.list(server_id)
    templates = await host.resources.templates(server_id)
    items = (*resources.items, *templates.items)
    return CombinedList(items=items, failures=resources.failures | templates.failures)


def _uri(item: Readable) -> str:
    return item.uri if isinstance(item, ResourceOffer) else item.uri_template


def _row(item: Readable) -> tuple[str, ...]:
    return item.server_id, _uri(item), item.mime_type or "-", on_one_line(item.description or item.label)


def _as_json(item: Readable) -> dict[str, Any]:
    shared = {
        "server": item.server_id,
        "name": item.name,
        "title": item.title,
        "description": item.description,
        "mimeType": item.mime_type,
    }
    if isinstance(item, ResourceOffer):
        return {"uri": item.uri, **shared, "size": item.size}
    return {"uriTemplate": item.uri_template, **shared}
