"""`fairlead call`."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import click

from fairlead.catalog.entries import tool_called
from fairlead.catalog.results import ToolResult
from fairlead.cli.displays import showing
from fairlead.cli.exits import Exit
from fairlead.cli.options import json_option, load, server_argument
from fairlead.cli.output import (
    is_interactive,
    is_watched,
    print_data,
    print_json,
    printable,
    printable_lines,
    say,
)
from fairlead.config.validate import suggestion
from fairlead.errors import UnknownTool

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


@click.command("call")
@server_argument
@click.argument("tool")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; NAME:=JSON for JSON.")
@click.option("--input", "document", metavar="JSON", help="All arguments as JSON; `-` reads them from stdin.")
@click.option("--yes", is_flag=True, help="This call is meant, though no person is at the terminal.")
@click.option("--always", is_flag=True, help="Besides, let agents call it without asking from now on.")
@click.option(
    "--timeout", "seconds", type=float, metavar="SECONDS", help="Time without an answer or progress."
)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    server_id: str,
    tool: str,
    pairs: tuple[str, ...],
    document: str | None,
    *,
    yes: bool,
    always: bool,
    seconds: float | None,
    as_json: bool,
) -> int:
    """Call a tool and print what it returns. Typed at a terminal, this is your yes to the call.

    \b
    Examples:
      fairlead call time get_current_time --arg timezone=Europe/Berlin
      fairlead call files read_text_file --input '{"path": "README.md"}'
      fairlead call files write_file --input - --yes < arguments.json
      fairlead call files list_directory --arg path=. --always
    """
    from fairlead.cli.running import run_with_host, spinning
    from fairlead.cli.terminal import operator_here
    from fairlead.host.host import Host

    loaded = load(ctx)
    loaded.server(server_id)
    given = _document(document)

    async def main() -> int:
        async with Host.open(loaded, operator=operator_here()) as host:
            async with spinning(f"starting {server_id} …"):
                known = await host.tools_of(server_id)
                if tool_called(tool, known) is None:
                    await host.connect(server_id)  # the list may be an old one
                    known = await host.tools_of(server_id)
            entry = tool_called(tool, known)
            if entry is None:
                hint = suggestion(tool, [each.key.shown_tool for each in known])
                raise UnknownTool(
                    f"`{server_id}` has no tool `{tool}`", hint=hint or f"run `fairlead tools {server_id}`"
                )
            schema = entry.read().get("inputSchema")
            arguments = {**given, **dict(_argument(pair, schema) for pair in pairs)}
            async with _progress_bar() as on_progress:
                result = await host.call(
                    server_id,
                    entry.key.tool,
                    arguments,
                    on_progress=on_progress,
                    request_timeout_ms=round(seconds * 1000) if seconds else None,
                    reviewed=yes or is_interactive(),
                    whole=True,
                )
            if always:
                await host.allow(server_id, tool)
                say(f"agents may call `{server_id}/{printable(tool)}` without asking; `fairlead approvals`")
        return _show(result, as_json=as_json)

    return run_with_host(main)


def _document(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value: object = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as exc:
        raise click.BadParameter(f"not JSON: {exc}", param_hint="--input") from None
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--input")
    return cast("dict[str, Any]", value)


def _argument(pair: str, schema: Any) -> tuple[str, Any]:  # noqa: ANN401 - a server's schema may be anything
    """Read NAME=VALUE as the tool's schema wants it, NAME:=JSON as it is."""
    name, equals, value = pair.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.BadParameter(f"`{pair}` is not NAME=VALUE", param_hint="--arg")
    explicit = name.endswith(":")
    name = name.removesuffix(":")
    try:
        wanted = schema["properties"][name]["type"]
    except (KeyError, TypeError):
        wanted = None
    if not explicit and wanted in (None, "string"):
        return name, value
    try:
        return name, json.loads(value)
    except ValueError:
        if explicit:
            raise click.BadParameter(f"`{name}` is not JSON", param_hint="--arg") from None
        return name, value  # the server says better what it wanted


@asynccontextmanager
async def _progress_bar() -> AsyncGenerator[Progress | None]:
    if not is_watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(stderr=True), transient=True)
    with showing(bar):
        task = bar.add_task("calling …", total=None)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            bar.update(task, completed=progress, total=total, description=_described(message))

        yield report


def _described(message: str | None) -> str:
    """A server's words beside the bar: on one line, and not taken for the bar's own markup."""
    from rich.markup import escape

    return escape(printable(message)) if message else "calling …"


def _show(result: ToolResult, *, as_json: bool) -> int:
    if as_json:
        print_json(json.loads(result.raw))
    else:
        for block in result.content:
            print_data(_shown(block))
        if not result.content and result.structured is not None:
            print_json(result.structured)
        if result.is_error:
            say("the tool says that it failed")
    return Exit.TOOL_ERROR if result.is_error else Exit.OK


def _shown(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return printable_lines(text)
        case {"type": "image" | "audio" as kind, "mimeType": str(mime), "data": str(data)}:
            return f"[{kind}: {mime}, {len(data) * 3 // 4} bytes; --json shows it]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[resource: {printable_lines(uri)}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return printable_lines(text)
        case _:
            return f"[{block.get('type', 'something')}; --json shows it]"
