"""Logins begun in the dashboard: it shows the page to open, and the browser comes back by itself."""

from dataclasses import replace
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from fairlead.actions.context import ActionContext
from fairlead.actions.logins import CompletedLogin, LoginDialog, LoginOffer, log_in
from fairlead.auth.redirect import BrowserRedirect
from fairlead.catalog.sanitize import gate
from fairlead.config.load import LoadedServer
from fairlead.config.principal import LOCAL
from fairlead.errors import FairleadError
from fairlead.host.host import Host
from fairlead.web.live import ChangeSignal
from fairlead.web.panel import PendingLogin
from fairlead.wording import end_sentence, join_clauses

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

    def latest(self, server_id: str, owner: str = LOCAL) -> PendingLogin | None:
        """The login of a principal that was begun last."""
        return self._latest.get((owner, server_id))

    async def begin(self, server: LoadedServer, context: ActionContext, owner: str = LOCAL) -> None:
        """Begin a login, and wait for the URL of its page, or for the reason why there is none.

        Args:
            server: The server.
            context: Who begins it.
            owner: The principal that the login is for.
        """
        key = (owner, server.server_id)
        if previous := self._scopes.get(key):
            previous.cancel()
        known = anyio.Event()
        self._tasks.start_soon(self._run, server, context, key, known, name=f"login {server.server_id}")
        with anyio.move_on_after(PAGE_SECONDS):
            await known.wait()

    def finish(self, server_id: str, address: str, owner: str = LOCAL) -> str | None:
        """Complete a login with the URL that a browser on another machine was redirected to."""
        redirect = self._redirects.get((owner, server_id))
        return redirect.paste(address) if redirect else "no login is under way"

    async def _run(self, server: LoadedServer, context: ActionContext, key: _Key, known: anyio.Event) -> None:
        owner, server_id = key
        with anyio.CancelScope() as scope:
            self._scopes[key] = scope
            self._note(key, PendingLogin(server_id=server_id))
            try:
                target = await self._host.logins.target(server, principal=owner)
                completed = await log_in(context, self._host, target, self._dialog(key, known))
                self._note(key, PendingLogin(server_id=server_id, is_done=True, warning=_warning(completed)))
                if owner == LOCAL:
                    await self._host.close(server_id)  # what it was connected with is outdated
                    self._tasks.start_soon(self._host.connect, server_id)
            except FairleadError as exc:
                self._note(key, PendingLogin(server_id=server_id, error=gate.error_text(exc)))
            finally:
                if self._scopes.get(key) is scope:
                    self._scopes.pop(key)
                    self._redirects.pop(key, None)
                known.set()

    def _dialog(self, key: _Key, known: anyio.Event) -> LoginDialog:
        async def show(offer: LoginOffer) -> bool:
            self._note(key, replace(self._latest[key], offer=offer))
            return True  # they open the page, or do not

        async def open_page(_url: str, redirect: BrowserRedirect) -> bool:
            self._redirects[key] = redirect
            known.set()
            return False  # the user opens it, in the browser that shows the dashboard

        return LoginDialog(show=show, open_page=open_page)

    def _note(self, key: _Key, login: PendingLogin) -> None:
        self._latest[key] = login
        self._changes.note()


def _warning(completed: CompletedLogin) -> str | None:
    """Warning about a login that succeeded, if there is one."""
    warnings = [*map(str, completed.notices)]
    if completed.unkept is not None:
        warnings.append(join_clauses(f"{completed.unkept}: it ends with the gateway", completed.unkept.hint))
    return " ".join(end_sentence(gate.mask_secrets(warning)) for warning in warnings) or None
