"""What the commands about logins share: who can be logged in to, which logins are kept, and how they read.

A person at a terminal and a login page: where it is, whether to open it, and how they come back.

Remember the OAuth client that a login worked with, in the entry of its server.
"""

import os
import sys
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

import anyio
import click

from fairlead.auth.browser import open_in_browser
from fairlead.auth.flow import LoginTerms
from fairlead.auth.redirect import BrowserRedirect, PastedRedirect
from fairlead.auth.tokens import Login, LoginTarget, canonical
from fairlead.auth.vault import FILE_NAME, Vault
from fairlead.cli.catalogs import SavedState, read_saved
from fairlead.cli.config_edits import approved_servers, forget_entry_secrets, settle
from fairlead.cli.host_run import spinning
from fairlead.cli.options import load
from fairlead.cli.output import display_path, is_interactive, print_data, printable, say, warn
from fairlead.cli.prompts import ask_for_line, ask_yes_or_no, bold
from fairlead.config.command_lines import command_line
from fairlead.config.document import jsonc
from fairlead.config.document.edit import edit_file, set_value
from fairlead.config.edit_scope import EditScope, EditTarget
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.paths import state_folder
from fairlead.config.principal import LOCAL
from fairlead.config.secrets.storage import stash_secrets
from fairlead.config.sources import LayerName
from fairlead.config.untyped import as_object
from fairlead.errors import (
    AuthRequired,
    ConfigError,
    ConfigInvalid,
    ConfigUnwritable,
    ConsentRequired,
    FairleadError,
    LoginFailed,
)
from fairlead.host.elicitation.urls import ShownUrl, UrlRefused, show_url
from fairlead.host.logins import Logins

Place = Literal["file", "keyring"]
State = Literal["logged_in", "login_needed", "not_logged_in", "not_needed"]

_UNITS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


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


def read_kept() -> list[KeptLogin]:
    """Every login of this user, the newest last. Contacts nobody."""
    return anyio.run(_load_kept_logins)


async def _load_kept_logins() -> list[KeptLogin]:
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


def format_expiry(login: Login, *, renews: bool) -> str:
    """When a login ends, for people."""
    if login.is_over:
        return "over; log in again"
    if login.token.expires_at is None:
        return "not known"
    seconds = login.token.expires_at / 1000 - time.time()
    if seconds <= 0:
        return "expired, renews by itself" if renews else "expired; log in again"
    return f"in {format_duration(seconds)}{', then renews by itself' if renews else ''}"


def format_duration(seconds: float) -> str:
    """A length of time in one number, for people."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), _UNITS[-1])
    return f"{round(seconds / size)} {unit}"


def format_place(place: Place) -> str:
    """Where a login's secrets are, for people."""
    return "keyring" if place == "keyring" else display_path(state_folder(os.environ) / FILE_NAME)


