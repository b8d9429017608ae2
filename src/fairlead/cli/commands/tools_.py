"""`fairlead tools`."""

import json
from typing import Any

import click

from fairlead.actions.known_catalog import KnownCatalog, read_catalog
from fairlead.actions.tool_lookup import find_entry, locate_tool, no_such_tool
from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.cli.catalogs import (
    ask_unknown,
    bundle_option,
    exit_without,
    gateway_for,
    no_gateway_option,
    warn_of_absent,
    warn_of_gone,
    with_live,
)
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedServer
from fairlead.errors import GatewayGone
from fairlead.gateway.registry import RunningGateway
from fairlead.policy.decision import CallPolicy, decide_by_lists
from fairlead.policy.quarantine import CallRefusal
from fairlead.policy.tool_names import owners_of
from fairlead.terminal.output import on_one_line, print_data, print_json, print_table, printable, say, warn
from fairlead.terminal.tables import show_costs

Listed = list[tuple[LoadedServer, ToolEntry]]
_MOST_REFUSALS = 20


@click.command("tools")
@click.argument("server_id", metavar="[ID|ID.TOOL]", required=False)
@bundle_option
@click.option("--schema", is_flag=True, help="Show input schemas.")
@click.option(
    "--cost", is_flag=True, help="Show how many tokens the tools cost a model, by server or by tool."
)
@click.option("--refresh", is_flag=True, help="Ask the servers again.")
@no_gateway_option
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    server_id: str | None,
    bundle: str | None,
    *,
    schema: bool,
    cost: bool,
    refresh: bool,
    no_gateway: bool,
    as_json: bool,
) -> int:
    """Show the tools of one server, or of all: from snapshots; servers without one are listed now.

    Where a gateway runs with this configuration, it is what that one has. A tool is shown as `fairlead call`
    and the other commands take it: the server's id, a dot, the tool's name.

    \b
    Examples:
      fairlead tools
      fairlead tools files
      fairlead tools files.read_text_file --schema
      fairlead tools --cost
      fairlead tools files --cost
    """
    if cost and schema:
        raise click.UsageError("`--cost` and `--schema` do not go together", ctx)
    found = read_catalog(load(ctx), bundle)
    server_id, only = _read_name(found, server_id)
    servers = [found.server(server_id)] if server_id else found.chosen
    found = _refresh_catalog(
        found, servers, gateway_for(found.loaded, no_gateway=no_gateway), refresh=refresh
    )
    tools = [(server, entry) for server in servers for entry in _entries(found, server)]
    if only is not None and tools:
        entries = [entry for _, entry in tools]
        named = find_entry(only, entries)
        if named is None:
            raise no_such_tool(only, entries)
        tools = [tool for tool in tools if tool[1] is named]
    if cost:
        show_costs(found, [entry for _, entry in tools], by_tool=server_id is not None, as_json=as_json)
    elif as_json:
        print_json({"tools": [_as_json(found, *tool) for tool in tools]})
    elif schema:
        _show_schemas(tools)
    elif tools:
        print_table(("tool", "answer", "description"), [_row(found, *tool) for tool in tools])
        _tell_refusals(found, tools)
        _say_how_to_allow(found, tools)
    else:
        say("no tools known")
    if server_id is not None and server_id in found.listings:
        for note in found.listings[server_id].notes:
            say(f"note: {printable(note)}")
    missing = [s for s in servers if s.server_id in found.failed or s.server_id not in found.listings]
    warn_of_absent(found, missing)
    return exit_without(found, missing)


def _read_name(found: KnownCatalog, name: str | None) -> tuple[str | None, ToolKey | None]:
    """The server that was named, and the tool of it if one was."""
    if name is None or name in found.loaded.servers or not owners_of(name, found.loaded.servers):
        return name, None
    key = locate_tool(found.loaded, name)
    return key.server_id, key


