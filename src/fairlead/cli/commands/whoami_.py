"""`fairlead whoami`."""

from typing import Any

import click

from fairlead.actions.logins import LoginStatus, login_as_json, login_status, scopes_of
from fairlead.actions.saved_state import read_saved
from fairlead.cli.logins import format_expiry, format_place, read_kept
from fairlead.cli.options import json_option, load
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig
from fairlead.errors import ConfigError
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_table, printable, say, warn

COLUMNS = ("server", "state", "account", "issuer", "scopes", "expires")


@click.command("whoami")
@click.argument("server_id", metavar="[ID]", required=False)
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, as_json: bool) -> int:
    """Show your login at a server, or at all that have one. Nothing is contacted.

    It says who issued the login, for which account, what it may do, and when it expires; never a token.

    \b
    Examples:
      fairlead whoami
      fairlead whoami notion
      fairlead whoami notion --json
    """
    loaded = load(ctx)
    if server_id is None:
        _show_all(_standings(loaded), as_json=as_json)
        return Exit.OK
    server = loaded.server(server_id)
    standing = login_status(server, read_saved(loaded)[server_id], read_kept(loaded))
    if as_json:
        print_json(_as_json(standing))
    else:
        _show(standing)
    return Exit.OK if standing.state in ("logged_in", "not_needed") else Exit.NEEDS_A_PERSON


def _standings(loaded: LoadedConfig) -> list[LoginStatus]:
    saved, kept = read_saved(loaded), read_kept(loaded)
    standings: list[LoginStatus] = []
    for server_id, server in loaded.servers.items():
        if server.transport not in ("http", "sse"):
            continue
        try:
            standings.append(login_status(server, saved[server_id], kept))
        except ConfigError as exc:  # one server whose URL is unknown is no reason to hide the others
            warn(str(exc), exc.hint)
    return standings


def _show_all(standings: list[LoginStatus], *, as_json: bool) -> None:
    if as_json:
        print_json({"servers": [_as_json(standing) for standing in standings]})
    elif standings:
        print_table(COLUMNS, [_row(standing) for standing in standings])
        missing = [each.server_id for each in standings if each.state == "login_needed"]
        if missing:
            say(f"\nhint: run `{command_line('login', missing[0])}`")
    else:
        say("no server is configured that can be logged in to")


def _show(standing: LoginStatus) -> None:
    kept, server_id = standing.kept, standing.server_id
    if kept is None:
        say(f"`{server_id}`: {standing.words}")
        if standing.state != "not_needed":
            say(f"\nhint: run `{command_line('login', server_id)}`")
        return
    login = kept.login
    lines = {
        "server": server_id,
        "url": login.resource,
        "account": login.account or "-",
        "issuer": login.issuer,
        "scopes": " ".join(scopes_of(login)) or "-",
        "expires": format_expiry(login, renews=standing.renews),
        "client": f"{login.client.client_id} ({login.client.origin.replace('_', ' ')})",
        "kept in": format_place(kept.place),
    }
    for name, value in lines.items():
        print_data(f"{name:<9}{printable(value)}")


def _row(standing: LoginStatus) -> tuple[str, ...]:
    if standing.kept is None:
        return standing.server_id, standing.words, "-", "-", "-", "-"
    login = standing.kept.login
    return (
        standing.server_id,
        standing.words,
        login.account or "-",
        login.issuer,
        " ".join(scopes_of(login)) or "-",
        format_expiry(login, renews=standing.renews),
    )


def _as_json(standing: LoginStatus) -> dict[str, Any]:
    login = login_as_json(standing.kept, renews=standing.renews) if standing.kept else None
    return {
        "server": standing.server_id,
        "state": standing.state,
        "reason": standing.own_way,
        "login": login,
    }
