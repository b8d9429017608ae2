"""After a person added a server at a terminal: it is connected and shown, and its tools can be allowed."""

from typing import Final

import click

from fairlead.cli.allowing import carry_out
from fairlead.cli.known import ask_now
from fairlead.cli.offered import on_one_line
from fairlead.cli.output import print_table, say, warn
from fairlead.cli.saved import read_saved
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.policy.allowing import Decided
from fairlead.policy.findings import findings_of
from fairlead.policy.reviewing import ReviewedTool, tools_to_review

ANSWERS: Final = ("all", "some", "later")


def take_first_look(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer) -> None:
    """Connect a server, show its tools, and have those allowed that the person wants agents to use."""
    server_id = server.server_id
    for failure in ask_now(loaded, [server_id]).values():
        warn(f"it was added, but cannot be used yet: {failure}", failure.hint)
        return
    saved = read_saved(loaded)[server_id]
    if saved.snapshot is None:
        return  # nothing can be kept on this machine, and so nothing can be reviewed
    tools = tools_to_review(server, saved.snapshot.listing, saved.pins)
    if not tools:
        say(f"`{server_id}` is ready; it has no tools")
        return
    print_table(("tool", "what it is for"), [_row(tool) for tool in tools])
    waiting = [tool for tool in tools if tool.waits]
    if not waiting:
        say(f"`{server_id}` is ready, and agents may use its tools")
        return
    _warn_of_findings(waiting)
    match _ask(len(waiting)):
        case "all":
            decided = Decided(approved=[tool.entry for tool in waiting])
            carry_out(ctx, loaded, server, saved.snapshot.listing, decided)
        case "some":
            from fairlead.cli.commands.review_ import command as review

            ctx.invoke(
                review,
                server_id=server_id,
                approve=(),
                deny=(),
                approve_all=False,
                replace_globs=False,
                as_json=False,
            )
        case _:
            say(f"agents get none of them before you allow some: `fairlead review {server_id}`")
    say(f"hint: `fairlead call {server_id} {waiting[0].entry.key.shown_tool}` calls one")


def _row(tool: ReviewedTool) -> tuple[str, str]:
    entry = tool.entry
    return entry.key.shown_tool, on_one_line(entry.description or entry.title)


def _warn_of_findings(tools: list[ReviewedTool]) -> None:
    found = [tool.entry.key.shown_tool for tool in tools if findings_of(tool.entry)]
    if found:
        warn(f"look closer at {', '.join(found)}: what they say of themselves is odd", "answer `some`")


def _ask(count: int) -> str:
    what = "this tool" if count == 1 else f"these {count} tools"
    while True:
        typed: str = click.prompt(f"Let agents use {what}? all, some, later", default="later", err=True)
        meant = [answer for answer in ANSWERS if typed and answer.startswith(typed.strip().lower())]
        if len(meant) == 1:
            return meant[0]
        say(f"  please type one of {', '.join(ANSWERS)}")
