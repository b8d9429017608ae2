"""Logins that are begun in the dashboard: the page to open is shown, and the browser comes back by itself."""

from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from fairlead.auth.callback import BrowserRedirect
from fairlead.config.load import LoadedServer
from fairlead.config.masking import SECRETS
from fairlead.errors import FairleadError, LoginFailed
from fairlead.host.host import Host
from fairlead.host.urls import UrlRefused, show_url
from fairlead.web.changes import Changes
from fairlead.web.panel import LoginVisit

PAGE_SECONDS: Final = 20.0
"""How long the page of a login is waited for, before somebody is told to look again later."""


class Visits:
    """One login at a time for each server; who begins another gives the one before up."""

    def __init__(self, host: Host, changes: Changes, tasks: TaskGroup) -> None:
        self._host = host
        self._tasks = tasks
        self._changes = changes
        self._latest: dict[str, LoginVisit] = {}
        self._redirects: dict[str, BrowserRedirect] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    def latest(self, server_id: str) -> LoginVisit | None:
        """The login that was begun last."""
        return self._latest.get(server_id)

    async def begin(self, server: LoadedServer) -> None:
        """Begin a login, and wait until its page is known, or why there is none."""
        if previous := self._scopes.get(server.server_id):
            previous.cancel()
        known = anyio.Event()
        self._tasks.start_soon(self._log_in, server, known, name=f"login {server.server_id}")
        with anyio.move_on_after(PAGE_SECONDS):
            await known.wait()

    def finish(self, server_id: str, address: str) -> str | None:
        """Take the address at which a browser on another machine ended up."""
        redirect = self._redirects.get(server_id)
        return redirect.paste(address) if redirect else "no login is under way"

    async def _log_in(self, server: LoadedServer, known: anyio.Event) -> None:
        server_id = server.server_id
        with anyio.CancelScope() as scope:
            self._scopes[server_id] = scope
            self._note(LoginVisit(server_id=server_id))
            try:
                await self._visit(server, known)
                self._note(LoginVisit(server_id=server_id, is_done=True))
                await self._host.close(server_id)  # what it was connected with is outdated
                self._tasks.start_soon(self._host.connect, server_id)
            except FairleadError as exc:
                self._note(LoginVisit(server_id=server_id, error=SECRETS.mask(str(exc))))
            finally:
                if self._scopes.get(server_id) is scope:
                    self._scopes.pop(server_id)
                    self._redirects.pop(server_id, None)
                known.set()

    async def _visit(self, server: LoadedServer, known: anyio.Event) -> None:
        logins = self._host.logins
        target = await logins.target(server)

        async def agree(url: str) -> bool:
            page = show_url(url)
            if isinstance(page, UrlRefused):
                raise LoginFailed(server.server_id, f"its login page cannot be opened: {page}")
            self._note(replace(self._latest[server.server_id], page=page))
            known.set()
            return True

        async def open_url(_url: str) -> bool:
            return False  # the person opens it, in the browser that shows the dashboard

        if target.oauth.grant != "authorization_code":
            await logins.log_in(target, None)
            return
        async with logins.browser(target, agree=agree, open_url=open_url) as redirect:
            self._redirects[server.server_id] = redirect
            await logins.log_in(target, redirect)

    def _note(self, visit: LoginVisit) -> None:
        self._latest[visit.server_id] = visit
        self._changes.note()
