"""What a token of each kind may do at each route of a gateway, and nothing once it is removed."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import pytest

from fairlead.config.load import load_config
from fairlead.gateway.access.auth import AuthenticatedRequest, TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import TokenFile, Tokens
from fairlead.gateway.control.server import ApprovalReply, approval_routes, control_routes
from fairlead.gateway.gateway import Gateway, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions
from tests.conftest import Machine
from tests.gateway.support import HANDSHAKE, Raw

AGENT, PERSON = "an-agent's-token", "the-user's-own-token"

MCP: Final = ("/mcp", "/mcp/", "/sse", "/messages")
STATUS: Final = ("/api/status", "/metrics")
DECIDE: Final = ("/api/approvals",)
ADMIN: Final = (
    *("/", "/servers/x", "/servers/x/review", "/tools", "/calls", "/events", "/logout"),
    *("/api/control", "/api/control/answers", "/api/dashboard-links", "/~guess/", "/~guess/approvals"),
)
NEEDED: Final = {
    **dict.fromkeys(MCP, "mcp"),
    **dict.fromkeys(STATUS, "status"),
    **dict.fromkeys(DECIDE, "decide"),
    **dict.fromkeys(ADMIN, "admin"),
}
METHODS: Final = ("GET", "POST", "DELETE", "HEAD")


class Reloading:
    def __init__(self, gateway: Gateway) -> None:
        self.loaded = gateway.loaded

    async def reload(self) -> None:
        """There is nothing new."""


@dataclass(frozen=True, kw_only=True)
class Up:
    gateway: Gateway
    url: str
    tokens: TokenFile
    http: aiohttp.ClientSession

    async def ask(self, path: str, token: str | None, method: str = "GET", **body: Any) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body.setdefault("data", b"{}")
        url = f"{self.url}{path}"
        with anyio.fail_after(20):
            async with self.http.request(
                method, url, headers=headers, allow_redirects=False, **body
            ) as response:
                return response.status


async def restart_nothing(server_id: str, principal: str) -> list[str]:
    raise AssertionError(f"{principal} restarts {server_id}")


@asynccontextmanager
async def guarded_gateway(
    machine: Machine, folder: Path, config: Mapping[str, Any] | None = None, *, open_to_all: bool = False
) -> AsyncGenerator[Up]:
    """Run a gateway with everything that `fairlead gateway` serves."""
    env = {**machine.env, "FAIRLEAD_BUILTINS": "off"}
    loaded = load_config(None, dict(config or {}), env, machine.project)
    named = TokenFile(folder / "tokens.json")
    with anyio.fail_after(90), bind("127.0.0.1", 0) as listener:
        async with open_gateway(loaded, env=env) as gateway, aiohttp.ClientSession() as http:
            perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
            keeper = TokenAuthenticator(
                perimeter, tokens=Tokens(AGENT, named, decide=PERSON), open_to_all=open_to_all
            )
            configuration = Reloading(gateway)
            panel = HostPanel(gateway.host, configuration, env=env, queue=gateway.approvals)

            async def answer(reply: ApprovalReply, admitted: AuthenticatedRequest) -> list[str] | None:
                principal, decides_for = admitted.principal, admitted.decides_for
                notices = await panel.answer(
                    reply.id, reply.answer, principal=principal, decides_for=decides_for
                )
                return [notice.message for notice in notices] if notices is not None else None

            routes = [
                *dashboard_routes(panel, LoginSessions(keeper)),
                *approval_routes(gateway, keeper, answer),
                *control_routes(gateway, keeper, configuration.reload, restart_nothing),
            ]
            app = GuardedApp(gateway.app(keeper, routes), keeper)
            async with listening(app, listener), panel.running():
                yield Up(gateway=gateway, url=url_of(listener), tokens=named, http=http)


@pytest.mark.requirement("HARD-81")
async def test_no_token_reaches_a_route_that_is_not_for_its_scopes(machine: Machine, tmp_path: Path) -> None:
    async with guarded_gateway(machine, tmp_path) as up:
        kinds = {
            AGENT: {"mcp"},
            up.tokens.add("caller"): {"mcp"},
            up.tokens.add("mine", principal="local"): {"mcp"},
            up.tokens.add("looker", scopes=("status",)): {"status"},
            up.tokens.add("decider", scopes=("decide",)): {"decide"},
        }
        for token, scopes in kinds.items():
            for path, needed in NEEDED.items():
                for method in METHODS:
                    if needed not in scopes:
                        status = await up.ask(path, token, method)
                        assert status in (403, 405), (scopes, method, path, status)
        for path in NEEDED:
            for method in METHODS:
                assert await up.ask(path, "no-such-token", method) in (401, 403, 405)
        assert await up.ask("/api/approvals", PERSON) == 200
        assert await up.ask("/api/status", PERSON) == 200
        assert await up.ask("/", PERSON) == 200
        assert await up.ask("/mcp", PERSON, "POST") == 403  # no agent's


@pytest.mark.requirement("HARD-81")
async def test_an_agent_cannot_run_what_is_not_allowed_by_saying_that_it_was_reviewed(
    machine: Machine, tmp_path: Path
) -> None:
    work: dict[str, Any] = {"type": "call", "server": "x", "tool": "y", "arguments": {}, "confirmed": True}
    errand = json.dumps({"work": work, "config": ""}).encode()
    async with guarded_gateway(machine, tmp_path) as up:
        for token in (AGENT, up.tokens.add("other"), up.tokens.add("decider", scopes=("mcp", "decide"))):
            for path in (
                "/api/control",
                "/api/control/",
                "//api/control",
                "/API/control",
                "/mcp/../api/control",
            ):
                assert await up.ask(path, token, "POST", data=errand) in (401, 403, 404, 405, 307), path


@pytest.mark.requirement("HARD-81")
async def test_where_all_may_call_none_decides_without_the_token(machine: Machine, tmp_path: Path) -> None:
    async with guarded_gateway(machine, tmp_path, open_to_all=True) as up:
        for path in (*DECIDE, *STATUS):
            assert await up.ask(path, None) == 403
        assert await up.ask("/api/control", None, "POST") == 403
        assert await up.ask("/api/approvals", PERSON) == 200


@pytest.mark.requirement("HARD-81")
async def test_a_removed_token_ends_its_sessions_and_streams_and_no_others(
    machine: Machine, tmp_path: Path
) -> None:
    async with guarded_gateway(machine, tmp_path) as up:
        token = up.tokens.add("leaving")
        leaving = Raw(up.http, f"{up.url}/mcp", token)
        staying = Raw(up.http, f"{up.url}/mcp", AGENT)
        await leaving.begin()
        await staying.begin()
        stream = {**leaving.headers, "Accept": "text/event-stream"}
        async with up.http.get(f"{up.url}/mcp", headers=stream) as response:
            assert response.status == 200
            up.tokens.remove("leaving")
            assert (await leaving.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0] == 401
            with anyio.fail_after(20), suppress(aiohttp.ClientPayloadError):
                await response.content.read()  # it ends, if not politely
        with anyio.fail_after(20):
            while len(up.gateway.sessions()) > 1:  # noqa: ASYNC110 - ended in the background
                await anyio.sleep(0.05)
        assert (await staying.older("ping"))["result"] == {}
        # A token of the same name is another one: it has not the sessions of the first.
        again = Raw(up.http, f"{up.url}/mcp", up.tokens.add("leaving"))
        again.headers["Mcp-Session-Id"] = leaving.headers["Mcp-Session-Id"]
        again.headers["Mcp-Protocol-Version"] = HANDSHAKE
        assert (await again.post({"jsonrpc": "2.0", "id": 2, "method": "ping"}))[0] == 404


@pytest.mark.requirement("HARD-81")
async def test_two_tokens_of_one_principal_have_sessions_of_their_own(
    machine: Machine, tmp_path: Path
) -> None:
    async with guarded_gateway(machine, tmp_path) as up:
        first = Raw(up.http, f"{up.url}/mcp", AGENT)
        await first.begin()
        second = Raw(up.http, f"{up.url}/mcp", up.tokens.add("laptop", principal="local"))
        second.headers["Mcp-Session-Id"] = first.headers["Mcp-Session-Id"]
        second.headers["Mcp-Protocol-Version"] = HANDSHAKE
        assert (await second.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0] == 404
