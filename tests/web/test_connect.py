"""The link by which a principal of the gateway logs in to a server: the whole way, over real sockets."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.config.load import LoadedConfig, load_config
from fairlead.config.untyped import is_object
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import TokenFile, Tokens
from fairlead.gateway.gateway import Gateway, open_gateway
from fairlead.gateway.login_links import LINK_SECONDS, LoginLinks
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing.fixtures import FakeClock
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine
from tests.gateway.support import Raw, text_of
from tests.web.support import Client, Page

AGENT, PERSON = "the-agents-token", "the-token-that-decides"
LINK = re.compile(r"log in at (http://\S+/connect/[\w-]+)")


@dataclass(frozen=True)
class Reloading:
    gateway: Gateway

    @property
    def loaded(self) -> LoadedConfig:
        return self.gateway.loaded

    async def reload(self) -> None:
        await self.gateway.reload(self.loaded)


@dataclass(frozen=True, kw_only=True)
class Up:
    """A gateway with its pages, before two servers of one authorization server."""

    gateway: Gateway
    url: str
    tokens: TokenFile
    clock: FakeClock
    http: aiohttp.ClientSession

    async def whoami(self, token: str, server: str = "notes") -> str:
        """Whom a server takes the owner of a token for, or why the call failed."""
        agent = Raw(self.http, f"{self.url}/mcp", token)
        answer = await agent.modern("tools/call", name=f"{server}_whoami", arguments={})
        return text_of(answer) if "result" in answer else answer["error"]["message"]

    async def link(self, token: str, server: str = "notes") -> str:
        """The path of the login link that a call without a login is answered with."""
        found = LINK.search(await self.whoami(token, server))
        assert found is not None
        assert found[1].startswith(self.url)
        return found[1].removeprefix(self.url)

    @asynccontextmanager
    async def browser(self) -> AsyncGenerator[Client]:
        """A browser of its own, without scripts."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Client(session, self.url)

    async def log_in_here(self, account: str) -> None:
        """Log the local user in, as the command line does."""
        logins = self.gateway.host.logins
        target = await logins.target(self.gateway.loaded.server("notes"))
        await logins.log_in(target, Clicking(account))


@asynccontextmanager
async def gateway_of(machine: Machine, folder: Path, issuer: AuthorizationServer) -> AsyncGenerator[Up]:
    entry = {"url": issuer.mcp_url, "trust": "trusted", "approval": "allow"}
    machine.write_user(json.dumps({"servers": {"notes": entry, "mail": entry}}))
    env = {**machine.env, "FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file"}
    loaded = load_config(None, {}, env, machine.project)
    named, clock = TokenFile(folder / "tokens.json"), FakeClock()
    with anyio.fail_after(90), bind("127.0.0.1", 0) as listener:
        async with open_gateway(loaded, env=env) as gateway, aiohttp.ClientSession() as http:
            gateway.login_links = LoginLinks(clock=clock)
            gateway.login_links.origin = url_of(listener)
            perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
            keeper = TokenAuthenticator(perimeter, tokens=Tokens(AGENT, named, decide=PERSON))
            panel = HostPanel(gateway.host, Reloading(gateway), env=env, queue=gateway.approvals)
            routes = dashboard_routes(panel, LoginSessions(keeper), gateway.login_links)
            app = GuardedApp(gateway.app(keeper, routes), keeper)
            async with listening(app, listener), panel.running():
                yield Up(gateway=gateway, url=url_of(listener), tokens=named, clock=clock, http=http)


async def begin(browser: Client, path: str) -> Page:
    """Press the button of the page, and see what it shows then."""
    assert (await browser.send(path, path, do="log_in")).status == 303
    return await browser.get(path)


async def click(page: Page, account: str) -> str:
    """Follow the login page that a page shows, and log in there as somebody."""
    found = re.search(r'href="([^"]+)"[^>]*id="login-page"', page.text)
    assert found, page.text
    address = await Clicking(account).visit(unescape(found[1]))
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return await answer.text()


async def until_logged_in(up: Up, token: str, account: str) -> None:
    """Wait until the gateway uses a login that was just made: it lists the server in the background."""
    with anyio.fail_after(30):
        while await up.whoami(token) != account:  # noqa: ASYNC110 - as it says
            await anyio.sleep(0.05)


@pytest.mark.requirement("HARD-80")
async def test_a_principal_logs_in_by_its_link_and_then_calls_as_itself(
    machine: Machine, tmp_path: Path
) -> None:
    with authorization_server() as issuer:
        async with gateway_of(machine, tmp_path, issuer) as up, up.browser() as browser:
            await up.log_in_here("ada")
            assert await up.whoami(AGENT) == "ada"
            bob = up.tokens.add("bob", scopes=("mcp", "decide"))
            path = await up.link(bob)
            shown = await browser.get(path)
            assert shown.status == 200
            assert "<strong>token:bob</strong> wants to use the server <code>notes</code>" in shown.text
            assert 'id="login-page"' not in shown.text  # nothing was begun by looking
            page = await begin(browser, path)
            assert "Its tokens are issued and renewed by 127.0.0.1" in page.text
            assert "You are back" in await click(page, "grace")
            await until_logged_in(up, bob, "grace")
            assert "You are logged in" in (await browser.get(path)).text
            assert await up.whoami(AGENT) == "ada"
            assert [grant.account for grant in issuer.access_tokens.values()].count("ada") == 1
            carol = await up.whoami(up.tokens.add("carol"))
            assert "log in at" in carol
            assert path not in carol


