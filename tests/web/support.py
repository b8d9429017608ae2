"""A dashboard over a real host on a real port, and somebody who looks at it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from re import search
from typing import Any

import aiohttp
import anyio
from starlette.applications import Starlette

from fairlead.config.load import LoadedConfig
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.jwt import JwtAccess
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import TokenFile, Tokens, token_file
from fairlead.gateway.client_session import SessionInfo
from fairlead.gateway.login_links import LoginLinks
from fairlead.gateway.pending_approvals import PendingApprovals
from fairlead.host.host import Host
from fairlead.host.operator import Callbacks
from fairlead.net.listen import bind, listening, url_of
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions
from tests.conftest import Machine

SECONDS = 60
TOKEN = "the-token-of-this-test"
AGENT = "the-token-of-its-agents"
NAME = "fairlead-0123456789abcdef01234567.localhost"


class Configuration:
    """The files of the test's machine."""

    def __init__(self, machine: Machine, loaded: LoadedConfig) -> None:
        self._machine = machine
        self.loaded = loaded
        self.host: Host | None = None

    async def reload(self) -> None:
        self.loaded = self._machine.load()
        assert self.host is not None
        await self.host.reload(self.loaded)


@dataclass(frozen=True, kw_only=True)
class Page:
    """What came back."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def form_token(self) -> str:
        found = search(r'name="form_token" value="([^"]+)"', self.text)
        assert found, self.text
        return found[1]

    def hidden(self, name: str) -> str:
        """What a form keeps to itself."""
        found = search(rf'name="{name}" value="([^"]+)"', self.text)
        assert found, self.text
        return found[1]


class Client:
    """A browser without scripts: it keeps cookies and sends forms, and follows nothing by itself."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url
        self.base = ""
        """The path of its session, once it is logged in."""

    async def get(self, path: str, **headers: str) -> Page:
        url = self.at(path)
        async with self._session.get(url, headers=headers, allow_redirects=False) as response:
            return Page(status=response.status, text=await response.text(), headers=response.headers)

    async def sees(self, path: str, text: str) -> Page:
        """Load a page until it says so: what it shows may reach the disk a moment later."""
        while text not in (page := await self.get(path)).text:  # noqa: ASYNC110 - nobody else tells
            await anyio.sleep(0.01)
        return page

    async def post(
        self, path: str, fields: Mapping[str, str] | Sequence[tuple[str, str]], **headers: str
    ) -> Page:
        sent = {"Origin": self.url, **headers}
        async with self._session.post(
            self.at(path), data=fields, headers=sent, allow_redirects=False
        ) as response:
            return Page(status=response.status, text=await response.text(), headers=response.headers)

    async def send(self, page: str, path: str, **fields: str) -> Page:
        """Send a form that stands on a page."""
        token = (await self.get(page)).form_token
        return await self.post(path, {"form_token": token, **fields})

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator[AsyncIterator[str]]:
        """What the server tells of changes, line by line."""
        async with self._session.get(self.at("/events")) as response:
            assert response.status == 200
            yield (line.decode().strip() async for line in response.content)

    async def log_in(self, secret: str = TOKEN) -> Page:
        page = await self.send("/login", "/login", secret=secret)
        if page.status == 303:
            self.base = page.headers["location"].rstrip("/")
        return page

    def at(self, path: str) -> str:
        """The address of a page: in the session's place, unless it is for strangers."""
        placeless = ("/login", "/connect/", "/static/", "/api/", "/metrics", "/~", "/healthz", "/readyz")
        return self.url + (path if path.startswith(placeless) else self.base + path)

    def cookies(self) -> list[Morsel[str]]:
        """All that it keeps, wherever it would send them."""
        return list(self._session.cookie_jar)


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """All there is of it."""

    host: Host
    panel: HostPanel
    login_sessions: LoginSessions
    tokens: TokenFile
    queue: PendingApprovals
    sessions: list[SessionInfo]
    configuration: Configuration
    links: LoginLinks
    url: str

    async def code(self, token: str = TOKEN) -> str:
        """A one-time code for the login page, made with a token."""
        code = await self.login_sessions.one_time_code(token)
        assert code is not None
        return code

    @asynccontextmanager
    async def visited(self, *, logged_in: bool = True) -> AsyncGenerator[Client]:
        """Somebody who looks at it."""
        jar = aiohttp.CookieJar(unsafe=True)  # which is what keeps cookies of an address without a name
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            client = Client(session, self.url)
            if logged_in:
                assert (await client.log_in()).status == 303
            yield client


@asynccontextmanager
async def dashboard(
    machine: Machine,
    servers: Mapping[str, Any],
    *,
    with_tokens: bool = True,
    decide: str | Path = TOKEN,
    jwt: JwtAccess | None = None,
    **document: Any,
) -> AsyncGenerator[Dashboard]:
    """Run the dashboard of a host with these servers, which the user's file has."""
    machine.write_user(json.dumps({"servers": servers, **document}, indent=2))
    async with dashboard_of(machine, with_tokens=with_tokens, decide=decide, jwt=jwt) as board:
        yield board


@asynccontextmanager
async def dashboard_of(
    machine: Machine,
    *,
    with_tokens: bool = True,
    decide: str | Path = TOKEN,
    jwt: JwtAccess | None = None,
    seconds: float = SECONDS,
) -> AsyncGenerator[Dashboard]:
    """The same with the machine's files as they are, for so long at most."""
    queue, configuration = PendingApprovals(max(seconds, 120.0)), Configuration(machine, machine.load())
    with anyio.fail_after(seconds), bind("127.0.0.1", 0) as listener:
        async with Host.open(
            configuration.loaded,
            env=machine.env,
            cwd=machine.project,
            operator=Callbacks(on_approve=queue.ask),
        ) as host:
            configuration.host = host
            sessions: list[SessionInfo] = []
            panel = HostPanel(host, configuration, env=machine.env, queue=queue, sessions=lambda: sessions)
            queue.on_change = panel.note_change
            tokens = token_file(machine.env)
            known = Tokens(AGENT, tokens, decide=decide)
            port = listener.getsockname()[1]
            perimeter = OriginPolicy("127.0.0.1", port, dashboard_name=NAME)
            keeper = TokenAuthenticator(perimeter, tokens=known, jwt=jwt, open_to_all=not with_tokens)
            login_sessions = LoginSessions(keeper, [f"http://{NAME}:{port}", url_of(listener)])
            links = LoginLinks()
            links.origin = url_of(listener)
            app = GuardedApp(Starlette(routes=dashboard_routes(panel, login_sessions, links)), keeper)
            async with listening(app, listener), panel.running():
                yield Dashboard(
                    host=host,
                    panel=panel,
                    login_sessions=login_sessions,
                    tokens=tokens,
                    queue=queue,
                    sessions=sessions,
                    configuration=configuration,
                    links=links,
                    url=url_of(listener),
                )


def cookie_of(page: Page) -> Morsel[str]:
    """The cookie that came with a page."""
    return next(iter(SimpleCookie(page.headers["set-cookie"]).values()))
