"""`fairlead explain`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fairlead.cli.options import json_option, load, server_argument
from fairlead.config.command_lines import command_line
from fairlead.config.explain import FieldOrigin, LayerValue, explain_server
from fairlead.config.principal import GROUP, LOCAL
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, UnknownServer, UnknownTool
from fairlead.terminal.output import (
    print_data,
    print_json,
    print_problems,
    print_table,
    printable,
    problem_as_json,
    say,
)
from fairlead.wording import join_clauses

if TYPE_CHECKING:
    from fairlead.actions.explain import CallerView
    from fairlead.actions.known_catalog import KnownCatalog, UnavailableServer
    from fairlead.catalog.sanitize.definitions import DefinitionFinding
    from fairlead.config.load import LoadedConfig, LoadedServer
    from fairlead.host.model.explain import Reason, ToolExplanation


class _ExplainGroup(click.Group):
    """Takes `fairlead explain ID` for `fairlead explain server ID`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; what is none is the id of a server."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["server", *args]
        return super().resolve_command(ctx, args)


_AS = click.option(
    "--as",
    "principal",
    metavar="PRINCIPAL",
    default=LOCAL,
    help="For calls of this principal: as `fairlead audit` shows it, the name of a gateway token, or a"
    " subject of your OAuth issuer.",
)
_BUNDLE = click.option("--bundle", metavar="NAME", help="As this bundle offers it.")
_GROUP = click.option("--group", "groups", multiple=True, metavar="NAME", help="A group it is in; repeat it.")


@click.group("explain", cls=_ExplainGroup)
def command() -> None:
    """Say where a value came from, and what it overrode; or why a tool is there, and what it may do.

    `fairlead explain ID` is short for `fairlead explain server ID`.
    """


@command.command("server")
@server_argument
@click.option("--all", "show_all", is_flag=True, help="Show the fields that are not set, too.")
@_BUNDLE
@_AS
@_GROUP
@json_option
@click.pass_context
def server_command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    server_id: str,
    bundle: str | None,
    principal: str,
    groups: tuple[str, ...],
    *,
    show_all: bool,
    as_json: bool,
) -> None:
    """Every field of a server, and what its tools may do: the value, and the file and line that set it.

    \b
    Examples:
      fairlead explain github
      fairlead explain server github --all
      fairlead explain server github --as ada@example.org --group interns
    """
    from fairlead.actions.explain import explain_server_tools

    loaded = load(ctx)
    server = _find_server(loaded, server_id)
    rows = explain_server(server)
    tools = explain_server_tools(loaded, server_id, _view(loaded, principal, groups, bundle))
    if as_json:
        problems = [problem_as_json(problem) for problem in server.problems]
        print_json(
            {
                "id": server_id,
                "fields": [asdict(row) for row in rows],
                "problems": problems,
                "tools": [_tool_as_json(tool, None, ()) for tool in tools],
            }
        )
        return
    shown = [row for row in rows if show_all or not _is_default(row)]
    print_table(("field", "value", "set by", "overrode"), [_row(row) for row in shown])
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown)} more fields have their built-in default; `--all` shows them")
    if tools:
        print_data("")
        print_table(("tool", "answer", "because", "set by"), [_tool_row(tool) for tool in tools])
    else:
        say(f"its tools are not known yet; `{command_line('tools', server_id)}` asks for them")
    if server.problems:
        say()
        print_problems(server.problems)


def _find_server(loaded: "LoadedConfig", name: str) -> "LoadedServer":
    """The server of that id. A tool's name in its place is answered by the command for tools."""
    try:
        return loaded.server(name)
    except UnknownServer as exc:
        from fairlead.actions.explain import find_tools
        from fairlead.actions.known_catalog import read_catalog

        owner, slash, _ = name.partition("/")
        if (slash and owner in loaded.servers) or find_tools(read_catalog(loaded), name):
            command = command_line("explain tool", name)
            raise UnknownServer(str(exc), hint=f"run `{command}` for a tool") from exc
        raise