@pytest.mark.requirement("HARD-80")
async def test_a_client_whose_servers_all_need_a_login_is_told_where(
    machine: Machine, tmp_path: Path
) -> None:
    with authorization_server() as issuer:
        async with gateway_of(machine, tmp_path, issuer) as up:
            bob = up.tokens.add("bob")
            agent = Raw(up.http, f"{up.url}/mcp", bob)
            listed = await agent.modern("tools/list")
            assert not [tool for tool in listed["result"]["tools"] if "whoami" in tool["name"]]
            link = await up.link(bob)
            discovered = (await agent.modern("server/discover"))["result"]["instructions"]
            params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            }
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            _, _, came = await Raw(up.http, f"{up.url}/mcp", bob).post(message)
            answer: dict[str, Any] = came if is_object(came) else came[0]
            for instructions in (discovered, answer["result"]["instructions"]):
                assert "# Servers that need a login" in instructions
                assert f"- notes: log in at {up.url}{link}" in instructions


@pytest.mark.requirement("HARD-80")
async def test_a_link_that_was_used_begins_no_other_login(machine: Machine, tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with gateway_of(machine, tmp_path, issuer) as up, up.browser() as browser:
            bob = up.tokens.add("bob")
            path = await up.link(bob)
            page = await begin(browser, path)
            await click(page, "grace")
            await until_logged_in(up, bob, "grace")
            asked = issuer.count("/authorize")
            for do in ("log_in", "finish_login", ""):
                refused = await browser.post(path, {"form_token": page.form_token, "do": do})
                assert refused.status == 409
                assert "this link was used" in refused.text
            async with up.browser() as other:
                assert (await other.get(path)).status == 404
            assert issuer.count("/authorize") == asked
            assert await up.whoami(bob) == "grace"


@pytest.mark.requirement("HARD-80")
async def test_a_link_in_use_is_of_no_use_in_another_browser(machine: Machine, tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with (
            gateway_of(machine, tmp_path, issuer) as up,
            up.browser() as browser,
            up.browser() as other,
        ):
            bob = up.tokens.add("bob")
            path = await up.link(bob)
            early = await other.get(path)  # it looks first, and begins nothing
            page = await begin(browser, path)
            late = await other.get(path)
            assert late.status == 404
            assert "login-page" not in late.text
            stolen = {"form_token": early.form_token, "do": "finish_login", "address": "http://127.0.0.1/"}
            assert (await other.post(path, stolen)).status == 409
            async with up.browser() as bare:  # everything but the cookie
                own = {"form_token": (await browser.get(path)).form_token, "do": "log_in"}
                assert (await bare.post(path, own)).status == 403
                assert (await bare.get(path)).status == 404
            await click(page, "grace")
            await until_logged_in(up, bob, "grace")


@pytest.mark.requirement("HARD-80")
async def test_a_link_is_for_its_server_and_its_principal_alone(machine: Machine, tmp_path: Path) -> None:
    with authorization_server() as issuer:
        async with gateway_of(machine, tmp_path, issuer) as up, up.browser() as browser:
            bob, carol = up.tokens.add("bob"), up.tokens.add("carol")
            path = await up.link(bob)
            others = {path, await up.link(bob, "mail"), await up.link(carol)}
            assert len(others) == 3
            assert path == await up.link(bob)  # the same while it is unused
            form = (await browser.get(path)).form_token
            asked = {"form_token": form, "do": "log_in", "server": "mail", "principal": "token:carol"}
            assert (await browser.post(f"{path}?server=mail", asked)).status == 303
            await click(await browser.get(path), "grace")
            await until_logged_in(up, bob, "grace")
            assert "log in at" in await up.whoami(carol)
            vault = up.gateway.host.logins
            for principal in ("local", "token:carol"):
                target = await vault.target(up.gateway.loaded.server("notes"), principal=principal)
                assert await vault.broker.current(principal, target.account, target.resource) is None


@pytest.mark.requirement("HARD-80")
async def test_a_link_is_refused_once_it_is_too_old_or_another_took_its_place(
    machine: Machine, tmp_path: Path
) -> None:
    with authorization_server() as issuer:
        async with (
            gateway_of(machine, tmp_path, issuer) as up,
            up.browser() as browser,
            up.browser() as other,
        ):
            bob = up.tokens.add("bob")
            path = await up.link(bob)
            form = (await browser.get(path)).form_token
            up.clock.advance(LINK_SECONDS + 1)
            assert (await browser.get(path)).status == 404
            assert (await browser.post(path, {"form_token": form, "do": "log_in"})).status == 409
            assert issuer.count("/authorize") == 0
            first = await up.link(bob)
            assert first != path
            await begin(browser, first)
            second = await up.link(bob)
            assert second != first
            page = await begin(other, second)
            assert (await browser.get(first)).status == 404
            await click(page, "grace")
            await until_logged_in(up, bob, "grace")
            for made_up in ("/connect/x", f"{second}x", second.upper(), f"/connect/{'A' * 32}"):
                assert (await browser.get(made_up)).status == 404
