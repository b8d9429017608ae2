"""OAuth logins of a host, by principal and server: request headers, the login flow, logout."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from yarl import URL

from fairlead.auth.broker import Broker
from fairlead.auth.discovery import NO_LOGIN_HINT, NO_METADATA, AuthChallenge, login_challenge
from fairlead.auth.flow import Announce, LoginTerms, has_login, log_in, machine_login, renew
from fairlead.auth.http import HttpContext
from fairlead.auth.redirect import SECONDS, Agree, BrowserRedirect, OpenUrl
from fairlead.auth.store_vault import StoreVault
from fairlead.auth.token_endpoint import Revocation, revoke
from fairlead.auth.tokens import Login, LoginRedirect, LoginTarget, Token
from fairlead.auth.vault import Vault
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.config.oauth_models import OAuthSettings
from fairlead.config.principal import LOCAL
from fairlead.connection.failures import connecting
from fairlead.connection.transport.auth_flow import AuthFlow, FlowHeaders, is_auth_flow
from fairlead.connection.transport.http_endpoint import (
    EXCHANGE_FAILURES,
    HeaderSource,
    HttpEndpoint,
    fixed_headers,
)
from fairlead.connection.transport.request_headers import AuthProvider, LoginHeaders, ProvidedHeaders
from fairlead.errors import AuthRequired, ConnectFailed, FairleadError, ListenFailed, LoginFailed
from fairlead.events import BrowserOpenFailed, Event
from fairlead.host.elicitation.urls import UrlRefused, show_url
from fairlead.host.operator import Operator, UrlRequest
from fairlead.host.records import HostRecords

if TYPE_CHECKING:
    import aiohttp

_PROBE = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
_PROBE_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_PROBE_SECONDS = 15.0
_REVOKE_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginActor:
    """The user who logs in or out, for the audit record."""

    surface: str
    """Where they do so."""
    principal: str


class _Pending:
    """A login under way, shared by all callers that wait for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: FairleadError | None = None


