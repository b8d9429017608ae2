"""`fairlead run`."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairlead.catalog.tools import unescape_name
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedConfig
from fairlead.config.validate import suggestion
from fairlead.errors import ConnectFailed, FairleadError, UnknownTool
from fairlead.policy.tool_names import ALL, NONE, matches, owners_of, review_command, split_names
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import plural, print_error, printable, printable_lines, say, warn

if TYPE_CHECKING:
    from fairlead.catalog.tools import ToolKey
    from fairlead.host.host import Host
    from fairlead.host.model.toolset import Toolset
    from fairlead.loop.events import RunEvent, RunFinished

_STATUSES: dict[str, Exit] = {
    "finished": Exit.OK,
    "needs_a_person": Exit.NEEDS_A_PERSON,
    "gave_up": Exit.TOOL_ERROR,
    "cut_off": Exit.UNFINISHED,
    "max_steps": Exit.UNFINISHED,
    "max_tokens": Exit.UNFINISHED,
    "cancelled": Exit.INTERRUPTED,
}


@click.command("run")
@click.argument("task")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    help="`openai/…` or `anthropic/…`; the configured `model` if left out.",
)
@click.option("--bundle", metavar="NAME", help="Give it the tools of a bundle, rather than all.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAMES",
    help="Do not ask about these tools in this run: names, globs or `all`, separated by commas.",
)
@click.option(
    "--require", metavar="ID,…", help="Servers that must be ready before the first request to the model."
)
@click.option(
    "--max-steps", type=click.IntRange(1), default=20, show_default=True, help="Most requests to the model."
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens it may use, in and out.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    task: str,
    model: str | None,
    bundle: str | None,
    allow: tuple[str, ...],
    require: str | None,
    max_steps: int,
    max_tokens: int | None,
    *,
    as_json: bool,
) -> int:
    """Have a model carry out a task with your tools. TASK `-` is read from stdin.

    What it says goes to stdout, what it calls to stderr; with --json all of it goes to stdout, a line each.
    Calls that need approval prompt you at a terminal, and are refused without one; --allow approves them
    for this run. The model gets no tool that still needs a review: see `fairlead review`.

    \b
    Any OpenAI-compatible API will do, and Anthropic's:
      export OPENAI_API_KEY=…      or ANTHROPIC_API_KEY=…
      export OPENAI_BASE_URL=http://localhost:11434/v1     for a local Ollama

    \b
    Exit status: 0 it is done, 1 something to fix (a key, a name), 3 a login, consent or approval is missing,
    4 a required server or the model is not ready, 5 the model gave up, 7 a limit was reached, 130 interrupted

    \b
    Examples:
      fairlead run "What time is it in Tokyo?" --model openai/gpt-5-mini
      fairlead run "Sort my notes" --allow 'notes.read_*,notes.list_notes'
      fairlead run - --require github --max-steps 40 --json < task.md
    """
    from fairlead.host.host import Host
    from fairlead.loop.model_choice import choose_model
    from fairlead.loop.run import RunLimits, run_task
    from fairlead.terminal.host_run import run_async
    from fairlead.terminal.prompts import operator_here
    from fairlead.terminal.trace_export import tracing

    words = _task(task)
    loaded = load(ctx)
    required = _parse_required_servers(loaded, require)
    chosen = choose_model(loaded, model, os.environ)
    show = _JsonLines() if as_json else _RunDisplay()

    async def main() -> int:
        async with tracing() as tracer, Host.open(loaded, operator=operator_here(), tracer=tracer) as host:
            toolset = host.toolset(bundle)
            if not await _are_ready(host, toolset, required):
                return Exit.NOT_READY
            await _see_tools(host, toolset)
            _allow(host, toolset, allow)
            bounds = RunLimits(max_steps=max_steps, max_tokens=max_tokens)
            async with run_task(toolset, chosen, words, bounds=bounds) as events:
                async for event in events:
                    show.take(event)
        return show.status

    return run_async(main)


def _parse_required_servers(loaded: LoadedConfig, listed: str | None) -> list[str]:
    ids = [server_id.strip() for server_id in (listed or "").split(",") if server_id.strip()]
    return [loaded.server(server_id).server_id for server_id in ids]


def _task(text: str) -> str:
    task = sys.stdin.read() if text == "-" else text
    if not task.strip():
        raise click.BadParameter("there is nothing to do", param_hint="TASK")
    return task.encode(errors="surrogateescape").decode(errors="replace")  # a terminal may send any bytes


async def _are_ready(host: "Host", toolset: "Toolset", required: Iterable[str]) -> bool:
    """Wait for the required servers. Errors that only the user can resolve are raised unchanged."""
    for server_id in (required := [*required]):
        if not toolset.selection.has(server_id):
            message = f"`{server_id}` is not in the bundle `{toolset.selection.name}`"
            raise click.BadParameter(message, param_hint="--require")
    try:
        await host.require(required)
    except FairleadError as exc:
        if exit_of(exc) == Exit.NEEDS_A_PERSON:
            raise
        print_error(exc)
        return False
    return True


async def _see_tools(host: "Host", toolset: "Toolset") -> None:
    """Say what the model will not have. That it would have nothing, though servers are configured, raises."""
    from fairlead.terminal.host_run import spinning

    async with spinning("starting servers …"):
        offered = await toolset.definitions()
    for server_id, reason in toolset.unavailable.items():
        if not offered:
            raise ConnectFailed(server_id, f"not ready, so there are no tools: {reason}")
        warn(f"the model runs without `{server_id}`: {reason}")
    for member in host.servers:
        if toolset.selection.has(member.server.server_id):
            for note in member.review_notes():
                warn(f"`{member.server.server_id}`: {note}")
    if not offered:
        wanted = any(status.enabled and toolset.selection.has(status.server_id) for status in host.status())
        warn("the model has no tools: " + ("no server offers any" if wanted else "no MCP servers configured"))


def _allow(host: "Host", toolset: "Toolset", allow: Iterable[str]) -> None:
    """Approve the tools that the command line names, for this run.

    Raises:
        UnknownTool: A name means none of the tools that the model has.
        ConfigError: A name may mean the tools of several servers.
    """
    from fairlead.actions.review import require_one_server

    catalog = toolset.catalog
    servers = [status.server_id for status in host.status()]
    meant: dict[str, list[ToolKey]] = {}
    for name in (name for word in allow for name in split_names(word) if name not in ("", NONE)):
        public = [tool.key for tool in catalog.tools if name in (ALL, tool.name)]
        found = public or _find_named([tool.key for tool in catalog.tools], name, servers)
        if not found:  # as it is shown, if only one tool is
            shown = [tool.key for tool in catalog.tools if tool.key.shown_tool == name]
            found = shown if len(shown) == 1 else []
        if not found and name != ALL:
            hidden = next(iter(_find_named(catalog.hidden, name, servers)), None)
            hint = suggestion(name, [tool.key.typed_tool for tool in catalog.tools])
            if hidden is not None:
                hint = f"run `{review_command(hidden)}`"
            raise UnknownTool(f"the model has no tool `{name}` that could be allowed", hint=hint)
        if name != ALL:
            require_one_server(name, found)
        meant[name] = found
    for key in (key for found in meant.values() for key in found):
        host.allow_for_session(key.server_id, key.tool)


def _find_named(keys: Iterable["ToolKey"], name: str, servers: Sequence[str]) -> list["ToolKey"]:
    """The tools that a name or glob means. `ID.TOOL`, in any spelling, means a tool of that server alone.

    Tools of built-in servers are called `repo.readFile` themselves: `readFile` and `repo/readFile` mean them
    where nothing else is meant.
    """
    known = [*keys]
    named = [key for key in known if _is_named(key.server_id, key.tool, name, servers)]
    if named:
        return named
    short = ((key, key.tool.removeprefix(f"{key.server_id}.")) for key in known)
    return [key for key, tool in short if _is_named(key.server_id, tool, name, servers)]


def _is_named(server_id: str, tool: str, name: str, servers: Sequence[str]) -> bool:
    owners = owners_of(name, servers)
    if owners:
        return any(server_id == owner and _fits(tool, rest) for owner, rest in owners)
    return _fits(tool, name)


def _fits(tool: str, name: str) -> bool:
    patterns = {name, unescape_name(name)}
    return tool in patterns or any(matches(tool, pattern) for pattern in patterns)


class _RunDisplay:
    """Shows a run to a person: the model's words on stdout, what it calls on stderr, one line each."""

    status: int = Exit.OK

    def __init__(self) -> None:
        self._at_line_start = True

    def take(self, event: "RunEvent") -> None:
        """Show what happened."""
        from fairlead.loop.events import RunFinished, StepFinished, StepRetried, TextDelta, ToolReturned
        from fairlead.terminal.tables import call_line

        match event:
            case TextDelta():
                self._print(event.text)
            case StepRetried():
                self._end_line()
                say(f"asking the model again in {event.seconds:.1f} s: {printable(event.reason)}")
            case ToolReturned():
                self._end_line()
                say(call_line(event))
            case StepFinished():
                self._end_line()
            case RunFinished():
                self.status = _report_outcome(event)
                say(f"{plural(event.steps, 'step')}, {plural(event.usage.total, 'token')}")
            case _:
                pass

    def _print(self, text: str) -> None:
        shown = "\t".join(map(printable_lines, text.split("\t"))) if sys.stdout.isatty() else text
        click.echo(shown, nl=False)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            click.echo()
            self._at_line_start = True


