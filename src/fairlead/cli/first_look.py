"""After a server was added: it is connected and shown, and one question settles what its tools may do."""

from typing import Final

import click

from fairlead.cli.allowing import carry_out, decision_of, named_tools
from fairlead.cli.offered import on_one_line
from fairlead.cli.output import print_table, say, warn
from fairlead.cli.reviewing import ServerReview, ask_about_each, read_review
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.errors import FairleadError
from fairlead.policy.findings import findings_of
from fairlead.policy.reviewing import ReviewedTool

ANSWERS: Final = ("preselected", "allow", "ask", "deny", "some", "later")


def take_first_look(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer) -> None:
    """Connect a server, show its tools, and ask once what they may do."""
    server_id = server.server_id
    try:
        review = read_review(loaded, server)
    except FairleadError as failure:
        warn(f"it was added, but cannot be used yet: {failure}", failure.hint)
        return
    tools = review.open_tools
    if not review.tools:
        say(f"`{server_id}` is ready; it has no tools")
        return
    print_table(("tool", "preselected", "what it is for"), [_row(tool) for tool in review.tools])
    if not tools:
        say(f"`{server_id}` is ready, and nothing is left to decide about its tools")
        return
    _warn_of_findings(tools)
    match _ask(len(tools)):
        case "preselected":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, t.suggested) for t in tools))
        case "allow":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "allow") for t in tools))
        case "ask":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "ask") for t in tools))
        case "deny":
            carry_out(ctx, loaded, server, review.listing, decision_of((t, "deny") for t in tools))
        case "some":
            decision = ask_about_each(review)
            if not decision.is_empty:
                carry_out(ctx, loaded, server, review.listing, decision)
        case _:
            say(f"`{command_line('review', server_id)}` asks again; {_until_then(server)}")
    say(f"hint: `{command_line('call', server_id, tools[0].entry.key.typed_tool)}` calls one")


def allow_named(ctx: click.Context, loaded: LoadedConfig, server: LoadedServer, names: str) -> None:
    """Connect a server and allow what the command line names: `all`, or names and globs with commas."""
    review = read_review(loaded, server)
    decision = decision_of(
        (tool, "allow") for tool in named_tools([names], review.tools, servers=loaded.servers.keys())
    )
    if not decision.is_empty:
        carry_out(ctx, loaded, server, review.listing, decision)
    else:
        say(f"nothing was allowed: that names no tool of `{server.server_id}`")
    _name_left_out(review, {tool.key.tool for tool in decision.allow})


def _name_left_out(review: ServerReview, allowed: set[str]) -> None:
    left = sum(tool.name not in allowed and not tool.denied for tool in review.tools)
    if left:
        server_id = review.server.server_id
        command = command_line("review", server_id)
        say(f"{left} more of its tools: `{command}`; {_until_then(review.server)}")


def _until_then(server: LoadedServer) -> str:
    if server.config is not None and server.config.trust == "trusted":
        return "until then they go by their annotations: read-only ones are called, others asked about"
    return "until then agents get none of them"


def _row(tool: ReviewedTool) -> tuple[str, str, str]:
    entry = tool.entry
    return entry.key.shown_tool, tool.suggested, on_one_line(entry.description or entry.title)


def _warn_of_findings(tools: list[ReviewedTool]) -> None:
    found = [tool.entry.key.shown_tool for tool in tools if findings_of(tool.entry)]
    if found:
        warn(f"look closer at {', '.join(found)}: what they say of themselves is odd", "answer `some`")


def _ask(count: int) -> str:
    what = "this tool" if count == 1 else f"these {count} tools"
    while True:
        typed: str = click.prompt(
            f"What may {what} do? allow, ask (each time), deny, preselected, some, later",
            default="later",
            err=True,
        )
        meant = [answer for answer in ANSWERS if typed and answer.startswith(typed.strip().lower())]
        if typed.strip().lower() == "all":
            return "allow"
        if len(meant) == 1:
            return meant[0]
        say(f"  please type one of {', '.join(ANSWERS)}")
