"""`fairlead approve`."""

import os
from collections.abc import Iterator

import click

from fairlead.cli.catalogs import read_saved
from fairlead.cli.exit_codes import Exit
from fairlead.cli.options import load
from fairlead.cli.output import confirm, print_data, printable, say, warn
from fairlead.config.command_lines import command_line
from fairlead.config.consent import ConsentKey
from fairlead.config.load import LoadedServer
from fairlead.config.models import ApprovalSettings
from fairlead.config.paths import store_file
from fairlead.config.secrets.redaction import redact_entry
from fairlead.config.untyped import as_list, is_object
from fairlead.errors import ConnectFailed, ConsentRequired


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
        return answer_pending({})
    saved = read_saved(loaded)
    waiting = [server for name, server in loaded.servers.items() if not saved[name].approved]
    if server_id is not None:
        named = loaded.server(server_id)
        if named not in waiting:
            say(f"`{server_id}` needs no approval")
            return Exit.OK
        waiting = [named]
    elif not every:
        return _list_waiting(waiting)
    refused = 0
    for server in waiting:
        key = server.consent  # what is shown is what is recorded, whatever becomes of the files meanwhile
        assert key is not None, "only servers that need consent wait for it"
        show(server, key)
        if yes or confirm(f"\nLet `{server.server_id}` start?"):
            _record(key, loaded.config.store.path)
            say(f"approved `{server.server_id}`")
        else:
            refused += 1
            say(f"`{server.server_id}` stays off")
    if refused and server_id is not None:
        raise ConsentRequired(server_id, "not approved", hint="answer yes, or pass `--yes`")
    return Exit.NEEDS_A_PERSON if refused else Exit.OK


def show(server: LoadedServer, key: ConsentKey) -> None:
    """Show what would run, whole and with nothing hidden, what it may do, and what consent is bound to."""
    print_data(f"{server.server_id}, from {server.definition.origin(())}")
    entry = redact_entry(server.entry)
    if server.transport == "stdio":
        print_data("  runs this program, with these arguments:")
        for word in (entry.get("command"), *entry.get("args", [])):
            print_data(f"    {printable(str(word))}")
    else:
        print_data(f"  talks to {printable(server.target)}")
    for name, value in entry.items():
        if name not in ("command", "args", "url"):
            print_data(f"  {name}: {printable(str(value))}")
    for fact in key.facts:
        print_data(f"  {fact.label}: {printable(fact.text)}")
    if server.transport == "stdio":
        _show_rights(server, entry.get("sandbox"))
    if any(name in entry for name in ("trust", "allow_tools", "approval")):
        command = command_line("review", server.server_id)
        print_data(f"  It says what its tools may do: {_tool_rights(server)}. `{command}` changes that.")


def _tool_rights(server: LoadedServer) -> str:
    """What an entry that is approved lets agents do with its tools before a review."""
    config = server.config
    assert config is not None, "only what is sound can be approved"
    is_trusted = config.trust == "trusted"
    if config.allow_tools is None and not is_trusted:
        return "agents get none of them before a review"
    which = "all of them" if config.allow_tools is None else "those in allow_tools"
    if isinstance(config.approval, ApprovalSettings):
        return f"agents get {which}, and may call them as `approval` says"
    mode = config.approval or server.approval or ("auto" if is_trusted else "ask")
    return f"agents get {which}, and {_MODES[mode]}"


_MODES = {
    "allow": "may call them without asking",
    "ask": "calls are asked about",
    "auto": "may call those that a trusted server annotates as read-only without asking",
    "deny": "no one may call them",
}


def _show_rights(server: LoadedServer, sandbox: object) -> None:
    if not is_object(sandbox):
        print_data("  It is not sandboxed: it has your rights, and can read and change whatever you can.")
        return
    network = "can use the network" if sandbox.get("network") is True else "has no network"
    print_data(
        f"  It is sandboxed: it {network}, and of your files it sees its program, the folder it starts in"
    )
    for access in ("read", "write"):
        for path in as_list(sandbox.get(access)):
            print_data(f"    and may {access} {printable(str(path))}")
    for line in sandbox_lines(server):
        print_data(f"    {line}")


def sandbox_lines(server: LoadedServer) -> Iterator[str]:
    """What its program brings into a server's sandbox, which the entry does not name."""
    from fairlead.connection.transport.factory import paths_brought_by  # only sandboxes need it

    try:
        for path in paths_brought_by(server, os.environ):
            yield f"and, for its program, may read {printable(str(path))}"
    except ConnectFailed as exc:
        yield f"and it could not start now: {printable(str(exc))}"


def _list_waiting(waiting: list[LoadedServer]) -> int:
    if not waiting:
        say("nothing waits for approval")
        return Exit.OK
    for server in waiting:
        key = server.consent
        assert key is not None, "only servers that need consent wait for it"
        show(server, key)
        print_data("")
    say("hint: `fairlead approve ID` approves one, `fairlead approve --all` asks about each")
    return Exit.NEEDS_A_PERSON


def _record(key: ConsentKey, store_path: str | None) -> None:
    from fairlead.gateway.registry import reload_gateways
    from fairlead.policy.consent import record_consent

    record_consent(store_file(os.environ, store_path), [key])
    for refusal in reload_gateways(os.environ):
        warn(refusal, "correct the configuration: the gateway takes it over then")
