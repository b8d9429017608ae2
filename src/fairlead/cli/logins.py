"""Logins at the terminal: how they read, and a login page that the user is sent to."""

import os
import sys
import time
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import click

from fairlead.actions import logins
from fairlead.actions.logins import ClientEntry, KeptLogin, Place
from fairlead.auth.browser import open_in_browser
from fairlead.auth.flow import LoginTerms
from fairlead.auth.redirect import BrowserRedirect, PastedRedirect
from fairlead.auth.tokens import Login, LoginRedirect, LoginTarget
from fairlead.auth.vault import FILE_NAME
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import load
from fairlead.config.command_lines import command_line
from fairlead.config.paths import state_folder
from fairlead.errors import AuthRequired, FairleadError, LoginFailed
from fairlead.host.elicitation.urls import ShownUrl, UrlRefused, show_url
from fairlead.host.logins import Logins
from fairlead.terminal.host_run import spinning
from fairlead.terminal.output import display_path, is_interactive, print_data, printable, say, warn
from fairlead.terminal.prompts import ask_for_line, ask_yes_or_no, bold

_UNITS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def read_kept() -> list[KeptLogin]:
    """Every login of this user, the newest last. Contacts no issuer."""
    return anyio.run(logins.kept_logins, warn_of)


def warn_of(trouble: FairleadError) -> None:
    """Tell the person what is wrong with the vault."""
    warn(str(trouble), trouble.hint)


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
    """Has the user at the terminal log in to one server. One use only.

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
                return await self._log_in(None)
            return await (self._by_paste() if by_paste else self._by_browser(yes=yes))

    async def _by_paste(self) -> Login:
        redirect = PastedRedirect(
            self._server_id, self._ask_for_redirect, port=self._target.oauth.callback_port
        )
        return await self._log_in(redirect)

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
                "there is no terminal to log in at",
                hint=f"run `{command_line('login', self._server_id)}` at a terminal; a script can use "
                "`--no-browser`, which prints an address and reads the one that the browser ends up at",
            )

        async def agree(url: str) -> bool:
            page = await self._show(url)
            if yes or not interactive:
                return True
            # The user asked for this login; only an odd page needs another yes.
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
            return await self._log_in(redirect)

    async def _log_in(self, redirect: LoginRedirect | None) -> Login:
        return await self._logins.log_in(
            self._target,
            redirect,
            scopes=self._scopes,
            announce=self._terms.append,
            surface="command line",
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
        say(f"  asks for: {printable(scopes) or 'the default of its issuer'}")
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


def remember_client(ctx: click.Context, place: ClientEntry, client: dict[str, Any]) -> None:
    """Write the client into its server's entry, and say so."""
    remembered = logins.remember_client(action_context(ctx, load(ctx)), place, client)
    if remembered is None:
        return
    say(f"wrote the client of `{place.server_id}` to {display_path(place.target.path)}")
    for secret in remembered.stashed:
        say(f"  {secret.field}: the value is stored as a secret; the file has {secret.reference}")
    show_edit(remembered.edit)
    show_forgotten(remembered.forgotten)
