"""`fairlead auth`."""

import os
from typing import Any

import click

from fairlead.actions.logins import KeptLogin, login_as_json, resource_of, scopes_of
from fairlead.auth.vault import FILE_NAME
from fairlead.cli.logins import format_expiry, format_place, read_kept
from fairlead.cli.options import json_option, load
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigError
from fairlead.terminal.output import print_json, print_table, say

COLUMNS = ("server", "url", "account", "issuer", "scopes", "expires", "kept in")

_Server = tuple[str, str]


@click.group("auth")
def command() -> None:
    """Show the logins that are kept on this machine.

    `fairlead login` makes one, `fairlead whoami` says who you are to a server, `fairlead logout` forgets one.
    """


@command.command("list")
@json_option
@click.pass_context
def list_command(ctx: click.Context, *, as_json: bool) -> None:
    """Show every login, also those of servers that are configured no more, and where it is kept.

    \b
    Examples:
      fairlead auth list
      fairlead auth list --json
    """
    loaded = load(ctx)
    users = _users(loaded)
    kept = read_kept(loaded)
    if as_json:
        file = str(state_folder(os.environ) / FILE_NAME)
        print_json({"file": file, "logins": [_as_json(each, users) for each in kept]})
    elif kept:
        print_table(COLUMNS, [_row(each, users) for each in kept])
    else:
        say("there are no logins; `fairlead login ID` makes one")


def _users(loaded: LoadedConfig) -> dict[_Server, list[LoadedServer]]:
    """The configured servers by the URL and the account that their logins are kept under."""
    users: dict[_Server, list[LoadedServer]] = {}
    for server in loaded.servers.values():
        if isinstance(server.config, RemoteServer):
            try:
                resource = resource_of(server)
            except ConfigError:
                continue  # its URL is unknown now, and so is its login
            users.setdefault((resource, server.config.account or ""), []).append(server)
    return users


def _users_of(kept: KeptLogin, users: dict[_Server, list[LoadedServer]]) -> list[LoadedServer]:
    login = kept.login
    return users.get((login.resource, login.account), []) if login.principal == LOCAL else []


def _renews(kept: KeptLogin, servers: list[LoadedServer]) -> bool:
    configs = (server.config for server in servers if isinstance(server.config, RemoteServer))
    is_machine = any(config.oauth and config.oauth.grant != "authorization_code" for config in configs)
    return not kept.login.is_over and (is_machine or kept.login.token.refresh_token is not None)


def _row(kept: KeptLogin, users: dict[_Server, list[LoadedServer]]) -> tuple[str, ...]:
    login, servers = kept.login, _users_of(kept, users)
    whose = "" if login.principal == LOCAL else f" of {login.principal}"
    return (
        ", ".join(server.server_id for server in servers) or "-",
        login.resource,
        f"{login.account or '-'}{whose}",
        login.issuer,
        " ".join(scopes_of(login)) or "-",
        format_expiry(login, renews=_renews(kept, servers)),
        format_place(kept.place),
    )


def _as_json(kept: KeptLogin, users: dict[_Server, list[LoadedServer]]) -> dict[str, Any]:
    servers = _users_of(kept, users)
    return {
        "servers": [server.server_id for server in servers],
        "principal": kept.login.principal,
        "over": kept.login.is_over,
        **login_as_json(kept, renews=_renews(kept, servers)),
    }
