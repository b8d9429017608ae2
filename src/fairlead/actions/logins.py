"""Logins of servers: log in and out, stored logins, login status, and the OAuth client in an entry."""

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

from fairlead.actions.config_edits import EditOutcome, approved_servers, forget_entry_secrets, settle
from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.saved_state import SavedState, read_saved
from fairlead.auth.store_vault import StoreVault
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
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret, discard, stash_secrets
from fairlead.config.store_location import RedisLocation, StoreLocation
from fairlead.config.untyped import as_object
from fairlead.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigUnwritable,
    ConsentRequired,
    FairleadError,
    LoginFailed,
)
from fairlead.store.async_store import AsyncStore

if TYPE_CHECKING:
    from fairlead.auth.flow import LoginTerms
    from fairlead.auth.redirect import BrowserRedirect
    from fairlead.auth.token_endpoint import Revocation
    from fairlead.auth.tokens import LoginTarget
    from fairlead.host.elicitation.urls import ShownUrl
    from fairlead.host.host import Host
    from fairlead.host.logins import LoginActor

SecretsPlace = Literal["file", "keyring", "store"]
"""Where the tokens of a login are."""
LoginState = Literal["logged_in", "login_needed", "not_logged_in", "not_needed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptLogin:
    """A stored login, and the place of its secrets."""

    login: Login
    place: SecretsPlace


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginStatus:
    """Login status of one server, as far as it is known without contacting it."""

    server_id: str
    state: LoginState
    kept: KeptLogin | None = None
    renews: bool = False
    own_way: str | None = None
    """What lets it in, where that is no login."""

    @property
    def words(self) -> str:
        """The state in words."""
        return f"not needed: {self.own_way}" if self.own_way else self.state.replace("_", " ")


async def list_logins(location: StoreLocation, warn: Callable[[FairleadError], None]) -> list[KeptLogin]:
    """Every login of this user, or in a shared store of all, the newest last. Contacts no issuer.

    Args:
        location: Where the store is.
        warn: Called with what is wrong with the vault.
    """
    if isinstance(location, RedisLocation):
        async with AsyncStore.open(location) as store:
            shared = await StoreVault(store).logins()
        return [KeptLogin(login=login, place="store") for login in shared]
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
    """Raise where there is nothing to log in to, or the user has not consented to contact the server."""
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
    """Credentials in a server's entry that take the place of a login, if any."""
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


# Logging in and out.


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginOffer:
    """Login as shown to the user for confirmation: the page, the issuer, and the requested scopes."""

    server_id: str
    account: str
    page: "ShownUrl"
    issuer: str
    """Which issuer the tokens come from, in a sentence."""
    scopes: Sequence[str]

    @property
    def asked_for(self) -> str:
        """The requested scopes, for display."""
        return " ".join(self.scopes) or "the default of its issuer"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginDialog:
    """Prompts of a surface during a login."""

    show: Callable[[LoginOffer], Awaitable[bool]]
    """Shows the offer; False where the user declines."""
    open_page: "Callable[[str, BrowserRedirect], Awaitable[bool]]"
    """Opens the page, or has the user do so; False where no browser was started. May go on until the login
    ends, to take the address of a browser on another machine."""
    read_address: Callable[[str | None], Awaitable[str | None]] | None = None
    """Asks for the address that the browser ended up at, given what is wrong with the last one. Where it is
    set, this process listens on no port, and `open_page` is not used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletedLogin:
    """A login that succeeded."""

    login: Login
    is_machine: bool
    """Was it made without a user, by a grant for machines?"""
    unkept: ConfigUnwritable | None = None
    """Why it ends with this process."""
    notices: Sequence[Notice] = ()

    @property
    def renews(self) -> bool:
        """Whether its token can be refreshed without the user."""
        return self.is_machine or self.login.token.refresh_token is not None

    @property
    def scopes(self) -> list[str]:
        """The granted scopes."""
        return scopes_of(self.login)


async def log_in(
    context: ActionContext,
    host: "Host",
    target: "LoginTarget",
    dialog: LoginDialog,
    *,
    scopes: str | None = None,
) -> CompletedLogin:
    """Log in to a server: in a browser, or without a user where its entry has a grant for machines.

    Nothing is opened before the user was shown the page, its issuer and the scopes. The audit record has the
    surface and who logged in.

    Args:
        context: Who logs in.
        host: The host that uses the login at once.
        target: The server and whose login it is; see `Logins.target`.
        dialog: How the user is taken through it.
        scopes: Scopes to ask for in place of the server's.

    Raises:
        LoginFailed: The user declined, the issuer refused, or the login page is not safe to open.
        ConnectFailed: The server cannot be reached.
    """
    is_machine = target.oauth.grant != "authorization_code"
    if is_machine:
        login = await host.logins.log_in(target, None, actor=_actor(context))
    else:
        login = await _log_in_by_page(context, host, target, dialog, scopes)
    troubles: list[FairleadError] = []
    unkept = await _check_stored(context, target.server_id, login, troubles.append)
    notices = [Notice(message=str(trouble), hint=trouble.hint) for trouble in troubles]
    return CompletedLogin(login=login, is_machine=is_machine, unkept=unkept, notices=notices)


async def _log_in_by_page(
    context: ActionContext, host: "Host", target: "LoginTarget", dialog: LoginDialog, scopes: str | None
) -> Login:
    from fairlead.auth.redirect import PastedRedirect

    terms: list[LoginTerms] = []
    begin = partial(host.logins.log_in, target, scopes=scopes, announce=terms.append, actor=_actor(context))

    async def agree(url: str) -> bool:
        return await dialog.show(_offer_of(target, url, terms))

    read_address = dialog.read_address
    if read_address is not None:

        async def ask(url: str, problem: str | None) -> str | None:
            is_agreed = problem is not None or await agree(url)
            return await read_address(problem) if is_agreed else None

        return await begin(PastedRedirect(target.server_id, ask, port=target.oauth.callback_port))

    async def open_url(url: str) -> bool:
        return await dialog.open_page(url, redirect)

    async with host.logins.browser(target, agree=agree, open_url=open_url) as redirect:
        return await begin(redirect)


def _offer_of(target: "LoginTarget", url: str, terms: "Sequence[LoginTerms]") -> LoginOffer:
    from fairlead.host.elicitation.urls import UrlRefused, show_url

    page = show_url(url)
    if isinstance(page, UrlRefused):
        raise LoginFailed(target.server_id, f"its login page cannot be opened: {page}")
    return LoginOffer(
        server_id=target.server_id,
        account=target.account,
        page=page,
        issuer=terms[-1].words,
        scopes=" ".join(parse_qs(urlsplit(url).query).get("scope", [])).split(),
    )


async def _check_stored(
    context: ActionContext, server_id: str, login: Login, warn: Callable[[FairleadError], None]
) -> ConfigUnwritable | None:
    """Return the error of a login that works but could not be stored; None where it was stored."""
    if isinstance(location := context.store, RedisLocation):
        async with AsyncStore.open(location) as store:
            kept = await StoreVault(store).get(login.key)
    else:
        kept = await Vault.of(context.env, warn=warn).get(login.key)
    if kept is not None and kept.token.access_token == login.token.access_token:
        return None
    return ConfigUnwritable(
        f"the login to `{server_id}` worked, but could not be kept",
        hint="see that the state folder can be written to, then log in again",
    )


def _actor(context: ActionContext) -> "LoginActor":
    from fairlead.host.logins import LoginActor

    return LoginActor(surface=context.surface, principal=context.principal)


async def log_out(context: ActionContext, host: "Host", login: Login) -> "Revocation":
    """Revoke a login at its issuer, where that is offered, and forget it in all processes in any case."""
    servers = [server for server in context.loaded.servers.values() if is_for(login, server)]
    return await host.logins.log_out(login, servers, actor=_actor(context))


def is_for(login: Login, server: LoadedServer) -> bool:
    """Whether a login is for this server; False where its URL or secrets cannot be resolved."""
    try:
        config = remote_config(server)
        return config.oauth is not False and resource_of(server) == login.resource
    except ConfigError:
        return False


def login_status(server: LoadedServer, saved: SavedState, kept: Iterable[KeptLogin]) -> LoginStatus:
    """Login status of a remote server."""
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
    state = saved.trouble.state if saved.trouble is not None else None
    is_wanted = bool(found) or state in ("auth_required", "needs_client_registration")
    return LoginStatus(server_id=server_id, state="login_needed" if is_wanted else "not_logged_in")


def login_as_json(kept: KeptLogin, *, renews: bool) -> dict[str, Any]:
    """A login as a JSON object, without its secrets."""
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
    """The scopes of a login, as its issuer names them."""
    return (login.token.scope or "").split()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientEntry:
    """Place of a server's OAuth client in a configuration file."""

    server_id: str
    target: EditTarget
    path: tuple[str, ...]


def client_place(server: LoadedServer) -> ClientEntry:
    """The file that names a server's client, else the one with the server's target."""
    setting = next(server.definition.settings(("oauth", "client_id")), None)
    part = server.definition.parts[0]
    layer, entry = (setting.origin.layer, setting.origin.path[:-2]) if setting else (part.layer, part.prefix)
    hint = "write `oauth.client_id` there by hand, and log in without naming the client"
    target = editable_file(server, layer, hint=hint)
    if not layer.has_references:  # which the client's secret becomes
        reason = "whose `mcp.servers` has no references"
        raise ConfigUnwritable(f"`{server.server_id}` is described by {layer.label}, {reason}", hint=hint)
    return ClientEntry(server_id=server.server_id, target=target, path=(*map(str, entry), "oauth"))


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedClient:
    """Outcome of writing an OAuth client into an entry."""

    stashed: Sequence[StoredSecret]
    forgotten: ForgottenSecrets | None
    """What was put away for the client before it, and is no longer needed."""
    edit: EditOutcome


def remember_client(
    context: ActionContext, place: ClientEntry, client: dict[str, Any]
) -> RememberedClient | None:
    """Write the client into the entry, its secret as a reference, so that it need not be given again.

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
    try:
        is_written = edit_file(place.target.path, change)
    except BaseException:
        discard(stashed)
        raise
    if not is_written:
        return None
    edit = settle(context, place.target, [place.server_id], approved=approved)
    forgotten = forget_entry_secrets(place.target, earlier, edit.loaded)
    names = [f"oauth.{name}" for name in fields]
    file = str(place.target.path.absolute())
    edit.notices.extend(context.record("edit", place.server_id, file=file, fields=names))
    return RememberedClient(stashed=stashed, forgotten=forgotten, edit=edit)
