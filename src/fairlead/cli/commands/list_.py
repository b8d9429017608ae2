"""`fairlead list`."""

from typing import Any

import click

from fairlead.cli.options import json_option, load, read_scope_option
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    display_path,
    on_one_line,
    print_json,
    print_problems,
    print_table,
    problem_as_json,
    say,
)

MAX_TARGET = 200
"""Of a command line or URL; `--json` and `fairlead get` have it whole."""
COLUMNS = ("id", "transport", "source", "enabled", "trust", "target", "problems")


@click.command("list")
@read_scope_option
@json_option
@click.pass_context
def command(ctx: click.Context, scope: str, *, as_json: bool) -> int:
    """Show the configured servers, where each is defined, and what is wrong. Nothing is contacted.

    \b
    Examples:
      fairlead list
      fairlead list --scope user
      fairlead list --json
    """
    loaded = load(ctx, scope)
    if as_json:
        print_json(
            {
                "servers": [_as_json(server) for server in loaded.servers.values()],
                "problems": [problem_as_json(problem) for problem in loaded.problems],
                "files": [{"layer": layer.name, "source": layer.label} for layer in loaded.layers],
            }
        )
    else:
        _show(loaded)
    return Exit.FIXABLE if any(problem.severity == "error" for problem in loaded.problems) else Exit.OK


def _show(loaded: LoadedConfig) -> None:
    configured = [server for server in loaded.servers.values() if not server.is_built_in]
    if configured:
        print_table(COLUMNS, [_row(server) for server in configured])
    else:
        say("no MCP servers configured")
        say("\nhint: add one with `fairlead add ID -- COMMAND`, or take them over with `fairlead import`")
    if built_in := [server for server in loaded.servers.values() if server.is_built_in]:
        say("\nbuilt in:")
        print_table(("id", "enabled", "what it does"), [_built_in_row(server) for server in built_in])
    if loaded.layers:
        places = (
            f"{layer.name}: {display_path(layer.path) if layer.path else layer.label}"
            for layer in loaded.layers
        )
        say("\n" + "   ".join(places))
    if loaded.problems:
        say()
        print_problems(loaded.problems)


def _row(server: LoadedServer) -> tuple[str, ...]:
    many = len(server.problems)
    return (
        server.server_id,
        server.transport or "?",
        server.source,
        _render_enabled(server),
        server.config.trust if server.config else "-",
        on_one_line(server.target, MAX_TARGET),
        f"{many} (below)" if many else "-",
    )


def _built_in_row(server: LoadedServer) -> tuple[str, ...]:
    description = server.config.description if server.config else None
    return server.server_id, _render_enabled(server), description or "-"


def _render_enabled(server: LoadedServer) -> str:
    if server.ruling.refusals:
        return "refused"
    return "yes" if server.enabled else "no"


def _as_json(server: LoadedServer) -> dict[str, Any]:
    return {
        "id": server.server_id,
        "transport": server.transport,
        "source": server.source,
        "file": str(server.definition.origin(())),
        "enabled": server.enabled,
        "refused": bool(server.ruling.refusals),
        "usable": server.usable,
        "trust": server.config.trust if server.config else None,
        "target": server.target,
        "problems": [problem_as_json(problem) for problem in server.problems],
    }