class _JsonLines:
    """Shows a run to a program."""

    status: int = Exit.OK

    def take(self, event: "RunEvent") -> None:
        """Show what happened."""
        from fairlead.loop.events import RunFinished

        click.echo(json.dumps(_as_json(event), ensure_ascii=False))
        if isinstance(event, RunFinished):
            self.status = _report_outcome(event)


def _report_outcome(event: "RunFinished") -> Exit:
    from fairlead.terminal.tables import ENDINGS

    if words := ENDINGS[event.outcome]:
        say(words)
    return _STATUSES[event.outcome]


def _as_json(event: "RunEvent") -> dict[str, Any]:
    from dataclasses import asdict

    from fairlead.loop.events import (
        RunFinished,
        StepFinished,
        StepRetried,
        TextDelta,
        ToolCalled,
        ToolReturned,
    )

    match event:
        case TextDelta():
            return {"type": "text", "text": event.text}
        case StepRetried():
            return {"type": "step_retried", "reason": event.reason, "seconds": event.seconds}
        case ToolCalled():
            return {
                "type": "tool_called",
                "call_id": event.call_id,
                "tool": event.tool,
                "name": event.name,
                "arguments": event.arguments,
            }
        case ToolReturned():
            return {
                "type": "tool_returned",
                "call_id": event.call_id,
                "tool": event.tool,
                "seconds": round(event.seconds, 3),
                "is_error": event.result.is_error,
                "error": event.error,
                "hint": event.hint,
                "result": json.loads(event.result.raw),
            }
        case StepFinished():
            return {"type": "step_finished", "step": event.step, "usage": asdict(event.usage)}
        case RunFinished():
            return {
                "type": "finished",
                "outcome": event.outcome,
                "text": event.text,
                "steps": event.steps,
                "usage": asdict(event.usage),
            }
