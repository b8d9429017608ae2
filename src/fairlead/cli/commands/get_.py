"""`fairlead get`."""

import json
import os
from typing import Any

import click

from fairlead.cli.last_errors import print_last_error
from fairlead.cli.options import json_option, load, read_scope_option, server_argument
from fairlead.config.load import LoadedConfig
from fairlead.config.secrets.redaction import redact_entry
from fairlead.config.store_location import store_location
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_problems, printable, problem_as_json, say


@click.command("get")
@server_argument
@read_scope_option
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str, *, as_json: bool) -> int:
    """Show one server's entry, and its last error if it has one. Secrets show as references or `•••`.

    \b
    Examples:
      fairlead get github
      fairlead get github --scope user --json
    """
    loaded = load(ctx, scope)
    server = loaded.server(server_id)
    entry = redact_entry(server.entry)
    # A problem of the entry is shown with its line below.
    broken = any(problem.severity == "error" for problem in server.problems)
    status = None if broken else _read_status(loaded, server_id)
    if as_json:
        problems = [problem_as_json(problem) for problem in server.problems]
        refused = bool(server.ruling.refusals)
        print_json(
            {
                "id": server_id,
                "source": server.source,
                "refused": refused,
                "entry": entry,
                "problems": problems,
                "last_error": status["last_error"] if status else None,
                "last_error_at": status["last_error_at"] if status else None,
                "hint": status["hint"] if status else None,
            }
        )
    else:
        print_data(f"{server_id}  ({server.source}: {server.definition.origin(())})")
        for name, value in {"transport": server.transport, **entry}.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print_data(f"  {name}: {printable(shown)}")
        if status is not None:
            print_last_error(status)
        if server.problems:
            say()
            print_problems(server.problems)
    return Exit.FIXABLE if broken else Exit.OK


def _read_status(loaded: LoadedConfig, server_id: str) -> dict[str, Any] | None:
    """The state of a server, if there ever was one: what reads it takes long to load."""
    if not store_location(os.environ, loaded.config.store).exists():
        return None
    from fairlead.actions.status import read_status

    return next((row for row in read_status(loaded).servers if row["id"] == server_id), None)