def _refresh_catalog(
    found: KnownCatalog, servers: list[LoadedServer], running: RunningGateway | None, *, refresh: bool
) -> KnownCatalog:
    if running is not None:
        try:
            return with_live(found, servers, running, refresh=refresh)
        except GatewayGone as exc:
            warn_of_gone(exc)
    return ask_unknown(found, servers, refresh=refresh)


def _entries(found: KnownCatalog, server: LoadedServer) -> tuple[ToolEntry, ...]:
    listing = found.listings.get(server.server_id)
    if listing is None:
        return ()
    for tool in listing.rejected:
        warn(f"{_render_key(ToolKey(server.server_id, tool.name))} is left out: {tool.reason}")
    return tuple(clean_tool(entry).entry for entry in listing.tools)


def _is_allowed(found: KnownCatalog, server: LoadedServer, entry: ToolEntry) -> bool:
    bundle_filter, key = found.selection.bundle_filter(server.server_id), entry.key
    if server.config is None:
        return False
    by_lists = decide_by_lists(server.config, key.tool, bundle_filter, server_id=key.server_id)
    return by_lists.verdict == "allow"


def _refusal(found: KnownCatalog, server: LoadedServer, entry: ToolEntry) -> CallRefusal | None:
    """Why a tool may not be called now, regardless of policy; None where only policy decides."""
    return found.screened[server.server_id].refusal(entry.key.tool)


def _row(found: KnownCatalog, server: LoadedServer, entry: ToolEntry) -> tuple[str, ...]:
    answer = _answer(found, server, entry)
    return entry.key.qualified, answer, on_one_line(entry.description or entry.title)


def _answer(found: KnownCatalog, server: LoadedServer, entry: ToolEntry) -> str:
    """Permission of a tool: allow, ask or deny; held back until a review; or refused for its definition."""
    if (refusal := _refusal(found, server, entry)) is not None:
        return "refused" if refusal.kind == "rejected" else "held back"
    if server.config is None:
        return "deny"
    policy = CallPolicy(server, before_defaults=server.server_id in found.before_defaults)
    return found.selection.decide(policy, entry.key.tool, entry).verdict


def _as_json(found: KnownCatalog, server: LoadedServer, entry: ToolEntry) -> dict[str, Any]:
    refusal = _refusal(found, server, entry)
    is_rejected = refusal is not None and refusal.kind == "rejected"
    return {
        "server": server.server_id,
        "qualified": entry.key.qualified,
        "allowed": _is_allowed(found, server, entry),
        "answer": _answer(found, server, entry),
        "quarantined": refusal.reason if refusal is not None and not is_rejected else None,
        "rejected": refusal.reason if refusal is not None and is_rejected else None,
        **entry.read(),
    }


def _tell_refusals(found: KnownCatalog, tools: Listed) -> None:
    """Say why tools are refused or held back, which no rule explains."""
    refused = [
        (entry.key, _answer(found, server, entry), refusal)
        for server, entry in tools
        if (refusal := _refusal(found, server, entry)) is not None
    ]
    for key, answer, refusal in refused[:_MOST_REFUSALS]:
        warn(f"{key.qualified} is {answer}: {refusal.reason}", refusal.hint)
    if len(refused) > _MOST_REFUSALS:
        say(f"and {len(refused) - _MOST_REFUSALS} more: `fairlead explain tool NAME` says why")


def _show_schemas(tools: Listed) -> None:
    for _, entry in tools:
        print_data(printable(_render_key(entry.key)))
        shown = json.dumps(entry.read().get("inputSchema", {}), indent=2, ensure_ascii=False)
        print_data("\n".join(f"  {printable(line)}" for line in shown.split("\n")))


def _render_key(key: ToolKey) -> str:
    return key.qualified


def _say_how_to_allow(found: KnownCatalog, tools: Listed) -> None:
    if any(not _is_allowed(found, server, entry) for server, entry in tools):
        say("\nhint: `fairlead review ID` decides what agents may call; `fairlead explain ID` shows why")