def _view(
    loaded: "LoadedConfig", principal: str, groups: tuple[str, ...], bundle: str | None
) -> "CallerView":
    """The caller that `--as` means, and what it was taken for where that may surprise."""
    from fairlead.actions.explain import view_for

    if principal.startswith(GROUP):
        instead = f"say `--group {principal.removeprefix(GROUP)}` in the place of `--as {principal}`"
        raise click.UsageError(f"`{principal}` is a group, and no principal: {instead}")
    view = view_for(loaded, principal, groups, bundle)
    for note in view.notes:
        say(f"note: {printable(note)}")
    return view


def _tool_row(tool: "ToolExplanation") -> tuple[str, ...]:
    from fairlead.actions.explain import reason_in_short

    return tool.key.revealed_tool, tool.answer, reason_in_short(tool), tool.decided_by.place or "the default"


def _is_default(row: FieldOrigin) -> bool:
    return row.in_effect is not None and row.in_effect.layer == "default"


def _row(row: FieldOrigin) -> tuple[str, ...]:
    current = row.in_effect
    overrode = "; ".join(f"{_value(lost)} ({lost.layer}: {lost.place})" for lost in row.overrode)
    if current is None:
        return row.field, "(not set any more)", "-", overrode
    return (
        row.field,
        _value(current),
        f"{current.layer}: {current.place}" if current.place else current.layer,
        overrode or "-",
    )


def _value(value: LayerValue) -> str:
    return value.value if isinstance(value.value, str) else json.dumps(value.value, ensure_ascii=False)


