"""`fairlead tools`."""

import json
from typing import Any

import click

from fairlead.catalog.entries import ToolEntry
from fairlead.cli.exits import Exit
from fairlead.cli.options import json_option, load
from fairlead.cli.output import print_data, print_json, print_table, printable, say
from fairlead.cli.saved import Saved, read_saved
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.policy.decision import decide


@click.command("tools")
@click.argument("server_id", metavar="[ID]", required=False)
@click.option("--schema", is_flag=True, help="Show what each tool takes.")
@click.option("--refresh", is_flag=True, help="Ask the servers again.")
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, schema: bool, refresh: bool, as_json: bool) -> int:
    """Show the tools of one server, or of all. Known ones at once; servers never asked are asked now.

    \b
    Examples:
      fairlead tools
      fairlead tools files --schema
    """
    loaded = load(ctx)
    wanted = [loaded.server(server_id)] if server_id else [s for s in loaded.servers.values() if s.enabled]
    saved = read_saved(loaded)
    unknown = [s for s in wanted if s.usable and (refresh or saved[s.server_id].snapshot is None)]
    ask = [server.server_id for server in unknown if saved[server.server_id].approved]
    complete = _ask(loaded, ask) if ask else True
    for server in unknown:
        if not saved[server.server_id].approved:
            complete = False
            say(f"`{server.server_id}` is not approved: run `fairlead approve {server.server_id}`")
    saved = read_saved(loaded) if ask else saved
    tools = [(server, entry) for server in wanted for entry in _entries(server, saved[server.server_id])]
    if as_json:
        print_json({"tools": [_as_json(server, entry) for server, entry in tools]})
    elif schema:
        _show_schemas(tools)
    elif tools:
        print_table(("server", "tool", "allowed", "description"), [_row(*tool) for tool in tools])
        _say_how_to_allow(tools)
    else:
        say("no tools known")
    return Exit.OK if complete else Exit.NOT_READY


def _ask(loaded: LoadedConfig, server_ids: list[str]) -> bool:
    from fairlead.cli.running import connect_with_words, run_with_host
    from fairlead.host.host import Host

    async def main() -> int:
        async with Host.open(loaded) as host:
            return int(await connect_with_words(host, server_ids))

    return bool(run_with_host(main))


def _entries(server: LoadedServer, saved: Saved) -> tuple[ToolEntry, ...]:
    if saved.snapshot is None:
        return ()
    for tool in saved.snapshot.listing.rejected:
        say(f"warning: {server.server_id}/{printable(tool.name)} is left out: {printable(tool.reason)}")
    return saved.snapshot.listing.tools


def _allowed(server: LoadedServer, entry: ToolEntry) -> bool:
    return server.config is not None and decide(server.config, entry.key.tool).verdict == "allow"


def _row(server: LoadedServer, entry: ToolEntry) -> tuple[str, ...]:
    description = " ".join((entry.description or entry.title or "").split())
    short = description if len(description) <= 80 else f"{description[:79]}…"
    return server.server_id, entry.key.tool, "yes" if _allowed(server, entry) else "no", short


def _as_json(server: LoadedServer, entry: ToolEntry) -> dict[str, Any]:
    return {"server": server.server_id, "allowed": _allowed(server, entry), **entry.read()}


def _show_schemas(tools: list[tuple[LoadedServer, ToolEntry]]) -> None:
    for _, entry in tools:
        print_data(printable(str(entry.key)))
        shown = json.dumps(entry.read().get("inputSchema", {}), indent=2, ensure_ascii=False)
        print_data("\n".join(f"  {printable(line)}" for line in shown.split("\n")))


def _say_how_to_allow(tools: list[tuple[LoadedServer, ToolEntry]]) -> None:
    shut = {server.server_id for server, entry in tools if not _allowed(server, entry)}
    if shut:
        say("\nhint: agents may use what `allow_tools` of its server names; you may call any tool yourself")