class Logins:
    """OAuth logins of a host: log in and out, and the authorization headers of requests: `host.logins`.

    Args:
        env: The environment.
        records: The store for token refreshes, and the audit log.
        operator: Opens pages for the user.
        providers: Sources of credentials of the program itself, by their ids.
        http: Returns the HTTP client that servers are probed with.
        tasks: Owns the logins under way.
        emit: Called with the events of logins.
    """

    def __init__(  # noqa: PLR0913 - what logins work with, named
        self,
        env: Mapping[str, str],
        records: HostRecords,
        *,
        operator: Operator,
        providers: Mapping[str, AuthProvider | AuthFlow],
        http: "Callable[[], aiohttp.ClientSession]",
        tasks: TaskGroup,
        emit: Callable[[Event], None],
    ) -> None:
        self._env = env
        self._web = HttpContext(environment=env)
        self._audit = records.audit
        self._operator = operator
        self._providers = providers
        self._http = http
        self._tasks = tasks
        self._servers: dict[str, LoadedServer] = {}
        """The servers that support a login."""
        self._flows: dict[str, FlowHeaders] = {}
        """The servers that an auth flow of the program lets requests in to."""
        self._pending: dict[tuple[str, str], _Pending] = {}
        self._declined: set[tuple[str, str]] = set()
        """The principals who said no, and to which server."""
        self._unasked: set[str] = set()
        self.on_login: Callable[[str, str], None] = lambda _principal, _server_id: None
        """Called after each login, with the principal and the server."""
        self._emit = emit
        shared = records.store if records.store is not None and records.store.is_shared else None
        vault = StoreVault(shared) if shared is not None else Vault.of(env)
        self.broker = Broker(vault, records.store, self._refresh_token, tasks)

    # For connections.

    def headers_for(
        self, server: LoadedServer, resolved: RemoteServer, principal: str = LOCAL
    ) -> HeaderSource:
        """Authorization headers for a server whose entry has neither a header nor a headers helper.

        The login is the principal's own, unless the entry has all principals use that of the local user.
        """
        server_id = server.server_id
        if resolved.auth_provider_id is not None:
            provider = self._providers.get(resolved.auth_provider_id)
            if provider is None:
                message = f"this program has no auth provider `{resolved.auth_provider_id}`"
                raise ConnectFailed(server_id, message, hint="pass `auth_providers=` to `Host.open`")
            return self._provider_headers(server_id, provider, resolved.headers)
        if resolved.oauth is False or any(name.lower() == "authorization" for name in resolved.headers):
            return fixed_headers(resolved.headers)
        target = target_of(server_id, resolved, principal=principal)
        self._servers[server_id] = server
        is_person = target.oauth.grant == "authorization_code"

        async def without_a_person(challenge: AuthChallenge | None, previous: Login | None) -> Login:
            now = await self.target(server)  # what vouches for us may be a file that changes
            return await machine_login(now, self._web, challenge=challenge, previous=previous)

        async def is_there(challenge: AuthChallenge | None) -> bool:
            return await has_login(target, self._web, challenge=challenge)

        return LoginHeaders(
            target,
            self.broker,
            fixed=resolved.headers,
            machine_login=None if is_person else without_a_person,
            has_login=is_there,
        )

    def _provider_headers(
        self, server_id: str, provider: AuthProvider | AuthFlow, fixed: Mapping[str, str]
    ) -> HeaderSource:
        if not is_auth_flow(provider):
            return ProvidedHeaders(server_id, cast("AuthProvider", provider), fixed)
        flow = cast("AuthFlow", provider)
        known = self._flows.get(server_id)
        if known is None or known.flow is not flow or known.fixed != fixed:
            known = FlowHeaders(server_id, flow, fixed, http=self._http, environment=self._env)
            self._flows[server_id] = known  # for the next start too: a flow's login is kept with it
        return known

    async def log_in_on_demand(self, error: AuthRequired, principal: str = LOCAL) -> None:
        """Have the principal log in, since a server demands it, once for all requests. Raises on failure.

        A request that stops waiting does not stop the login.
        """
        server_id = error.server_id
        server, key = self._servers.get(server_id), (principal, server_id)
        if (flow := self._flows.get(server_id)) is not None:
            await self._share_login(key, partial(self._go_through, flow))
            return
        is_refused = key in self._declined or server_id in self._unasked
        # A shared login is the local user's to do: another principal would replace that of all.
        is_foreign = server is not None and principal != LOCAL and not is_personal(server)
        if server is None or "url" not in self._operator.abilities or is_refused or is_foreign:
            raise error
        await self._share_login(key, partial(self._ask, server, principal, error))

    async def _share_login(self, key: tuple[str, str], log_in: Callable[[], Awaitable[None]]) -> None:
        """Run a login, or wait for the one that is under way, and raise its error."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
            self._tasks.start_soon(self._run_login, key, log_in, pending, name=f"login {key[1]}")
        await pending.done.wait()
        if pending.error is not None:
            raise pending.error

    async def _run_login(
        self, key: tuple[str, str], log_in: Callable[[], Awaitable[None]], pending: _Pending
    ) -> None:
        try:
            await log_in()
        except FairleadError as exc:
            pending.error = exc
        finally:
            del self._pending[key]
            pending.done.set()

    async def _go_through(self, flow: FlowHeaders) -> None:
        """Go through an auth flow of the program, which may have its user do something."""
        server_id = flow.server_id
        with connecting(server_id), anyio.move_on_after(SECONDS) as limit:
            await flow.log_in()
        if limit.cancelled_caught:
            raise LoginFailed(server_id, f"the program's auth provider was not done within {SECONDS:g} s")

    @contextmanager
    def without_login_requests(self, server_ids: Iterable[str]) -> Generator[None]:
        """Suppress login requests for these servers for the length of the block."""
        unasked = {*server_ids} - self._unasked
        self._unasked |= unasked
        try:
            yield
        finally:
            self._unasked -= unasked

    async def _ask(self, server: LoadedServer, principal: str, error: AuthRequired) -> None:
        target = await self.target(server, principal=principal)
        challenge = login_challenge([error.challenge or ""])
        terms: list[LoginTerms] = []
        async with self.browser(
            target, agree=self._agree(target, terms), open_url=self._make_open_url(target)
        ) as redirect:
            await self._log_in(target, redirect, challenge=challenge, announce=terms.append)

    def _agree(self, target: LoginTarget, terms: Sequence[LoginTerms]) -> Agree:
        async def agree(url: str) -> bool:
            shown = show_url(url)
            if isinstance(shown, UrlRefused):
                raise LoginFailed(target.server_id, f"its login page cannot be opened: {shown}")
            message = _invitation(target, terms)
            request = UrlRequest(server_id=target.server_id, message=message, url=shown)
            agreed = await self._operator.elicit_url(request) == "accept"
            if not agreed:
                self._declined.add((target.principal, target.server_id))
            return agreed

        return agree

    def _make_open_url(self, target: LoginTarget) -> OpenUrl:
        async def open_url(url: str) -> bool:
            opened = False
            try:
                opened = await self._operator.open_url(url)
            finally:
                if not opened:
                    page = str(URL(url).with_query(None).with_fragment(None))
                    self._emit(BrowserOpenFailed(server_id=target.server_id, url=page))
            if not opened:
                other_way = f"`{command_line('login', target.server_id, options=('--no-browser',))}`"
                self._operator.notify(
                    target.server_id, f"if your browser is on another machine, use {other_way}"
                )
            return opened

        return open_url

    # For commands of the user.

    async def target(
        self, server: LoadedServer, *, account: str | None = None, principal: str = LOCAL
    ) -> LoginTarget:
        """The login target of a server for a principal.

        Args:
            server: The server.
            account: The account; that of the entry if not given.
            principal: Whose login.

        Raises:
            LoginFailed: The server has no login.
        """
        if server.transport not in ("http", "sse"):
            raise LoginFailed(server.server_id, "it is not reached by URL, and has no login")
        resolved = await to_thread.run_sync(server.resolve, self._env)
        assert isinstance(resolved, RemoteServer)
        if resolved.oauth is False:
            raise LoginFailed(
                server.server_id, "its entry says `oauth: false`", hint="take that out to log in to it"
            )
        return target_of(server.server_id, resolved, account=account, principal=principal)

    @asynccontextmanager
    async def browser(
        self, target: LoginTarget, *, agree: Agree, open_url: OpenUrl
    ) -> AsyncGenerator[BrowserRedirect]:
        """The browser redirect of a login, at the port that an earlier login had, if that is free.

        So a client that was registered for that port need not be registered again.
        """
        chosen = target.oauth.callback_port
        previous = await self.broker.previous(target.principal, target.account, target.resource)
        async with AsyncExitStack() as stack:
            opened = partial(BrowserRedirect.open, target.server_id, agree=agree, open_url=open_url)
            try:
                redirect = await stack.enter_async_context(opened(port=chosen or _port_of(previous)))
            except ListenFailed:
                if chosen is not None:
                    raise
                redirect = await stack.enter_async_context(opened())
            yield redirect

    async def log_in(
        self,
        target: LoginTarget,
        redirect: LoginRedirect | None,
        *,
        scopes: str | None = None,
        announce: Announce = lambda _terms: None,
        actor: LoginActor | None = None,
    ) -> Login:
        """Log in to a server: by `redirect`, or without the user where its entry has a machine grant.

        Args:
            target: The login target of the server.
            redirect: Shows the login page; None without the user.
            scopes: The OAuth scopes that the user wants.
            announce: Called with the issuer before the user is prompted.
            actor: Who began it, for the audit record; by default the login's own principal.

        Raises:
            ConnectFailed: The server has no login, or cannot be reached.
            LoginFailed: The user or the issuer refused, or the issuer is none to log in with.
        """
        challenge = await self._challenge(target)
        try:
            return await self._log_in(
                target,
                redirect,
                challenge=challenge,
                scopes=scopes,
                announce=announce,
                actor=actor,
            )
        except LoginFailed as exc:
            if exc.hint is not NO_LOGIN_HINT:
                raise
            # The error of `require_login_page`: no user can help, whether one was there to ask or not.
            raise ConnectFailed(target.server_id, NO_METADATA, hint=NO_LOGIN_HINT) from exc

    async def require_login_page(self, target: LoginTarget) -> None:
        """Check that a server has a login page, without the user and without registering a client.

        Args:
            target: The login target of the server.

        Raises:
            ConnectFailed: It has none, or cannot be reached.
            ClientRegistrationRequired: It has one, for clients that the user registers.
            IssuerUnavailable: It cannot be found out now.
            LoginFailed: What its metadata says is refused.
        """
        challenge = await self._challenge(target)
        previous = await self.broker.previous(target.principal, target.account, target.resource)
        if not await has_login(target, self._web, challenge=challenge, previous=previous):
            raise ConnectFailed(target.server_id, NO_METADATA, hint=NO_LOGIN_HINT)

    async def log_out(
        self,
        login: Login,
        servers: Sequence[LoadedServer] = (),
        *,
        actor: LoginActor | None = None,
    ) -> Revocation:
        """Revoke a login at its issuer, if that can be done, and forget it in all processes in any case.

        Args:
            login: The login.
            servers: The servers that it is for; the entry of one has the client to name to the issuer.
            actor: Who did so, for the audit record.

        Returns:
            Whether the issuer revoked it, and why not.
        """
        revocation = Revocation(outcome="failed", reason="its issuer did not answer in time")
        try:
            with anyio.move_on_after(_REVOKE_SECONDS):
                revocation = await self._revoke_login(login, servers)
        finally:
            with anyio.CancelScope(shield=True):
                await self.broker.forget(login.key)
            details = {"issuer": login.issuer, "account": login.account, "revocation": revocation.outcome}
            name = servers[0].server_id if servers else login.resource
            self._record("logout", name, login.principal, details, actor)
        return revocation

    def _record(
        self, kind: str, server: str, owner: str, details: Mapping[str, str | None], actor: LoginActor | None
    ) -> None:
        """Write an audit record under the principal that acted; it says whose login it is if not theirs."""
        principal = actor.principal if actor else owner
        described = {**details, **({"in": actor.surface} if actor else {})}
        if principal != owner:
            described["for"] = owner
        self._audit.record_event(kind, principal=principal, server=server, details=described)

    async def _log_in(
        self,
        target: LoginTarget,
        redirect: LoginRedirect | None,
        *,
        challenge: AuthChallenge | None,
        scopes: str | None = None,
        announce: Announce = lambda _terms: None,
        actor: LoginActor | None = None,
    ) -> Login:
        previous = await self.broker.previous(target.principal, target.account, target.resource)
        if redirect is None or target.oauth.grant != "authorization_code":
            login = await machine_login(target, self._web, challenge=challenge, previous=previous)
        else:
            login = await log_in(
                target,
                redirect,
                self._web,
                challenge=challenge,
                previous=previous,
                scopes=scopes,
                announce=announce,
            )
        await self.broker.adopt(login)
        self._declined.discard((target.principal, target.server_id))
        self.on_login(target.principal, target.server_id)
        details = {"issuer": login.issuer, "account": login.account, "scope": login.token.scope}
        self._record("login", target.server_id, target.principal, details, actor)
        return login

    async def _challenge(self, target: LoginTarget) -> AuthChallenge | None:
        """The server's challenge to a request without a login; None if it sends none."""
        endpoint = HttpEndpoint(target.url, self._http(), fixed_headers({}))
        try:
            with anyio.move_on_after(_PROBE_SECONDS):
                response = await endpoint.request("POST", _PROBE_HEADERS, _PROBE)
                response.close()
                return login_challenge(response.headers.getall("WWW-Authenticate", ()))
        except EXCHANGE_FAILURES as exc:
            raise ConnectFailed(target.server_id, f"it cannot be reached: {exc}") from exc
        finally:
            endpoint.close()
        return None

    async def _refresh_token(self, login: Login) -> Token:
        """A new token, as the entry of a server says that the login is for."""
        return await renew(await self._target_of(login, [*self._servers.values()]), login, self._web)

    async def _revoke_login(self, login: Login, servers: Iterable[LoadedServer]) -> Revocation:
        try:
            target = await self._target_of(login, servers)
        except FairleadError as exc:
            return Revocation(outcome="failed", reason=str(exc))
        return await revoke(target, login, self._web)

    async def _target_of(self, login: Login, servers: Iterable[LoadedServer]) -> LoginTarget:
        """The server that a login is for, or else the name stored with the login."""
        wanted = (login.principal, login.account, login.resource)
        for server in servers:
            target = await self.target(server, principal=login.principal)
            if (target.principal, target.account, target.resource) == wanted:
                return target
        url, account = login.resource, login.account
        return LoginTarget(server_id=url, url=url, principal=login.principal, account=account)


