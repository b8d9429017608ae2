"""Login links of gateways that act as one: the browser may come back to any of them."""

import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import aiohttp
import anyio
import pytest

from fairlead.config.load import load_config
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import TokenFile, Tokens
from fairlead.gateway.cluster.cluster import ReplicaPlace
from fairlead.gateway.gateway import Gateway, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine
from tests.gateway.cluster.cluster_support import KEYS
from tests.gateway.support import Raw, text_of, until
from tests.web.test_connect import Reloading

AGENT, PERSON = "agent-token", "person-token"
NAME = "gateway.example.org"
"""Where the browser finds them all, behind a balancer."""
LINK = re.compile(r"log in at (https://\S+?)(/connect/[\w-]+)")


@dataclass(frozen=True, kw_only=True)
class ServedPages:
    """One of the gateways, with its dashboard."""

    gateway: Gateway
    url: str


@asynccontextmanager
async def pages_of(
    machine: Machine, folder: Path, name: str, issuer: AuthorizationServer, named: TokenFile
) -> AsyncGenerator[ServedPages]:
    entry = {"url": issuer.mcp_url, "trust": "trusted", "approval": "allow"}
    home = folder / name
    home.mkdir()
    document = {"servers": {"notes": entry}, "store": {"path": str(folder / "store.db")}}
    env = {**machine.env, "HOME": str(home), "FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file"}
    loaded = load_config(None, document, env, machine.project)
    with bind("127.0.0.1", 0) as listener:
        place = ReplicaPlace(address=url_of(listener), keys=KEYS)
        async with open_gateway(loaded, env=env, place=place) as gateway:
            gateway.login_links.origin = f"https://{NAME}"
            policy = OriginPolicy("127.0.0.1", listener.getsockname()[1], (NAME,))
            keeper = TokenAuthenticator(policy, tokens=Tokens(AGENT, named, decide=PERSON))
            panel = HostPanel(gateway.host, Reloading(gateway), env=env, queue=gateway.approvals)
            sessions = LoginSessions(keeper, id_prefix=gateway.login_links.id_prefix)
            app = GuardedApp(
                gateway.app(keeper, dashboard_routes(panel, sessions, gateway.login_links)), keeper
            )
            async with listening(app, listener), panel.running():
                yield ServedPages(gateway=gateway, url=url_of(listener))


@asynccontextmanager
async def three(
    machine: Machine, folder: Path
) -> AsyncGenerator[tuple[list[ServedPages], str, aiohttp.ClientSession]]:
    """Three of them that know each other, the token of a principal that has no login, and a client."""
    named = TokenFile(folder / "tokens.json")
    bob = named.add("bob")
    with anyio.fail_after(120), authorization_server() as issuer:
        async with AsyncExitStack() as stack:
            served = [
                await stack.enter_async_context(pages_of(machine, folder, f"home-{number}", issuer, named))
                for number in range(3)
            ]
            for each in served:
                cluster = each.gateway.cluster
                assert cluster is not None
                await until(lambda cluster=cluster: len(cluster.directory.living()) == 3)
            jar = aiohttp.DummyCookieJar()
            yield served, bob, await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))


