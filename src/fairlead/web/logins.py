"""Logins that are begun in the dashboard: the page to open is shown, and the browser comes back by itself."""

from dataclasses import replace
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from fairlead.auth.flow import LoginTerms
from fairlead.auth.redirect import BrowserRedirect
from fairlead.catalog.sanitize import gate
from fairlead.config.load import LoadedServer
from fairlead.config.principal import LOCAL
from fairlead.errors import FairleadError, LoginFailed
from fairlead.host.elicitation.urls import UrlRefused, show_url
from fairlead.host.host import Host
from fairlead.web.live import ChangeSignal
from fairlead.web.panel import PendingLogin

_Key: TypeAlias = tuple[str, str]
"""A principal and a server."""

PAGE_SECONDS: Final = 20.0
"""How long to wait for the page of a login before the dashboard says to look again later."""


class DashboardLogins:
    """One login at a time for each principal and server; beginning another gives the one before up."""

    def __init__(self, host: Host, changes: ChangeSignal, tasks: TaskGroup) -> None:
        self._host = host
        self._tasks = tasks
        self._changes = changes
        self._latest: dict[_Key, PendingLogin] = {}
        self._redirects: dict[_Key, BrowserRedirect] = {}
        self._scopes: dict[_Key, anyio.CancelScope] = {}

    def latest(self, server_id: str, principal: str = LOCAL) -> PendingLogin | None:
        """The login that a principal began last."""
        return self._latest.get((principal, server_id))

    async def begin(self, server: LoadedServer, principal: str = LOCAL) -> None:
        """Begin a login, and wait until its page is known, or why there is none."""
        key = (principal, server.server_id)
        if previous := self._scopes.get(key):
            previous.cancel()
        known = anyio.Event()
        self._tasks.start_soon(self._log_in, server, key, known, name=f"login {server.server_id}")
        with anyio.move_on_after(PAGE_SECONDS):
            await known.wait()

    def finish(self, server_id: str, address: str, principal: str = LOCAL) -> str | None:
        """Take the address at which a browser on another machine ended up."""
        redirect = self._redirects.get((principal, server_id))
        return redirect.paste(address) if redirect else "no login is under way"

    async def _log_in(self, server: LoadedServer, key: _Key, known: anyio.Event) -> None:
        principal, server_id = key
        with anyio.CancelScope() as scope:
            self._scopes[key] = scope
            self._note(key, PendingLogin(server_id=server_id))
            try:
                await self._visit(server, key, known)
                self._note(key, PendingLogin(server_id=server_id, is_done=True))
                if principal == LOCAL:
                    await self._host.close(server_id)  # what it was connected with is outdated
                    self._tasks.start_soon(self._host.connect, server_id)
            except FairleadError as exc:
                self._note(key, PendingLogin(server_id=server_id, error=gate.error_text(exc)))
            finally:
                if self._scopes.get(key) is scope:
                    self._scopes.pop(key)
                    self._redirects.pop(key, None)
                known.set()

    async def _visit(self, server: LoadedServer, key: _Key, known: anyio.Event) -> None:
        logins = self._host.logins
        target = await logins.target(server, principal=key[0])

        terms: list[LoginTerms] = []

        async def agree(url: str) -> bool:
            page = show_url(url)
            if isinstance(page, UrlRefused):
                raise LoginFailed(server.server_id, f"its login page cannot be opened: {page}")
            words = terms[-1].words if terms else None
            self._note(key, replace(self._latest[key], page=page, terms=words))
            known.set()
            return True

        async def open_url(_url: str) -> bool:
            return False  # the person opens it, in the browser that shows the dashboard

        if target.oauth.grant != "authorization_code":
            await logins.log_in(target, None, surface="dashboard")
            return
        async with logins.browser(target, agree=agree, open_url=open_url) as redirect:
            self._redirects[key] = redirect
            await logins.log_in(target, redirect, announce=terms.append, surface="dashboard")

    def _note(self, key: _Key, visit: PendingLogin) -> None:
        self._latest[key] = visit
        self._changes.note()
