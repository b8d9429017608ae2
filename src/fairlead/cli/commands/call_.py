"""`fairlead call`."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fairlead.actions.tool_lookup import find_entry, locate_tool, no_such_tool
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.cli.catalogs import gateway_for, no_gateway_option, warn_of_gone
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedConfig
from fairlead.errors import FairleadError, GatewayGone
from fairlead.gateway.registry import RunningGateway
from fairlead.policy.decision import CallPolicy
from fairlead.policy.tool_names import owners_of, review_command
from fairlead.terminal.arguments import read_argument, read_document
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import (
    is_interactive,
    is_watched,
    noting_delivery,
    print_data,
    print_json,
    printable,
    printable_lines,
    say,
    showing,
    warn,
)

if TYPE_CHECKING:
    from fairlead.gateway.control.client import ControlClient
    from fairlead.host.host import Host

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


@click.command("call")
@click.argument("name", metavar="SERVER.TOOL")
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="The same as NAME=VALUE alone.")
@click.option("--input", "document", metavar="JSON", help="All arguments as JSON; `-` reads them from stdin.")
@click.option("--yes", is_flag=True, help="Confirm the call without a terminal.")
@click.option("--always", is_flag=True, help="Also let agents call it without asking from now on.")
@click.option(
    "--timeout", "seconds", type=float, metavar="SECONDS", help="Time without an answer or progress."
)
@no_gateway_option
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    name: str,
    words: tuple[str, ...],
    pairs: tuple[str, ...],
    document: str | None,
    *,
    yes: bool,
    always: bool,
    seconds: float | None,
    no_gateway: bool,
    as_json: bool,
) -> int:
    """Call a tool and print what it returns. Typed at a terminal, it counts as your approval.

    Arguments are NAME=VALUE, or NAME:=JSON for what is no plain text.
    Where a gateway runs with this configuration, it makes the call, with the servers it has running.
    `time get_current_time`, `time/get_current_time` and the names that agents see are understood, too.

    \b
    Examples:
      fairlead call time.get_current_time timezone=Europe/Berlin
      fairlead call files.read_text_file --input '{"path": "README.md"}'
      fairlead call files.write_file --input - --yes < arguments.json
      fairlead call files.list_directory path=. --always
    """
    from fairlead.terminal.host_run import run_async

    loaded = load(ctx)
    tool, typed = _read_words(loaded, name, words)
    wanted = _RequestedCall(
        key=locate_tool(loaded, name, tool),
        typed_apart=tool is not None,
        given=_document(document),
        pairs=(*typed, *pairs),
        timeout_ms=round(seconds * 1000) if seconds else None,
        confirmed=yes or is_interactive(),
        always=always,
        as_json=as_json,
    )
    running = gateway_for(loaded, no_gateway=no_gateway)

    async def main() -> int:
        status = await _call_through_gateway(running, loaded, wanted) if running else None
        return await _call_with_own_host(loaded, wanted) if status is None else status

    return run_async(main)


def _read_words(
    loaded: LoadedConfig, name: str, words: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """The words after the first: a tool's name, where that was a server's id, and arguments."""
    # After a server's id alone comes the tool, with any characters in its name; after a tool, only arguments.
    is_server = name in loaded.servers
    may_be_tool = bool(words) and "=" not in words[0] and not owners_of(name, loaded.servers)
    is_apart = bool(words) and (is_server or may_be_tool)
    tool, typed = (words[0], words[1:]) if is_apart else (None, words)
    if odd := next((word for word in typed if "=" not in word), None):
        raise click.BadParameter(f"`{odd}` is not NAME=VALUE", param_hint="NAME=VALUE")
    return tool, typed


@dataclass(frozen=True, kw_only=True, slots=True)
class _RequestedCall:
    """The call that the command line is about."""

    key: ToolKey
    typed_apart: bool
    given: dict[str, Any]
    pairs: tuple[str, ...]
    timeout_ms: int | None
    confirmed: bool
    always: bool
    as_json: bool


async def _call_with_own_host(loaded: LoadedConfig, wanted: _RequestedCall) -> int:
    from fairlead.host.host import Host
    from fairlead.terminal.prompts import operator_here
    from fairlead.terminal.trace_export import tracing

    async with tracing() as tracer, Host.open(loaded, operator=operator_here(), tracer=tracer) as host:
        with noting_delivery():
            result = await _call_tool(host, wanted)
        return await _finish(host, loaded, wanted, result)


async def _call_through_gateway(
    running: RunningGateway, loaded: LoadedConfig, wanted: _RequestedCall
) -> int | None:
    """Have a gateway make the call. None where it did not answer, and so did not make it."""
    from fairlead.gateway.control.client import attach_to_gateway
    from fairlead.terminal.prompts import operator_here

    async with attach_to_gateway(running, loaded, operator_here()) as host:
        try:
            with noting_delivery():
                result = await _call_tool(host, wanted)
        except GatewayGone as exc:
            warn_of_gone(exc)
            return None
        return await _finish(host, loaded, wanted, result)


async def _finish(
    host: "Host | ControlClient", loaded: LoadedConfig, wanted: _RequestedCall, result: ToolResult
) -> int:
    """Show a result, and only then remember the approval: if that fails, the call was made all the same."""
    status = _show(result, as_json=wanted.as_json)
    try:
        await _remember(host, loaded, wanted)
    except FairleadError as exc:
        warn(f"the call was made, but agents still need approval for it: {exc}", exc.hint)
        return status or exit_of(exc)
    return status


async def _call_tool(host: "Host | ControlClient", wanted: _RequestedCall) -> ToolResult:
    """Make the call, with a host here or one elsewhere."""
    entry = await _find_tool(host, wanted)
    schema = entry.read().get("inputSchema")
    arguments = {**wanted.given, **dict(_argument(pair, schema) for pair in wanted.pairs)}
    async with _progress_bar() as on_progress:
        return await host.call(
            entry.key.server_id,
            entry.key.tool,
            arguments,
            on_progress=on_progress,
            request_timeout_ms=wanted.timeout_ms,
            confirmed=wanted.confirmed,
            full_result=True,
        )


async def _remember(host: "Host | ControlClient", loaded: LoadedConfig, wanted: _RequestedCall) -> None:
    """Let agents call the tool from now on, if that is wanted."""
    if not wanted.always:
        return
    entry = await _find_tool(host, wanted)
    await host.allow(entry.key.server_id, entry.key.tool)
    shown = printable(entry.key.qualified)
    decision = CallPolicy(loaded.server(entry.key.server_id)).decide(entry.key.tool, entry=entry)
    if decision.verdict == "deny":
        hint = f"run `{review_command(entry.key)}`"
        warn(f"agents do not get `{shown}` all the same: {decision.reason}", hint)
    else:
        say(f"agents may call `{shown}` without asking; `fairlead approvals`")


async def _find_tool(host: "Host | ControlClient", wanted: _RequestedCall) -> ToolEntry:
    """The tool's definition, as it is known or else as the server says now."""
    from fairlead.terminal.host_run import spinning

    key = wanted.key
    async with spinning(f"starting {key.server_id} …", getattr(host, "bus", None)):
        known = await host.tools_of(key.server_id)
        if find_entry(key, known, typed_apart=wanted.typed_apart) is None:
            await host.connect(key.server_id)  # the list may be an old one
            known = await host.tools_of(key.server_id)
    entry = find_entry(key, known, typed_apart=wanted.typed_apart)
    if entry is None:
        raise no_such_tool(key, known)
    return entry


def _document(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return read_document(sys.stdin.read() if text == "-" else text)
    except ValueError as exc:
        is_name = text != "-" and "{" not in text and "[" not in text
        rest = "; a file is read with `--input - < FILE`" if is_name else ""
        raise click.BadParameter(f"{exc}{rest}", param_hint="--input") from None


def _argument(pair: str, schema: object) -> tuple[str, Any]:
    try:
        return read_argument(pair, schema)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="NAME=VALUE") from None


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
            bar.update(task, completed=progress, total=total, description=_render_progress_text(message))

        yield report


def _render_progress_text(message: str | None) -> str:
    """Progress message of a server next to the bar: on one line, with markup escaped."""
    from rich.markup import escape

    return escape(printable(message)) if message else "calling …"


def _show(result: ToolResult, *, as_json: bool) -> int:
    if as_json:
        print_json(json.loads(result.raw))
    else:
        for block in result.content:
            print_data(_render_block(block))
        if not result.content and result.structured is not None:
            print_json(result.structured)
        if result.is_error:
            say("the tool returned an error")
    return Exit.TOOL_ERROR if result.is_error else Exit.OK


def _render_block(block: dict[str, Any]) -> str:
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
