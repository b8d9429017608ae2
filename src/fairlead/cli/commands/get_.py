"""`fairlead get`."""

import json

import click

from fairlead.cli.options import json_option, load, read_scope_option, server_argument
from fairlead.config.secrets.redaction import redact_entry
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_problems, printable, problem_as_json, say


@click.command("get")
@server_argument
@read_scope_option
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str, *, as_json: bool) -> int:
    """Show one server's entry. Secrets show as references or `•••`.

    \b
    Examples:
      fairlead get github
      fairlead get github --scope user --json
    """
    server = load(ctx, scope).server(server_id)
    entry = redact_entry(server.entry)
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
            }
        )
    else:
        print_data(f"{server_id}  ({server.source}: {server.definition.origin(())})")
        for name, value in {"transport": server.transport, **entry}.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print_data(f"  {name}: {printable(shown)}")
        if server.problems:
            say()
            print_problems(server.problems)
    return Exit.FIXABLE if any(problem.severity == "error" for problem in server.problems) else Exit.OK
