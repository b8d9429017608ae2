"""`fairlead prompts`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fairlead.catalog.sanitize.definitions import clean_offers
from fairlead.catalog.tools import Listing, PromptOffer
from fairlead.cli.catalogs import list_offers
from fairlead.cli.options import json_option
from fairlead.terminal.output import on_one_line, print_json, print_table, say

if TYPE_CHECKING:
    from fairlead.host.host import Host
    from fairlead.host.offers.contents import CombinedList


@click.command("prompts")
@click.argument("server_id", metavar="[ID]", required=False)
@click.option("--refresh", is_flag=True, help="Ask the servers again.")
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, refresh: bool, as_json: bool) -> int:
    """Show the prompts of one server, or of all: from snapshots; servers without one are listed now.

    \b
    Examples:
      fairlead prompts
      fairlead prompts everything --json
    """
    found, status = list_offers(ctx, server_id, _read_known_prompts, _ask, refresh=refresh)
    if as_json:
        print_json({"prompts": [_as_json(prompt) for prompt in found]})
    elif found:
        print_table(("server", "prompt", "arguments", "description"), [_row(prompt) for prompt in found])
        say("\nhint: `fairlead prompt ID NAME ARGUMENT=VALUE` shows one; arguments in [] can be left out")
    else:
        say("no prompts known")
    return status


def _read_known_prompts(server_id: str, listing: Listing) -> Iterator[PromptOffer]:
    return clean_offers(server_id, PromptOffer, listing.prompts)


async def _ask(host: "Host", server_id: str | None) -> "CombinedList[PromptOffer]":
    return await host.prompts.list(server_id)


def _row(prompt: PromptOffer) -> tuple[str, ...]:
    names = (argument.name if argument.required else f"[{argument.name}]" for argument in prompt.arguments)
    words = on_one_line(prompt.description or prompt.title)
    return prompt.server_id, prompt.name, " ".join(names) or "-", words


def _as_json(prompt: PromptOffer) -> dict[str, Any]:
    return {
        "server": prompt.server_id,
        "name": prompt.name,
        "title": prompt.title,
        "description": prompt.description,
        "arguments": [
            {"name": argument.name, "description": argument.description, "required": argument.required}
            for argument in prompt.arguments
        ],
    }
