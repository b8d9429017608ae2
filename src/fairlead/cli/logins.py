"""Logins at the terminal: their display, and the login page that the user is sent to."""

import os
import sys
import time
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from fairlead.actions import logins
from fairlead.actions.context import ActionContext
from fairlead.actions.logins import (
    ClientEntry,
    CompletedLogin,
    KeptLogin,
    LoginDialog,
    LoginOffer,
    SecretsPlace,
)
from fairlead.auth.browser import open_in_browser
from fairlead.auth.redirect import BrowserRedirect
from fairlead.auth.tokens import Login, LoginTarget
from fairlead.auth.vault import FILE_NAME
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import load
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig
from fairlead.config.paths import state_folder
from fairlead.config.store_location import store_location
from fairlead.errors import AuthRequired, FairleadError
from fairlead.terminal.host_run import spinning
from fairlead.terminal.output import display_path, is_interactive, print_data, printable, say, warn
from fairlead.terminal.prompts import ask_for_line, ask_yes_or_no, bold

if TYPE_CHECKING:
    from fairlead.host.host import Host

_UNITS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def read_kept(loaded: LoadedConfig) -> list[KeptLogin]:
    """Every login of this user, the newest last. Contacts no issuer."""
    return anyio.run(logins.list_logins, store_location(os.environ, loaded.config.store), warn_of)


def warn_of(trouble: FairleadError) -> None:
    """Print a warning about the vault."""
    warn(str(trouble), trouble.hint)


def format_expiry(login: Login, *, renews: bool) -> str:
    """Expiry of a login, for display."""
    if login.is_over:
        return "expired; log in again"
    if login.token.expires_at is None:
        return "not known"
    seconds = login.token.expires_at / 1000 - time.time()
    if seconds <= 0:
        return "expired, renews by itself" if renews else "expired; log in again"
    return f"in {format_duration(seconds)}{', then renews by itself' if renews else ''}"


def format_duration(seconds: float) -> str:
    """A duration in one unit, for display."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 2 * size), _UNITS[-1])
    return f"{round(seconds / size)} {unit}"


def format_place(place: SecretsPlace) -> str:
    """Place of a login's secrets, for display."""
    if place != "file":
        return place
    return display_path(state_folder(os.environ) / FILE_NAME)


class LoginPage:
    """Has the user at the terminal log in to one server. One use only.

    The address of the page goes to stdout, for people and scripts alike; everything else is said on stderr.
    """

    def __init__(
        self, context: ActionContext, host: "Host", target: LoginTarget, *, scopes: str | None = None
    ) -> None:
        self._context = context
        self._host = host
        self._target = target
        self._scopes = scopes
        self._server_id = target.server_id
        self._looking = AsyncExitStack()
        """Shows that the page is being looked for, until it is found."""

    async def log_in(self, *, by_paste: bool, yes: bool) -> CompletedLogin:
        """Log in: by the grant in the entry, by a pasted redirect URL, or in the browser."""
        interactive = is_interactive()
        is_machine = self._target.oauth.grant != "authorization_code"
        if not (is_machine or by_paste or yes or interactive or sys.stderr.isatty()):
            # A terminal helps only where there is a login: else what is really missing is the error.
            await self._host.logins.require_login_page(self._target)
            raise AuthRequired(
                self._server_id,
                "there is no terminal to log in at",
                hint=f"run `{command_line('login', self._server_id)}` at a terminal; a script can use "
                "`--no-browser`, which prints an address and reads the one that the browser ends up at",
            )

        async def show(offer: LoginOffer) -> bool:
            await self._show(offer)
            if by_paste:
                say("Open that address in a browser on any machine, and log in. In the end the browser shows")
                say("a page that cannot be reached: copy its address, which has a `code` in it, and paste it")
                say("here.")
            if by_paste or yes or not interactive:
                return True
            # The user started this login; only an unusual page needs another confirmation.
            return await ask_yes_or_no("Open it?", default="no" if offer.page.warnings else "yes")

        async def open_page(url: str, redirect: BrowserRedirect) -> bool:
            """Open it, and see to the person until they are back: this ends when the login has its answer."""
            opened = (yes or interactive) and await open_in_browser(url)
            if not opened:
                say("no browser was started from here: please open that address yourself")
            await (self._take_pastes(redirect) if interactive else self._wait(redirect))
            return opened

        dialog = LoginDialog(
            show=show, open_page=open_page, read_address=self._read_address if by_paste else None
        )
        async with self._looking:
            await self._looking.enter_async_context(spinning(f"asking {self._server_id} how to log in …"))
            return await logins.log_in(self._context, self._host, self._target, dialog, scopes=self._scopes)

    async def _read_address(self, problem: str | None) -> str | None:
        if problem is not None:
            say(f"  not this login's redirect URL: {printable(problem)}")
        return await ask_for_line("address: ")

    async def _show(self, offer: LoginOffer) -> None:
        """Show the login page's address and the requested scopes."""
        await self._looking.aclose()
        account = f" as `{printable(offer.account)}`" if offer.account else ""
        say(f"To log in to `{self._server_id}`{account} you go to {bold(printable(offer.page.host))}.")
        say(f"  asks for: {printable(offer.asked_for)}")
        say(f"  {printable(offer.issuer)}")
        for warning in offer.page.warnings:
            say(f"  warning: {printable(warning)}")
        print_data(offer.page.url)

    async def _take_pastes(self, redirect: BrowserRedirect) -> None:
        say(f"Waiting for you to log in there, {_until(redirect)}. Ctrl-C gives up. If your browser is on")
        say("another machine, it ends up at a page that cannot be reached: paste that page's address here.")
        if os.environ.get("SSH_CONNECTION"):
            port = redirect.port
            say(f"With `ssh -L {port}:127.0.0.1:{port}` from there to here, it comes back by itself.")
        try:
            while (text := await ask_for_line("address: ")) is not None:
                problem = redirect.paste(text)
                if problem is None:
                    return
                say(f"  not this login's redirect URL: {printable(problem)}")
        except anyio.get_cancelled_exc_class():
            say()  # the browser came back, and the prompt is still there
            raise

    async def _wait(self, redirect: BrowserRedirect) -> None:
        async with spinning(f"waiting for you to log in there, {_until(redirect)} …"):
            await anyio.sleep_forever()


def _until(redirect: BrowserRedirect) -> str:
    end = datetime.now().astimezone() + timedelta(seconds=redirect.seconds)
    return f"until {end:%H:%M} ({redirect.seconds / 60:.0f} min)"


def remember_client(ctx: click.Context, place: ClientEntry, client: dict[str, Any]) -> None:
    """Write the client into its server's entry, and print where."""
    remembered = logins.remember_client(action_context(ctx, load(ctx)), place, client)
    if remembered is None:
        return
    say(f"wrote the client of `{place.server_id}` to {display_path(place.target.path)}")
    for secret in remembered.stashed:
        say(f"  {secret.field}: the value is stored as a secret; the file has {secret.reference}")
    show_edit(remembered.edit)
    show_forgotten(remembered.forgotten)
