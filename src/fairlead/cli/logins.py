"""What the commands about logins share: who can be logged in to, which logins are kept, and how they read."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio

from fairlead.auth.target import canonical
from fairlead.auth.tokens import Login
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.cli.output import shown_path, warn
from fairlead.cli.saved import Saved, read_saved
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigError, ConfigInvalid, ConsentRequired, FairleadError

Place = Literal["file", "keyring"]
State = Literal["logged_in", "login_needed", "not_logged_in", "not_needed"]

_UNITS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptLogin:
    """A login of the vault, and where its secrets are."""

    login: Login
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where one server stands as to logging in, as far as that is known without asking it."""

    server_id: str
    state: State
    kept: KeptLogin | None = None
    renews: bool = False
    own_way: str | None = None
    """What lets it in, where that is no login."""

    @property
    def words(self) -> str:
        """The state, for people."""
        return f"not needed: {self.own_way}" if self.own_way else self.state.replace("_", " ")


def read_kept() -> list[KeptLogin]:
    """Every login of this user, the newest last. Contacts nobody."""
    return anyio.run(_kept)


async def _kept() -> list[KeptLogin]:
    logins = await Vault.of(os.environ, warn=warn_of).logins()
    # A vault that knows the file alone has no login whose secrets are in the keyring.
    plain = Vault(state_folder(os.environ) / FILE_NAME, place="file", warn=lambda _: None)
    in_file = {login.key for login in await plain.logins()}
    return [KeptLogin(login=login, place="file" if login.key in in_file else "keyring") for login in logins]


def warn_of(trouble: FairleadError) -> None:
    """Tell the person what is wrong with the vault."""
    warn(str(trouble), trouble.hint)


def remote_config(server: LoadedServer) -> RemoteServer:
    """The configuration of a server that can have a login. Raises where it can have none."""
    if server.transport not in ("http", "sse"):
        raise ConfigError(
            f"`{server.server_id}` is not reached by URL, and has no login",
            hint="give a local program its secrets with `env`, best as references such as `${NAME}`",
        )
    if not isinstance(server.config, RemoteServer):
        raise ConfigInvalid(*server.problems)
    return server.config


def require_ready(loaded: LoadedConfig, server: LoadedServer) -> None:
    """Raise where there is nothing to log in to, or nobody agreed to contact it."""
    server_id = server.server_id
    own_way = own_way_in(remote_config(server))
    if own_way is not None:
        raise ConfigError(
            f"a login to `{server_id}` would not be used: {own_way}",
            hint=f"take that out to log in: `{command_line('explain server', server_id)}` says where it is",
        )
    if not read_saved(loaded)[server_id].approved:
        raise ConsentRequired(
            server_id, "you have not approved this entry", hint=f"run `{command_line('approve', server_id)}`"
        )


def own_way_in(config: RemoteServer) -> str | None:
    """What lets a server's requests in by themselves, so that no login would be used."""
    if config.oauth is False:
        return "its entry says `oauth: false`"
    if any(name.lower() == "authorization" for name in config.headers):
        return "its entry sets `headers.Authorization`"
    if config.headers_helper is not None:
        return "its entry sets `headers_helper`"
    return "its entry sets `auth_provider_id`" if config.auth_provider_id is not None else None


def resource_of(server: LoadedServer) -> str:
    """The name that logins to a server are kept under."""
    identified = server.identified(remote_config(server), os.environ)
    assert isinstance(identified, RemoteServer)
    return canonical(identified.url)


def logins_to(resource: str, kept: Iterable[KeptLogin], account: str | None = None) -> list[KeptLogin]:
    """The user's own logins to a server: of one account, or of all."""
    return [
        each
        for each in kept
        if (each.login.principal, each.login.resource) == (LOCAL, resource)
        and account in (None, each.login.account)
    ]


def standing_of(server: LoadedServer, saved: Saved, kept: Iterable[KeptLogin]) -> Standing:
    """Where a server that is reached by URL stands."""
    config, server_id = remote_config(server), server.server_id
    if own_way := own_way_in(config):
        return Standing(server_id=server_id, state="not_needed", own_way=own_way)
    found = logins_to(resource_of(server), kept, config.account or "")
    login = next((each for each in reversed(found) if not each.login.is_over), None)
    is_machine = bool(config.oauth) and config.oauth.grant != "authorization_code"
    if login is not None:
        renews = is_machine or login.login.token.refresh_token is not None
        return Standing(server_id=server_id, state="logged_in", kept=login, renews=renews)
    if is_machine:
        own_way = "it logs in by itself, as `oauth.grant` says"
        return Standing(server_id=server_id, state="not_needed", own_way=own_way)
    is_wanted = bool(found) or (saved.trouble is not None and saved.trouble.state == "auth_required")
    return Standing(server_id=server_id, state="login_needed" if is_wanted else "not_logged_in")


def login_as_json(kept: KeptLogin, *, renews: bool) -> dict[str, Any]:
    """A login for programs: everything about it but what is secret."""
    login = kept.login
    expires_at = login.token.expires_at
    return {
        "url": login.resource,
        "account": login.account or None,
        "issuer": login.issuer,
        "scopes": scopes_of(login),
        "expires_at": None if expires_at is None else expires_at / 1000,
        "renews": renews,
        "client": {"id": login.client.client_id, "origin": login.client.origin},
        "kept_in": kept.place,
    }


def scopes_of(login: Login) -> list[str]:
    """What a login may do, as its issuer calls it."""
    return (login.token.scope or "").split()


def shown_expiry(login: Login, *, renews: bool) -> str:
    """When a login ends, for people."""
    if login.is_over:
        return "over; log in again"
    if login.token.expires_at is None:
        return "not known"
    seconds = login.token.expires_at / 1000 - time.time()
    if seconds <= 0:
        return "expired, renews by itself" if renews else "expired; log in again"
    return f"in {shown_time(seconds)}{', then renews by itself' if renews else ''}"


def shown_time(seconds: float) -> str:
    """A length of time in one number, for people."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), _UNITS[-1])
    return f"{round(seconds / size)} {unit}"


def shown_place(place: Place) -> str:
    """Where a login's secrets are, for people."""
    return "keyring" if place == "keyring" else shown_path(state_folder(os.environ) / FILE_NAME)