def _port_of(previous: Login | None) -> int | None:
    registered = previous.client.redirect_uri if previous is not None else None
    return URL(registered).port if registered else None


def is_personal(server: LoadedServer) -> bool:
    """Whether two principals may have different logins at a server.

    Not where its credential is in the configuration, nor where all use the local user's (`login: shared`).
    """
    config = server.config
    if not isinstance(config, RemoteServer) or config.login == "shared" or config.oauth is False:
        return False
    if config.auth_provider_id is not None or config.headers_helper is not None:
        return False
    if any(name.lower() == "authorization" for name in config.headers):
        return False
    return config.oauth is None or config.oauth.grant == "authorization_code"


def _invitation(target: LoginTarget, terms: Sequence[LoginTerms]) -> str:
    whose = "" if target.principal == LOCAL else f" The login will be that of `{target.principal}` alone."
    issuer = f" {terms[-1].words}" if terms else ""
    return f"To use it you have to log in.{whose}{issuer} The page of its login is:"


def target_of(
    server_id: str, resolved: RemoteServer, *, account: str | None = None, principal: str = LOCAL
) -> LoginTarget:
    """The login target that a server's entry describes.

    A client's own credential, and a login that all share, is that of the local user.
    """
    is_client = resolved.oauth and resolved.oauth.grant != "authorization_code"
    return LoginTarget(
        server_id=server_id,
        url=resolved.url,
        principal=LOCAL if resolved.login == "shared" or is_client else principal,
        account=resolved.account or "" if account is None else account,
        oauth=resolved.oauth or OAuthSettings(),
    )
