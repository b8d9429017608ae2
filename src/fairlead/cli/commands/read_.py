"""`fairlead read`."""

import sys
from typing import TYPE_CHECKING

import click

from fairlead.cli.options import json_option, load, server_argument
from fairlead.terminal.arguments import check_text
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, printable, printable_lines, say

if TYPE_CHECKING:
    from fairlead.host.offers.contents import ResourceContents


@click.command("read")
@server_argument
@click.argument("uri", callback=check_text)
@click.option(
    "--arg",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    callback=check_text,
    help="What a `{…}` of the URI stands for.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write it to a file.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, server_id: str, uri: str, pairs: tuple[str, ...], output: str | None, *, as_json: bool
) -> int:
    """Read a resource: to the terminal, to a pipe as it is, or to a file.

    \b
    Examples:
      fairlead read files file:///notes.txt
      fairlead read everything 'demo://text/{number}' --arg number=7
      fairlead read shop shop://logo -o logo.png
    """
    from fairlead.host.host import Host
    from fairlead.terminal.host_run import run_async, spinning
    from fairlead.terminal.prompts import operator_here

    loaded = load(ctx)
    loaded.server(server_id)
    whole = _expand_uri(uri, pairs)

    async def main() -> int:
        async with (
            Host.open(loaded, operator=operator_here()) as host,
            spinning(f"reading from {server_id} …"),
        ):
            contents = await host.resources.read(server_id, whole)
        if output is not None:
            _write(contents, output)
        elif as_json:
            print_json(contents.data)
        else:
            _show(contents)
        return Exit.OK

    return run_async(main)


def _expand_uri(uri: str, pairs: tuple[str, ...]) -> str:
    if not pairs:
        return uri
    from fairlead.host.offers.uri_templates import read_template

    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{pair}` is not NAME=VALUE", param_hint="--arg")
        values[name] = value
    try:
        template = read_template(uri)
        unknown = next((name for name in values if name not in template.variables), None)
        if unknown is not None:
            raise click.BadParameter(f"the URI has no `{{{unknown}}}`", param_hint="--arg")
        return template.expand(values)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="URI") from None


def _write(contents: "ResourceContents", output: str) -> None:
    content = contents.content(unchanged=True)
    try:
        with click.open_file(output, "wb") as file:
            file.write(content)
    except OSError as exc:
        raise click.FileError(output, hint=exc.strerror) from exc
    if output != "-":
        say(f"wrote {len(content)} bytes to {output}")


def _show(contents: "ResourceContents") -> None:
    """Print what can be read on a terminal; in a pipe print all of it, cleaned."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(contents.content())
        sys.stdout.buffer.flush()
        return
    for part in contents.parts:
        if isinstance(text := part.get("text"), str):
            print_data(printable_lines(text))
        else:
            kind = printable(str(part.get("mimeType") or "something"))
            print_data(f"[{kind}, not text; -o FILE saves it]")
