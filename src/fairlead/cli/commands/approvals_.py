"""`fairlead approvals`."""

from datetime import datetime

import click

from fairlead.actions.approvals import (
    APPROVAL_ANSWERS,
    RememberedAnswer,
    answers_about,
    answers_for_good,
    equal_calls,
    forget_approvals,
    gateways_running,
)
from fairlead.actions.saved_state import UNREADABLE_ANSWERS_HINT, note_unreadable_answers
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.cli.pending_calls import answer_pending, read_pending, read_session_answers, show_calls
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import plural, print_json, print_notices, print_table, printable, say, warn


@click.group("approvals", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> int:
    """Calls that wait for approval at a running gateway, and remembered answers.

    A remembered answer holds for one tool as it was defined when you gave it: a tool that changed needs
    approval anew. What a tool may do from now on is decided with `fairlead review`.

    \b
    Examples:
      fairlead approvals
      fairlead approvals answer
      fairlead approvals answer 3f0c2a9d1b7e4c55 once
      fairlead approvals forget files.write_file
    """
    return _list(ctx, as_json=as_json) if ctx.invoked_subcommand is None else Exit.OK


@command.command("list")
@json_option
@click.pass_context
def list_command(ctx: click.Context, *, as_json: bool) -> int:
    """Show the calls that wait, and the answers that are remembered."""
    return _list(ctx, as_json=as_json)


def _list(ctx: click.Context, *, as_json: bool) -> int:
    loaded = load(ctx)
    gateways = gateways_running()
    kept = [*answers_for_good(loaded), *read_session_answers(gateways)]
    if (note := note_unreadable_answers(loaded)) is not None:
        warn(note, UNREADABLE_ANSWERS_HINT)
    waiting = read_pending(gateways)
    if as_json:
        print_json({"pending": waiting, "approvals": [_as_json(found) for found in kept]})
        return Exit.OK
    for same in equal_calls(waiting):
        show_calls(same)
    if waiting:
        say(f"{plural(len(waiting), 'call')} waiting; `fairlead approvals answer` asks you about each\n")
    if kept:
        print_table(("server", "tool", "for", "since"), [_row(found) for found in kept])
        say("\nhint: `fairlead approvals forget SERVER[.TOOL]` forgets an answer")
    elif not waiting:
        say("no call waits, and no answer is remembered; `fairlead review ID` decides what tools may do")
    return Exit.OK


@command.command("answer")
@click.argument("words", nargs=-1, metavar="[ID once|session|always|no]...")
@json_option
@click.pass_context
def answer_command(ctx: click.Context, words: tuple[str, ...], *, as_json: bool) -> int:
    """Answer calls that wait at the running gateway; without ID you are prompted for each.

    The answer holds for this call (once), for the session of the agent that makes it, until the gateway
    ends at the latest (session), for this tool as it is defined now (always), or it is no.
    """
    if len(words) % 2 or any(word not in APPROVAL_ANSWERS for word in words[1::2]):
        raise click.UsageError(f"give the id of a call and one of {', '.join(APPROVAL_ANSWERS)}, or nothing")
    given = dict(zip(words[::2], words[1::2], strict=True))
    return answer_pending(action_context(ctx), given, as_json=as_json)


@command.command("forget")
@click.argument("server_id", metavar="SERVER[.TOOL]")
@click.argument("tool", required=False)
@click.pass_context
def forget_command(ctx: click.Context, server_id: str, tool: str | None) -> None:
    """Forget that a tool is allowed, always or for a session: of one tool, or of all tools of a server.

    Of a server whose answer is forgotten, all answers for a session end.

    The tool may stand behind its server's id (files.write_file), or apart (files write_file).
    """
    loaded = load(ctx)
    remembered = [*answers_for_good(loaded), *read_session_answers(gateways_running())]
    gone = answers_about(remembered, server_id, tool)
    print_notices(forget_approvals(action_context(ctx, loaded), gone))
    for name in dict.fromkeys(one.name for one in gone):
        say(f"`{printable(name)}` needs approval again")


def _as_json(found: RememberedAnswer) -> dict[str, object]:
    return {
        "server": found.server_id,
        "tool": found.tool,
        "principal": found.principal,
        "approved_at": found.approved_at,
    }


def _row(found: RememberedAnswer) -> tuple[str, ...]:
    return found.server_id, printable(found.tool), printable(found.principal), _since(found)


def _since(found: RememberedAnswer) -> str:
    if found.approved_at is None:
        return "for this session"
    return datetime.fromtimestamp(found.approved_at).astimezone().strftime("%Y-%m-%d %H:%M")