@command.command("setting")
@click.argument("name", required=False)
@json_option
@click.pass_context
def setting_command(ctx: click.Context, name: str | None, *, as_json: bool) -> None:
    """Settings outside of servers, or one of them: the value, its default, and the file and line that set it.

    \b
    Examples:
      fairlead explain setting
      fairlead explain setting audit
      fairlead explain setting audit.keep_days
    """
    from fairlead.config.explain import explain_settings

    settings = explain_settings(load(ctx))
    found = [each for each in settings if name is None or f"{each.name}.".startswith(f"{name}.")]
    if not found:
        hint = suggestion(name or "", [each.name for each in settings])
        raise ConfigError(
            f"there is no setting `{name}`", hint=hint or "`fairlead explain setting` lists them all"
        )
    if as_json:
        print_json({"settings": [asdict(each) for each in found]})
        return
    rows = [(each.name, _value_text(each.value), each.place or "the default") for each in found]
    print_table(("setting", "value", "set by"), rows)
    if len(found) == 1 and found[0].description:
        print_data(f"\n{found[0].description} The default is {_value_text(found[0].default)}.")


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@command.command("tool")
@click.argument("name")
@_BUNDLE
@_AS
@_GROUP
@json_option
@click.pass_context
def tool_command(
    ctx: click.Context,
    name: str,
    bundle: str | None,
    principal: str,
    groups: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Say whether agents get a tool, how and under which name, and which rule in which file decides that.

    NAME is `server.tool`, what the server calls it alone, or what models call it; all that it may mean are
    explained. Nothing is started for tools that are known.

    \b
    Examples:
      fairlead explain tool create_issue
      fairlead explain tool github.create_issue --bundle work
      fairlead explain tool deploy --as ada@example.org --group interns
      fairlead explain tool mcp_github_create_issue_1f0c2a9d
    """
    from fairlead.actions.explain import explain_tools, find_tools
    from fairlead.actions.known_catalog import read_catalog
    from fairlead.cli.catalogs import ask_unknown

    loaded = load(ctx)
    view = _view(loaded, principal, groups, bundle)
    found = read_catalog(loaded, view.bundle, view.caller)
    keys = find_tools(found, name)
    if not keys:
        found = ask_unknown(found, found.loaded.servers.values())
        keys = find_tools(found, name)
    if not keys:
        raise _unknown_tool(found, name)
    tools = explain_tools(found, keys, view)
    explained = [
        (tool, found.absence(tool.key.server_id), found.catalog.findings.get(tool.key, ())) for tool in tools
    ]
    if as_json:
        print_json({"tools": [_tool_as_json(*each) for each in explained]})
        return
    for position, each in enumerate(explained):
        if position:
            print_data("")
        _show_tool(*each)


def _unknown_tool(found: "KnownCatalog", name: str) -> UnknownTool:
    """Error for a name that no known tool has. An unavailable server may have it, and is named."""
    from fairlead.cli.catalogs import warn_of_absent
    from fairlead.host.model.explain import names_of

    absent = [server for name, server in found.loaded.servers.items() if name not in found.listings]
    warn_of_absent(found, absent)
    keys = [*names_of(found.loaded, found.listings).names]
    near = suggestion(name, [key.qualified for key in keys]) or suggestion(name, [k.shown_tool for k in keys])
    hint = near or "run `fairlead tools` to see what there is"
    return UnknownTool(f"no available server has a tool `{name}`", hint=hint)


def _show_tool(
    tool: "ToolExplanation", absence: "UnavailableServer | None", findings: "Sequence[DefinitionFinding]"
) -> None:
    from fairlead.actions.explain import describe_forgetting

    print_data(f"{printable(tool.key.qualified)}: {tool.state}")
    rows = [("models", _STATES[tool.state]), ("because", _with_place(tool.because))]
    if tool.rule is not None and tool.rule != tool.because:
        rows.append(("rule", _with_place(tool.rule)))
    if tool.state == "quarantined":
        rows.append(("calls", f"are refused until `{command_line('review', tool.key.server_id)}`"))
    elif tool.state == "rejected":
        rows.append(("calls", "are refused, regardless of rules: only its server can fix that"))
    elif tool.approval is not None and tool.verdict is not None and tool.approval != tool.because:
        rows.append(("calls", f"{_VERDICTS[tool.verdict]}: {_with_place(tool.approval)}"))
    if tool.remembered:
        rows.append(("but", f"an answer is remembered, and calls are made: {describe_forgetting(tool)}"))
    if tool.gateway_verdict is not None and tool.state != "rejected":
        listed = " and not listed" if tool.gateway_verdict == "deny" else ""
        rows.append(("gateway", f"{_VERDICTS[tool.gateway_verdict]}{listed} there: by `gateway.approval`"))
    rows.append(("name", f"{tool.name} ({tool.naming})"))
    if absence is not None:
        rows.append(("server", join_clauses(absence.reason, absence.hint)))
    rows += [("hid", f"{finding.sample}  [{finding.kind}, in {finding.where}]") for finding in findings]
    for label, text in rows:
        print_data(f"  {label:<9}{printable(text)}")


_STATES = {
    "direct": "get it as it is",
    "deferred": "find it with mcp_search_tools and call it with mcp_call_tool",
    "denied": "do not get it",
    "rejected": "cannot get it",
    "quarantined": "do not get it for now",
    "unavailable": "do not get it",
}


_VERDICTS = {
    "allow": "are made without asking",
    "ask": "need approval",
    "deny": "are refused",
}


def _with_place(because: "Reason") -> str:
    return f"{because.reason}  [{because.place or 'the default'}]"


def _tool_as_json(
    tool: "ToolExplanation", absence: "UnavailableServer | None", findings: "Sequence[DefinitionFinding]"
) -> dict[str, Any]:
    return {
        "server": tool.key.server_id,
        "tool": tool.key.shown_tool,
        "name": tool.name,
        "naming": tool.naming,
        "state": tool.state,
        "because": asdict(tool.because),
        "rule": asdict(tool.rule) if tool.rule else None,
        "verdict": tool.verdict,
        "approval": asdict(tool.approval) if tool.approval else None,
        "remembered": tool.remembered,
        "gateway_verdict": tool.gateway_verdict or tool.verdict,
        "unavailable": absence.reason if absence else None,
        "hidden_text": [asdict(finding) for finding in findings],
    }
