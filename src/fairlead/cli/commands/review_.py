"""`fairlead review`."""

from collections.abc import Sequence

import click

from fairlead.catalog.entries import Listing, tool_called
from fairlead.cli.allowing import carry_out, without_globs
from fairlead.cli.exits import Exit
from fairlead.cli.known import ask_now
from fairlead.cli.options import json_option, load, server_argument
from fairlead.cli.output import confirm, is_interactive, print_json, say
from fairlead.cli.reviewing import show_in_one_line, show_instructions, show_tool
from fairlead.cli.saved import read_saved
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.validate import suggestion
from fairlead.errors import ListFailed, UnknownTool
from fairlead.policy.allowing import Decided, globs_of, require_worth
from fairlead.policy.pins import Pins
from fairlead.policy.reviewing import ReviewedTool, instructions_changed, review_as_json, tools_to_review

_ANSWERS = {"y": "allow", "d": "deny", "s": "skip", "a": "all", "q": "quit"}
_CHOICES = "allow (y), deny (d), skip (s), all the rest (a), quit (q)"


@click.command("review")
@server_argument
@click.option(
    "--approve", "approve", multiple=True, metavar="TOOL", help="Allow this tool as it is; repeat it."
)
@click.option("--approve-all", is_flag=True, help="Allow every tool that is not denied, as it is.")
@click.option("--deny", "deny", multiple=True, metavar="TOOL", help="Deny this tool; repeat it.")
@click.option(
    "--replace-globs", is_flag=True, help="Put names in the place of globs in allow_tools without asking."
)
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - click hands every option over by name
    ctx: click.Context,
    server_id: str,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    *,
    approve_all: bool,
    replace_globs: bool,
    as_json: bool,
) -> int:
    """Look at every tool of a server, with nothing hidden, and say which agents may use.

    What you allow is pinned: a tool that changes later is held back until you have looked again. The server
    is connected for it.

    \b
    Examples:
      fairlead review github
      fairlead review github --approve search_issues --deny delete_repository
      fairlead review github --json
    """
    loaded = load(ctx)
    server = loaded.server(server_id)
    listing, pins = _asked(loaded, server)
    tools = tools_to_review(server, listing, pins)
    if approve or approve_all or deny:
        decided = _as_said(listing, pins, tools, approve=approve, deny=deny, approve_all=approve_all)
    elif as_json:
        print_json(review_as_json(server_id, listing, pins, tools))
        return Exit.OK
    else:
        decided = _decided_by_person(server, listing, pins, tools)
    if decided is None:
        return Exit.NEEDS_A_PERSON
    require_worth(server, decided)
    if decided.approved or decided.denied or decided.instructions:
        carry_out(ctx, loaded, server, listing, _without_globs(server, tools, decided, replace=replace_globs))
    if as_json:
        print_json(
            {
                "server": server_id,
                "approved": [tool.key.tool for tool in decided.approved],
                "denied": [*decided.denied],
            }
        )
    return Exit.OK


def _asked(loaded: LoadedConfig, server: LoadedServer) -> tuple[Listing, Pins | None]:
    """What a server offers at this moment, as it came, and what is pinned of it."""
    failures = ask_now(loaded, [server.server_id])
    for failure in failures.values():
        raise failure
    saved = read_saved(loaded)[server.server_id]
    if saved.snapshot is None:
        raise ListFailed(
            server.server_id,
            "what it offers could not be kept, and so nothing can be pinned",
            hint="see that the state folder can be written to",
        )
    return saved.snapshot.listing, saved.pins


def _as_said(
    listing: Listing,
    pins: Pins | None,
    tools: list[ReviewedTool],
    *,
    approve: Sequence[str],
    deny: Sequence[str],
    approve_all: bool,
) -> Decided:
    """What the command line decides."""

    def named(name: str) -> str:
        entry = tool_called(name, listing.tools)
        if entry is None:
            hint = suggestion(name, [tool.name for tool in tools])
            raise UnknownTool(f"there is no tool `{name}`", hint=hint)
        return entry.key.tool

    denied = [named(name) for name in deny]
    wanted = {named(name) for name in approve}
    if approve_all:
        wanted |= {tool.name for tool in tools if not tool.denied}
    approved = [tool.entry for tool in tools if tool.name in wanted and tool.name not in denied]
    changed = instructions_changed(listing, pins)
    return Decided(approved=approved, denied=denied, instructions=approve_all and changed)


def _decided_by_person(
    server: LoadedServer, listing: Listing, pins: Pins | None, tools: list[ReviewedTool]
) -> Decided | None:
    """Show everything, and ask about each tool if there is somebody to ask; None if there is not."""
    asking = is_interactive()
    changed = instructions_changed(listing, pins)
    accepted = False
    if changed:
        show_instructions(listing, pins)
        accepted = asking and pins is not None and confirm("May models see these instructions?")
    approved: list[ReviewedTool] = []
    denied: list[str] = []
    answer = "skip"
    for tool in tools:
        if not tool.is_open:
            show_in_one_line(tool)
            continue
        show_tool(tool)
        if asking and answer != "all":
            answer = _ask(tool)
        if answer == "quit":
            break
        if answer in ("allow", "all"):
            approved.append(tool)
        elif answer == "deny":
            denied.append(tool.name)
    waits = [tool.name for tool in tools if tool.waits]
    if not asking and (waits or changed):
        say(f"hint: `fairlead review {server.server_id} --approve TOOL` allows one, `--approve-all` all")
        return None
    return Decided(approved=[tool.entry for tool in approved], denied=denied, instructions=accepted)


def _ask(tool: ReviewedTool) -> str:
    while True:
        question = f"`{tool.entry.key.shown_tool}`: {_CHOICES}"
        typed: str = click.prompt(question, default="s", err=True)
        answer = _ANSWERS.get(typed, typed)
        if answer in _ANSWERS.values():
            return answer
        say(f"  please type one of {', '.join(_ANSWERS)}")


def _without_globs(
    server: LoadedServer, tools: list[ReviewedTool], decided: Decided, *, replace: bool
) -> Decided:
    """The same, with globs replaced by the names of what they allow, if the person wants that."""
    globs = globs_of(server)
    if not globs or not decided.approved:
        return decided
    shown = ", ".join(f"`{glob}`" for glob in globs)
    if not replace and not confirm(f"allow_tools has {shown}: write the names of reviewed tools instead?"):
        return decided
    return without_globs(tools, decided)
