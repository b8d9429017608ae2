"""`fairlead approve`."""

from collections.abc import Iterable

import click

from fairlead.actions.config_edits import approve_server
from fairlead.actions.saved_state import read_saved
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import load
from fairlead.config.load import LoadedServer
from fairlead.errors import ConfigInvalid, ConsentRequired
from fairlead.terminal.decisions import show_consent
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import confirm, print_data, print_notices, report, say, warn


@click.command("approve")
@click.argument("server_id", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Every server that waits for approval.")
@click.option("--yes", is_flag=True, help="Approve without asking.")
@click.option("--pending", is_flag=True, hidden=True)
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, every: bool, yes: bool, pending: bool) -> int:
    """Let a project's server start. Shows exactly what would run, and asks.

    Without ID, shows the servers that wait. Nothing of a project's file runs before you approve it, entry by
    entry; a changed entry asks again. What its tools may do is decided with `fairlead review`.

    \b
    Examples:
      fairlead approve
      fairlead approve github
      fairlead approve --all --yes
    """
    loaded = load(ctx)
    if pending:
        from fairlead.cli.pending_calls import answer_pending

        say("note: calls that wait are answered with `fairlead approvals answer` now")
        return answer_pending(action_context(ctx), {})
    saved = read_saved(loaded)
    unapproved = [server for name, server in loaded.servers.items() if not saved[name].approved]
    waiting = [server for server in unapproved if server.config is not None]
    if server_id is not None:
        named = loaded.server(server_id)
        if named not in unapproved:
            say(f"`{server_id}` needs no approval")
            return Exit.OK
        if named not in waiting:
            raise ConfigInvalid(*named.problems)
        waiting = [named]
    else:
        _warn_of_mistakes(server for server in unapproved if server.config is None)
        if not every:
            return _list_waiting(waiting)
    refused = 0
    approved: list[str] = []
    report(approved=approved)
    for server in waiting:
        key = server.consent  # what is shown is what is recorded, even if the files change meanwhile
        assert key is not None, "only servers that need consent wait for it"
        show_consent(server, key)
        if yes or confirm(f"\nLet `{server.server_id}` start?"):
            print_notices(approve_server(action_context(ctx, loaded), server.server_id, key))
            say(f"approved `{server.server_id}`")
            approved.append(server.server_id)
        else:
            refused += 1
            say(f"`{server.server_id}` stays off")
    if refused and server_id is not None:
        raise ConsentRequired(server_id, "not approved", hint="answer yes, or pass `--yes`")
    return Exit.NEEDS_A_PERSON if refused else Exit.OK


def _warn_of_mistakes(broken: Iterable[LoadedServer]) -> None:
    """Name the entries that cannot be approved yet: there is no telling what would run."""
    for server in broken:
        problem = next(each for each in server.problems if each.severity == "error")
        warn(f"`{server.server_id}` cannot be approved before its entry is mended: {problem}", problem.hint)


def _list_waiting(waiting: list[LoadedServer]) -> int:
    if not waiting:
        say("nothing waits for approval")
        report(waiting=[])
        return Exit.OK
    report(waiting=[server.server_id for server in waiting])
    for server in waiting:
        key = server.consent
        assert key is not None, "only servers that need consent wait for it"
        show_consent(server, key)
        print_data("")
    say("hint: `fairlead approve ID` approves one, `fairlead approve --all` asks about each")
    return Exit.NEEDS_A_PERSON
