"""Kept logins, where a server stands as to logging in, and the OAuth client in its entry."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fairlead.actions.config_edits import EditOutcome, approved_servers, forget_entry_secrets, settle
from fairlead.actions.context import ActionContext
from fairlead.actions.saved_state import SavedState, read_saved
from fairlead.auth.tokens import Login, canonical
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.config.command_lines import command_line
from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, set_value
from fairlead.config.edit_scope import EditTarget, editable_file
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret, stash_secrets
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigError, ConfigInvalid, ConsentRequired, FairleadError

if TYPE_CHECKING:
    from fairlead.auth.token_endpoint import Revocation
    from fairlead.host.host import Host

Place = Literal["file", "keyring"]
State = Literal["logged_in", "login_needed", "not_logged_in", "not_needed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptLogin:
    """A login of the vault, and where its secrets are."""

    login: Login
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginStatus:
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


async def kept_logins(warn: Callable[[FairleadError], None]) -> list[KeptLogin]:
    """Every login of this user, the newest last. Contacts no issuer.

    Args:
        warn: Called with what is wrong with the vault.
    """
    logins = await Vault.of(os.environ, warn=warn).logins()
    # A vault that knows the file alone has no login whose secrets are in the keyring.
    plain = Vault(state_folder(os.environ) / FILE_NAME, place="file", warn=lambda _: None)
    in_file = {login.key for login in await plain.logins()}
    return [KeptLogin(login=login, place="file" if login.key in in_file else "keyring") for login in logins]


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
    """Raise where there is nothing to log in to, or the user has not consented to contact it."""
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
    identified = server.resolve_target(remote_config(server), os.environ)
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


def find_logins(
    loaded: LoadedConfig,
    kept: Iterable[KeptLogin],
    name: str | None,
    *,
    account: str | None = None,
    every: bool = False,
) -> list[KeptLogin]:
    """The user's own logins to a server.

    Args:
        loaded: The configuration.
        kept: All logins.
        name: The server's id, or its URL where it is configured no more; None for all servers.
        account: The account; by default the one that the server's entry names.
        every: All accounts.
    """
    if name is None:
        return [each for each in kept if each.login.principal == LOCAL]
    if "://" in name:
        resource, own_account = canonical(name), ""
    else:
        server = loaded.server(name)
        resource, own_account = resource_of(server), remote_config(server).account or ""
    return logins_to(resource, kept, None if every else own_account if account is None else account)


async def log_out(context: ActionContext, host: "Host", login: Login) -> "Revocation":
    """End a login at its issuer, where that is offered, and forget it in all processes in any case."""
    servers = [server for server in context.loaded.servers.values() if is_for(login, server)]
    return await host.logins.log_out(login, servers, surface=context.surface)


def is_for(login: Login, server: LoadedServer) -> bool:
    """Is this a server that a login is for? Not one whose URL or secrets cannot be had now."""
    try:
        config = remote_config(server)
        return config.oauth is not False and resource_of(server) == login.resource
    except ConfigError:
        return False


def standing_of(server: LoadedServer, saved: SavedState, kept: Iterable[KeptLogin]) -> LoginStatus:
    """Where a server that is reached by URL stands."""
    config, server_id = remote_config(server), server.server_id
    if own_way := own_way_in(config):
        return LoginStatus(server_id=server_id, state="not_needed", own_way=own_way)
    found = logins_to(resource_of(server), kept, config.account or "")
    login = next((each for each in reversed(found) if not each.login.is_over), None)
    is_machine = bool(config.oauth) and config.oauth.grant != "authorization_code"
    if login is not None:
        renews = is_machine or login.login.token.refresh_token is not None
        return LoginStatus(server_id=server_id, state="logged_in", kept=login, renews=renews)
    if is_machine:
        own_way = "it logs in by itself, as `oauth.grant` says"
        return LoginStatus(server_id=server_id, state="not_needed", own_way=own_way)
    is_wanted = bool(found) or (saved.trouble is not None and saved.trouble.state == "auth_required")
    return LoginStatus(server_id=server_id, state="login_needed" if is_wanted else "not_logged_in")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientEntry:
    """Where the client of a server is written."""

    server_id: str
    target: EditTarget
    path: tuple[str, ...]


def client_place(server: LoadedServer) -> ClientEntry:
    """The file that names a server's client, else the one that says what the server is."""
    setting = next(server.definition.settings(("oauth", "client_id")), None)
    part = server.definition.parts[0]
    layer, entry = (setting.origin.layer, setting.origin.path[:-2]) if setting else (part.layer, part.prefix)
    hint = "write `oauth.client_id` there by hand, and log in without `--client-id`"
    target = editable_file(server, layer, hint=hint)
    return ClientEntry(server_id=server.server_id, target=target, path=(*map(str, entry), "oauth"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedClient:
    """What became of an OAuth client that was written into an entry."""

    stashed: Sequence[StoredSecret]
    forgotten: ForgottenSecrets | None
    """What was put away for the client before it, and is no longer needed."""
    edit: EditOutcome


def remember_client(
    context: ActionContext, place: ClientEntry, client: dict[str, Any]
) -> RememberedClient | None:
    """Write the client, its secret as a reference, so that it need not be given again.

    Returns:
        What became of it; None where the file has it already.
    """
    entry, stashed = stash_secrets(place.server_id, {"oauth": client}, os.environ, file=place.target.path)
    fields: dict[str, Any] = entry["oauth"]

    earlier: dict[str, Any] = {}

    def change(text: str) -> str:
        present = as_object(jsonc.parse(text, file=str(place.target.path)).data)
        for name in place.path:
            present = as_object(present.get(name))
        earlier.clear()
        earlier.update(present)
        for name, value in fields.items():
            text = set_value(text, (*place.path, name), value)
        return text

    approved = approved_servers(context, [place.server_id])
    if not edit_file(place.target.path, change):
        return None
    edit = settle(context, place.target, [place.server_id], approved=approved)
    forgotten = forget_entry_secrets(place.target, earlier, edit.loaded)
    return RememberedClient(stashed=stashed, forgotten=forgotten, edit=edit)
