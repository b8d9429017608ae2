"""The token broker: access tokens for all callers, with single-flight token refresh across processes.

Tokens are refreshed before they expire. No lock is held while a caller's request runs. A refresh belongs to
the broker and not to the caller that needed it, so that a cancelled caller loses no rotated refresh token.
"""

import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote_plus

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from fairlead.auth.store_vault import StoreVault
from fairlead.auth.tokens import Login, LoginKey, Token
from fairlead.auth.vault import Vault
from fairlead.config.command_lines import command_line
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.redaction import is_distinctive
from fairlead.errors import (
    AuthRequired,
    ConfigError,
    FairleadError,
    IssuerUnavailable,
    LockBusy,
    LockLost,
    LoginFailed,
    ServerError,
    StoreError,
    TokenRefused,
)
from fairlead.store.protocol import Store
from fairlead.wording import without_server

Renew: TypeAlias = Callable[[Login], Awaitable[Token]]
"""Asks the issuer for a new token. Raises `TokenRefused` where it will not give one (also where there is
nothing to ask with), `IssuerUnavailable` where it is worth trying again."""

Clock: TypeAlias = Callable[[], float]

LOOK_SECONDS: Final = 1.0
"""How long a login is cached before the vault is checked for changes by other processes."""
EARLY_SECONDS: Final = 60.0
EARLY_SHARE: Final = 0.1
"""A token is renewed a minute, or a tenth of its life, before it runs out, whichever is less."""
RENEWAL_SECONDS: Final = 30.0
"""The timeout of one refresh, and so the longest wait when closing."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0

_Server: TypeAlias = tuple[str, str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _CachedLogin:
    """A login in memory, and when it was last read from the vault."""

    login: Login
    looked: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _RefreshFailure:
    """Why a token could not be refreshed, and until when it is not tried again."""

    failure: Exception
    until: float
    failures: int = 1
    is_final: bool = False
    """Whether the issuer refused. The token is used until it expires, or a server refuses it."""


class _TokenRefresh:
    """One renewal under way, for all who wait for it."""

    def __init__(self, stale: Login, *, is_refused: bool, is_early: bool) -> None:
        self.stale = stale
        self.is_refused = is_refused
        self.is_early = is_early
        """It began before any caller needed it, and may well end with the same token."""
        self.done = anyio.Event()
        self.login: Login | None = None
        """The outcome; None, without a failure, if the login is over."""
        self.failure: Exception | None = IssuerUnavailable(stale.resource, "this program is about to end")


class Broker:
    """Token broker: one token refresh at a time for each login, for all callers and processes.

    Args:
        vault: Where logins are kept.
        store: Has the locks among processes; None if it cannot be opened.
        renew: Gets a new token for a login from its issuer.
        tasks: Runs the refreshes, and waits for them at the end.
        clock: The time in seconds since 1970.
    """

    lease_seconds: float = 15.0
    """How long other processes wait for one that died while it renewed a login."""

    def __init__(
        self,
        vault: Vault | StoreVault,
        store: Store | None,
        renew: Renew,
        tasks: TaskGroup,
        *,
        clock: Clock = time.time,
    ) -> None:
        self._vault = vault
        self._store = store
        self._renew = renew
        self._tasks = tasks
        self._clock = clock
        self._held: dict[LoginKey, _CachedLogin] = {}
        self._keys: dict[_Server, LoginKey] = {}
        self._absences: dict[_Server, float] = {}
        self._renewals: dict[LoginKey, _TokenRefresh] = {}
        self._troubles: dict[LoginKey, _RefreshFailure] = {}

    async def current(self, principal: str, account: str, resource: str) -> Login | None:
        """The login for a server, as it is: it may have to be made `fresh`. None where there is none."""
        server = (principal, account, resource)
        key = self._keys.get(server)
        login = await self._get_login(key) if key is not None else None
        if login is not None and not login.is_over:
            return login
        if self._is_recent(self._absences.get(server)):
            return None
        login = await self.previous(principal, account, resource)
        if login is not None and not login.is_over:
            return login
        self._absences[server] = self._clock()
        return None

    async def previous(self, principal: str, account: str, resource: str) -> Login | None:
        """The login for a server even where it is over: what the next one can build on."""
        login = await self._vault.find(principal, account, resource)
        if login is not None:
            self._hold(login)
        return login

    async def fresh(self, key: LoginKey, *, server_id: str, refused: str | None = None) -> Login:
        """A login whose token can be used now.

        Args:
            key: The login.
            server_id: The server it is for, for errors.
            refused: An access token that the server did not accept, so that it is not returned again.

        Raises:
            AuthRequired: The user has to log in.
            IssuerUnavailable: The issuer cannot be reached now; the login stays as it is.
        """
        login = await self._get_login(key)
        if login is None or login.is_over:
            raise _login_needed_error(server_id)
        is_refused = refused is not None and login.token.access_token == refused
        if not is_refused and not self._is_due(login.token):
            return login
        is_usable = not is_refused and not self._has_expired(login.token)
        trouble = self._troubles.get(key)
        if trouble is not None and self._clock() < trouble.until:
            if is_usable:
                return login
            if not trouble.is_final:
                raise _failure_for_server(server_id, trouble.failure)
        renewal = self._renewals.get(key)
        if renewal is None:
            renewal = self._start(_TokenRefresh(login, is_refused=is_refused, is_early=is_usable))
        if is_usable:
            return login  # good for a little longer, and the next caller has a new one
        if renewal.is_early:
            await renewal.done.wait()
            return await self.fresh(key, server_id=server_id, refused=refused)
        return await self._outcome(renewal, server_id)

    async def adopt(self, login: Login) -> None:
        """Keep a new login, in place of any earlier login to the same server."""
        login = replace(login, token=self._stamp_issue_time(login.token))
        async with self._lock_login(login.key, is_needed=False):
            with anyio.CancelScope(shield=True):
                await self._keep(login)
                await self._supersede(login)

    async def forget(self, key: LoginKey) -> None:
        """Log out, in all processes. Raises `ConfigError` where the login cannot be removed."""
        async with self._lock_login(key, is_needed=False):
            self._drop(key)
            await self._vault.delete(key)

    async def logins(self, principal: str) -> list[Login]:
        """All logins of a principal, also those that are over."""
        return await self._vault.logins(principal)

    async def _get_login(self, key: LoginKey) -> Login | None:
        """The login under a key. From memory, unless it is time to see what other processes did."""
        held = self._held.get(key)
        if held is not None:
            if self._is_recent(held.looked):
                return held.login
            # One looks, and the others need not wait for it.
            held = self._held[key] = _CachedLogin(login=held.login, looked=self._clock())
        login = await self._vault.get(key)
        newer = self._held.get(key)
        if newer is not held:
            return newer.login if newer is not None else None  # it changed while we looked
        if login is None:
            self._drop(key)
        else:
            self._hold(login)
        return login

    def _is_recent(self, looked: float | None) -> bool:
        return looked is not None and 0 <= self._clock() - looked < LOOK_SECONDS

    def _hold(self, login: Login) -> None:
        held = self._held.get(login.key)
        if held is not None and held.login.token != login.token:
            self._troubles.pop(login.key, None)
        self._held[login.key] = _CachedLogin(login=login, looked=self._clock())
        SECRETS.learn(*filter(is_distinctive, login.secrets), owner=login.key)
        self._keys[_server(login.key)] = login.key
        self._absences.pop(_server(login.key), None)

    def _drop(self, key: LoginKey) -> None:
        self._held.pop(key, None)
        self._troubles.pop(key, None)
        if self._keys.get(_server(key)) == key:
            del self._keys[_server(key)]

    async def _keep(self, login: Login) -> None:
        await self._vault.put(login)
        self._hold(login)

    async def _supersede(self, login: Login) -> None:
        try:
            for other in await self._vault.logins(login.principal):
                if _server(other.key) == _server(login.key) and other.issuer != login.issuer:
                    self._drop(other.key)
                    await self._vault.delete(other.key)
        except ConfigError:  # a disk or a keyring that cannot be used, of which the user knows
            logger.warning(
                "an old login may not have been deleted", extra={"resource": login.resource}, exc_info=True
            )

    def _start(self, renewal: _TokenRefresh) -> _TokenRefresh:
        self._renewals[renewal.stale.key] = renewal
        self._tasks.start_soon(self._run, renewal, name="renew a login")
        return renewal

    async def _run(self, renewal: _TokenRefresh) -> None:
        key = renewal.stale.key
        try:
            async with self._lock_login(key):
                # Not to be cancelled: the issuer may have rotated the token already.
                with anyio.CancelScope(shield=True):
                    renewal.login = await self._refresh_login(renewal.stale, is_refused=renewal.is_refused)
                    renewal.failure = None
        except Exception as exc:  # noqa: BLE001 - it belongs to those who wait, and would end the task group
            renewal.failure = exc
            self._pause(key, exc)
            logger.warning("a login was not renewed", extra={"issuer": key.issuer, "reason": _reason(exc)})
        finally:
            del self._renewals[key]
            renewal.done.set()

    async def _refresh_login(self, stale: Login, *, is_refused: bool) -> Login | None:
        """Refresh a login, unless another process did. None if the login is over."""
        kept = await self._vault.get(stale.key)
        if kept is None or kept.is_over:
            self._drop(stale.key)
            return None
        is_old = kept.token.access_token == stale.token.access_token
        if not (is_old and is_refused) and not self._is_due(kept.token):
            self._hold(kept)
            return kept
        try:
            with anyio.fail_after(RENEWAL_SECONDS):
                token = await self._renew(kept)
        except TokenRefused as exc:
            return await self._on_refresh_refused(kept, exc, is_usable=not (is_old and is_refused))
        except TimeoutError as exc:
            raise IssuerUnavailable(stale.resource, "the issuer did not answer in time") from exc
        login = replace(kept, token=self._stamp_issue_time(_carry_over_fields(kept.token, token)))
        await self._keep(login)
        return login

    async def _on_refresh_refused(
        self, login: Login, refusal: TokenRefused, *, is_usable: bool
    ) -> Login | None:
        if is_usable and not self._has_expired(login.token):
            # It cannot be renewed, but it has not run out: no reason to stop working before it does.
            until = (login.token.expires_at or 0) / 1000
            self._troubles[login.key] = _RefreshFailure(failure=refusal, until=until, is_final=True)
            return login
        logger.info("a login is over", extra={"issuer": login.issuer, "resource": login.resource})
        await self._keep(replace(login, token=Token(access_token="", scope=login.token.scope)))
        return None

    async def _outcome(self, renewal: _TokenRefresh, server_id: str) -> Login:
        await renewal.done.wait()
        if renewal.login is not None:
            return renewal.login
        if renewal.failure is None:
            raise _login_needed_error(server_id)
        raise _failure_for_server(server_id, renewal.failure) from renewal.failure

    @asynccontextmanager
    async def _lock_login(self, key: LoginKey, *, is_needed: bool = True) -> AsyncGenerator[None]:
        """Keep all other processes from changing a login, as far as the store can.

        A login or logout of the user must happen, even without the lock in the end. A refresh needs the lock.
        """
        if self._store is None:
            yield
            return
        # Of any issuer: a login of one issuer can replace that of another.
        lock = self._store.lock(
            "login/" + "/".join(map(quote_plus, _server(key))),
            lease_seconds=self.lease_seconds,
            wait_seconds=self.lease_seconds + RENEWAL_SECONDS,
        )
        is_held = False
        try:
            async with lock:
                is_held = True
                yield
        except LockLost:
            logger.warning("slept while changing a login", extra={"resource": key.resource})
        except StoreError as exc:
            if is_held or (is_needed and (isinstance(exc, LockBusy) or self._store.is_shared)):
                raise  # other replicas may refresh it at this moment, and one of two tokens would be lost
            # A full disk is no reason to stop working; two processes at once are unlikely.
            logger.warning("changing a login without a lock", exc_info=True)
            yield

    def _pause(self, key: LoginKey, failure: Exception) -> None:
        before = self._troubles.get(key)
        failures = before.failures + 1 if before else 1
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        until = self._clock() + seconds * random.uniform(0.5, 1)  # noqa: S311 - not all at the same moment
        self._troubles[key] = _RefreshFailure(failure=failure, until=until, failures=failures)

    def _stamp_issue_time(self, token: Token) -> Token:
        return token if token.issued_at is not None else replace(token, issued_at=int(self._clock() * 1000))

    def _is_due(self, token: Token) -> bool:
        if token.expires_at is None:
            return False
        early = EARLY_SECONDS
        if token.issued_at is not None:
            early = min(early, EARLY_SHARE * (token.expires_at - token.issued_at) / 1000)
        return self._clock() >= token.expires_at / 1000 - early

    def _has_expired(self, token: Token) -> bool:
        return token.expires_at is not None and self._clock() >= token.expires_at / 1000


def _carry_over_fields(old: Token, new: Token) -> Token:
    """A new token, with what the issuer did not repeat because it has not changed."""
    return replace(
        new,
        refresh_token=old.refresh_token if new.refresh_token is None else new.refresh_token,
        scope=old.scope if new.scope is None else new.scope,
    )


def _server(key: LoginKey) -> _Server:
    return key.principal, key.account, key.resource


def _login_needed_error(server_id: str) -> AuthRequired:
    message = "your login has expired, or was ended: it needs a login again"
    return AuthRequired(server_id, message, hint=f"run `{command_line('login', server_id)}`")


def _failure_for_server(server_id: str, failure: Exception) -> Exception:
    """A failure in terms of the server that a caller wants: several may share one login."""
    message = f"its login cannot be renewed: {_reason(failure)}"
    match failure:
        case IssuerUnavailable() | LockBusy():
            return IssuerUnavailable(server_id, message, hint="try again later")
        case LoginFailed():
            return LoginFailed(server_id, message, hint=failure.hint)
        case _:
            return failure


def _reason(failure: Exception) -> str:
    """The message of an error, without the name of the server that had it first."""
    if isinstance(failure, ServerError):
        return without_server(str(failure), failure.server_id)
    return str(failure) if isinstance(failure, FairleadError) else type(failure).__name__