class LoginPage:
    """Has whoever is at the terminal log in to one server. One use only.

    The address of the page goes to stdout, for people and scripts alike; everything else is said on stderr.
    """

    def __init__(self, logins: Logins, target: LoginTarget, *, scopes: str | None = None) -> None:
        self._logins = logins
        self._target = target
        self._scopes = scopes
        self._server_id = target.server_id
        self._terms: list[LoginTerms] = []
        self._looking = AsyncExitStack()
        """Shows that the page is being looked for, until it is found."""

    async def log_in(self, *, by_paste: bool, yes: bool) -> Login:
        """Log in: without a person where the entry says so, else by what they paste, or by their browser."""
        async with self._looking:
            await self._looking.enter_async_context(spinning(f"asking {self._server_id} how to log in …"))
            if self._target.oauth.grant != "authorization_code":
                return await self._logins.log_in(self._target, None, scopes=self._scopes)
            return await (self._by_paste() if by_paste else self._by_browser(yes=yes))

    async def _by_paste(self) -> Login:
        redirect = PastedRedirect(
            self._server_id, self._ask_for_redirect, port=self._target.oauth.callback_port
        )
        return await self._logins.log_in(
            self._target, redirect, scopes=self._scopes, announce=self._terms.append
        )

    async def _ask_for_redirect(self, url: str, problem: str | None) -> str | None:
        if problem is None:
            await self._show(url)
            say("Open that address in a browser on any machine, and log in. In the end the browser shows a")
            say("page that cannot be reached: copy its address, which has a `code` in it, and paste it here.")
        else:
            say(f"  that is not it: {printable(problem)}")
        return await ask_for_line("address: ")

    async def _by_browser(self, *, yes: bool) -> Login:
        interactive = is_interactive()
        if not (yes or interactive or sys.stderr.isatty()):
            raise AuthRequired(
                self._server_id,
                "nobody is here to log in",
                hint=f"run `{command_line('login', self._server_id)}` at a terminal; a script can use "
                "`--no-browser`, which prints an address and reads the one that the browser ends up at",
            )

        async def agree(url: str) -> bool:
            page = await self._show(url)
            if yes or not interactive:
                return True
            # Whoever ran this command wants it, unless the page is an odd one.
            return await ask_yes_or_no("Open it?", default="no" if page.warnings else "yes")

        async def open_url(url: str) -> bool:
            """Open it, and see to the person until they are back: this ends when the login has its answer."""
            opened = (yes or interactive) and await open_in_browser(url)
            if not opened:
                say("no browser was started from here: please open that address yourself")
            if interactive:
                await self._take_pastes(redirect)
            else:
                await self._wait(redirect)
            return opened

        async with self._logins.browser(self._target, agree=agree, open_url=open_url) as redirect:
            return await self._logins.log_in(
                self._target, redirect, scopes=self._scopes, announce=self._terms.append
            )

    async def _show(self, url: str) -> ShownUrl:
        """Say where the page is and what is asked for there."""
        await self._looking.aclose()
        page = show_url(url)
        if isinstance(page, UrlRefused):
            raise LoginFailed(self._server_id, f"its login page cannot be opened: {page}")
        scopes = " ".join(parse_qs(urlsplit(url).query).get("scope", []))
        account = f" as `{printable(self._target.account)}`" if self._target.account else ""
        say(f"To log in to `{self._server_id}`{account} you go to {bold(printable(page.host))}.")
        say(f"  asks for: {printable(scopes) or 'what its issuer gives to everybody'}")
        for terms in self._terms[-1:]:
            say(f"  {printable(terms.words)}")
        for warning in page.warnings:
            say(f"  warning: {printable(warning)}")
        print_data(page.url)
        return page

    async def _take_pastes(self, redirect: BrowserRedirect) -> None:
        say(f"Waiting for you to log in there, {_until(redirect)}. Ctrl-C gives up. If your browser is on")
        say("another machine, it ends up at a page that cannot be reached: paste that page's address here.")
        try:
            while (text := await ask_for_line("address: ")) is not None:
                problem = redirect.paste(text)
                if problem is None:
                    return
                say(f"  that is not it: {printable(problem)}")
        except anyio.get_cancelled_exc_class():
            say()  # the browser came back, and the prompt is still there
            raise

    async def _wait(self, redirect: BrowserRedirect) -> None:
        async with spinning(f"waiting for you to log in there, {_until(redirect)} …"):
            await anyio.sleep_forever()


def _until(redirect: BrowserRedirect) -> str:
    end = datetime.now().astimezone() + timedelta(seconds=redirect.seconds)
    return f"until {end:%H:%M} ({redirect.seconds / 60:.0f} min)"


_SCOPES: dict[LayerName, EditScope] = {"project": "project", "user": "user", "file": "file"}


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
    if layer.path is None or layer.dialect is not None:
        reason = "which Fairlead reads but does not edit" if layer.path else "which is no file"
        raise ConfigUnwritable(
            f"`{server.server_id}` is described by {layer.label}, {reason}",
            hint="write `oauth.client_id` there by hand, and log in without `--client-id`",
        )
    target = EditTarget(scope=_SCOPES.get(layer.name, "file"), path=layer.path)
    return ClientEntry(server_id=server.server_id, target=target, path=(*map(str, entry), "oauth"))


def remember_client(ctx: click.Context, place: ClientEntry, client: dict[str, Any]) -> None:
    """Write the client, its secret as a reference, so that it need not be given again."""
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

    approved = approved_servers(load(ctx), [place.server_id])
    if edit_file(place.target.path, change):
        say(f"wrote the client of `{place.server_id}` to {display_path(place.target.path)}")
        for secret in stashed:
            say(f"  {secret.field}: the value was put away; the file says {secret.reference}")
        loaded = settle(ctx, place.target, [place.server_id], approved=approved)
        forget_entry_secrets(place.target, earlier, loaded)
