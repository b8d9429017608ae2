"""`fairlead explain`."""

import json
from dataclasses import asdict

import click

from fairlead.cli.options import json_option, load, server_argument
from fairlead.cli.output import print_json, print_problems, print_table, problem_as_json, say
from fairlead.config.explain import FieldOrigin, Said, explain_server


@click.group("explain")
def command() -> None:
    """Say where a value came from, and what it overrode."""


@command.command("server")
@server_argument
@click.option("--all", "show_all", is_flag=True, help="Show the fields nobody set, too.")
@json_option
@click.pass_context
def server_command(ctx: click.Context, server_id: str, *, show_all: bool, as_json: bool) -> None:
    """Every field of a server: its value, the file and line that set it, what it overrode."""
    server = load(ctx).server(server_id)
    rows = explain_server(server)
    if as_json:
        problems = [problem_as_json(problem) for problem in server.problems]
        print_json({"id": server_id, "fields": [asdict(row) for row in rows], "problems": problems})
        return
    shown = [row for row in rows if show_all or not _is_default(row)]
    print_table(("field", "value", "set by", "overrode"), [_row(row) for row in shown])
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown)} more fields have their built-in default; `--all` shows them")
    if server.problems:
        say()
        print_problems(server.problems)


def _is_default(row: FieldOrigin) -> bool:
    return row.in_effect is not None and row.in_effect.layer == "default"


def _row(row: FieldOrigin) -> tuple[str, ...]:
    said = row.in_effect
    overrode = "; ".join(f"{_value(lost)} ({lost.layer}: {lost.place})" for lost in row.overrode)
    if said is None:
        return row.field, "(not set any more)", "-", overrode
    return (
        row.field,
        _value(said),
        f"{said.layer}: {said.place}" if said.place else said.layer,
        overrode or "-",
    )


def _value(said: Said) -> str:
    return said.value if isinstance(said.value, str) else json.dumps(said.value, ensure_ascii=False)