class RoundBrowser:
    """A browser whose every request goes to the next gateway, all under one name."""

    def __init__(
        self, http: aiohttp.ClientSession, served: list[ServedPages], cookies: dict[str, str] | None = None
    ) -> None:
        self._http = http
        self._served = served
        self._requests = 0
        self._cookies = {} if cookies is None else cookies
        self.location = ""
        """Where the last answer sent it."""

    def at(self, served: list[ServedPages]) -> "RoundBrowser":
        """The same browser at other gateways."""
        return RoundBrowser(self._http, served, self._cookies)

    def headers(self) -> dict[str, str]:
        return {"Host": NAME, "Cookie": "; ".join(f"{name}={it}" for name, it in self._cookies.items())}

    async def request(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        at = self._served[self._requests % len(self._served)]
        self._requests += 1
        headers = self.headers()
        if method == "POST":
            headers["Origin"] = f"https://{NAME}"
        async with self._http.request(
            method, f"{at.url}{path}", headers=headers, data=fields or None, allow_redirects=False
        ) as response:
            for name, morsel in response.cookies.items():
                self._cookies[name] = morsel.value
            self.location = response.headers.get("location", "")
            return response.status, await response.text()


async def whoami(http: aiohttp.ClientSession, at: ServedPages, token: str) -> str:
    answer = await Raw(http, f"{at.url}/mcp", token).modern("tools/call", name="notes_whoami", arguments={})
    return text_of(answer) if "result" in answer else answer["error"]["message"]


def form_token(page: str) -> str:
    found = re.search(r'name="form_token"[^>]*value="([^"]+)"', page)
    assert found, page
    return unescape(found[1])


async def link_of(http: aiohttp.ClientSession, at: ServedPages, token: str) -> str:
    found = LINK.search(await whoami(http, at, token))
    assert found is not None
    assert found[1] == f"https://{NAME}"
    return found[2]


def browser_of(http: aiohttp.ClientSession, served: list[ServedPages]) -> RoundBrowser:
    return RoundBrowser(http, served)


@pytest.mark.requirement("HARD-80")
async def test_a_login_goes_on_whichever_replica_the_browser_comes_to(
    machine: Machine, tmp_path: Path
) -> None:
    async with three(machine, tmp_path) as (served, bob, http):
        path = await link_of(http, served[1], bob)
        browser = browser_of(http, served)
        pages = [await browser.request("GET", path) for _ in range(4)]
        assert [status for status, _ in pages] == [200] * 4
        assert all("wants to use the server <code>notes</code>" in page for _, page in pages)
        status, _ = await browser.request("POST", path, form_token=form_token(pages[0][1]), do="log_in")
        assert status == 303
        offers = [await browser.request("GET", path) for _ in range(3)]
        found = {re.findall(r'href="([^"]+)"[^>]*id="login-page"', page)[0] for _, page in offers}
        assert len(found) == 1
        # No page of another browser, and none that another origin sent.
        stranger = browser_of(http, served)
        assert {(await stranger.request("GET", path))[0] for _ in range(3)} == {404}
        address = await Clicking("grace").visit(unescape(found.pop()))
        token = form_token(offers[0][1])
        status, said = await browser.request(
            "POST", path, form_token=token, do="finish_login", address=address
        )
        assert status == 303, said
        with anyio.fail_after(30):
            while "You are logged in" not in (await browser.request("GET", path))[1]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        # Once alone, at every replica.
        for _ in range(3):
            status, said = await browser.request("POST", path, form_token=token, do="log_in")
            assert (status, "this link was used" in said) == (409, True)


async def test_a_page_is_forwarded_once_and_with_the_address_that_the_browser_used(
    machine: Machine, tmp_path: Path
) -> None:
    async with three(machine, tmp_path) as (served, bob, http):
        path = await link_of(http, served[0], bob)
        browser = browser_of(http, served[1:2])
        _, page = await browser.request("GET", path)
        token = form_token(page)
        cluster = served[1].gateway.cluster
        assert cluster is not None
        forwarded = cluster.forwarder.outcomes["answered"]
        assert forwarded == 1
        # An address that a client makes up under the names that replicas use is none.
        made_up = {"Fairlead-Page-Host": NAME, "Fairlead-Page-Origin": f"https://{NAME}"}
        own = {"Cookie": "", **made_up}
        async with http.post(
            f"{served[1].url}{path}", headers=own, data={"form_token": token, "do": "log_in"}
        ) as response:
            assert response.status in (400, 403)
        async with http.post(
            f"{served[0].url}{path}", headers=own, data={"form_token": token, "do": "log_in"}
        ) as response:
            assert response.status in (400, 403)
        # Where its replica is gone, the link is unknown, and nothing waits.
        other = f"/connect/r{'0' * 16}-{'A' * 32}"
        status, said = await browser.request("GET", other)
        assert status == 404
        assert "too old" in said


async def test_pages_of_a_replica_that_is_gone_are_answered_by_another(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(machine, tmp_path) as (served, bob, http):
        path = await link_of(http, served[0], bob)
        gone, here = served[0].gateway.cluster, served[1].gateway.cluster
        assert gone is not None
        assert here is not None
        known = here.directory.known(gone.directory.id)
        assert known is not None

        async def unreachable(*_: object) -> None:
            from fairlead.gateway.cluster.peer_client import PeerUnreachable

            raise PeerUnreachable("no one is there")

        monkeypatch.setattr(here.forwarder.peers, "connect", unreachable)
        browser = browser_of(http, served[1:2])
        status, said = await browser.request("GET", path)
        assert (status, "too old" in said) == (404, True)
        status, _ = await browser.request("POST", path, form_token="x" * 8, do="log_in")
        assert status in (400, 403, 409)
        monkeypatch.undo()
        await gone.directory.leave()
        await until(lambda: here.directory.known(gone.directory.id) is None)
        status, said = await browser.request("GET", path)
        assert (status, "too old" in said) == (404, True)


async def test_a_dashboard_session_is_served_and_told_of_changes_by_its_replica_wherever_the_browser_comes(
    machine: Machine, tmp_path: Path
) -> None:
    async with three(machine, tmp_path) as (served, bob, http):
        browser = browser_of(http, served[:1])
        _, form = await browser.request("GET", "/login")
        status, _ = await browser.request("POST", "/login", form_token=form_token(form), secret=PERSON)
        assert status == 303
        base = browser.location.rstrip("/")
        assert served[0].gateway.cluster is not None
        assert base.startswith(f"/~r{served[0].gateway.cluster.directory.id}-")
        everywhere = browser.at(served)
        page = ""
        for _ in range(3):
            status, page = await everywhere.request("GET", f"{base}/servers/notes")
            assert (status, "notes" in page) == (200, True)
        # A login that was begun at one of them is shown at all.
        status, _ = await everywhere.request(
            "POST", f"{base}/servers/notes", form_token=form_token(page), do="log_in"
        )
        assert status == 303
        for _ in range(3):
            assert 'id="login-page"' in (await everywhere.request("GET", f"{base}/servers/notes"))[1]
        # What changes is streamed through the other replica, for as long as both sides want it.
        async with http.get(f"{served[1].url}{base}/events", headers=browser.headers()) as stream:
            assert stream.status == 200
            line = await stream.content.readline()
            assert line
        # Its cookie alone, or its address alone, opens nothing.
        bare = browser_of(http, served)
        for _ in range(3):
            assert (await bare.request("GET", f"{base}/servers/notes"))[0] in (303, 401)
            assert (await everywhere.request("GET", "/servers/notes"))[0] in (303, 401)
        assert bob
