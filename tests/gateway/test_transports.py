"""The older ways in, and what happens on the way in, over HTTP and over pipes."""

import io
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

from fairlead.config.load import load_config
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.gateway import GatewayOptions
from fairlead.net.listen import MAX_BODY_BYTES, bind, listening, url_of
from tests.gateway.support import HANDSHAKE, MODERN, MODES, Raw, serving, text_of, until
from tests.gateway.test_tools import scripted
from tests.host.asking import AskingServer, form
from tests.host.support import is_running


class Person:
    """Somebody at a client."""

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})


async def test_old_clients_come_in_over_sse(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    config = {"bundles": {"few": {"servers": {"a": {"allow_tools": ["ask"]}}}}}
    async with serving(tmp_path, config=config, a=server.entry()) as served:
        for path in ("/sse", "/sse/few"):
            async with Client(
                sse_client(f"{served.url}{path}"), mode="legacy", elicitation_callback=Person()
            ) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert ("a_echo" in names) is (path == "/sse")
                asked = await client.call_tool("a_ask", {"questions": {"q": form()}})
                answer = json.loads(asked.content[0].model_dump()["text"])
                assert answer["q"]["content"]["name"] == "Ada"
        with anyio.fail_after(10):
            await until(lambda: not served.gateway.sessions())


async def test_nobody_writes_to_anothers_stream(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, a=scripted(tmp_path, "a").entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        headers = {"Authorization": "Bearer ada"}
        async with http.get(f"{served.url}/sse", headers=headers) as stream:
            assert stream.status == 200
            await stream.content.readline()
            address = (await stream.content.readline()).decode().removeprefix("data: ").strip()
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            for name, status in (("eve", 404), ("ada", 202)):
                url, who = f"{served.url}{address}", {"Authorization": f"Bearer {name}"}
                async with http.post(url, json=ping, headers=who) as response:
                    assert response.status == status


PROGRAM = """
import sys, anyio, json
from fairlead.config.load import load_config
from fairlead.gateway.gateway import open_gateway

async def main():
    env = json.loads(sys.argv[1])
    loaded = load_config(None, json.loads(sys.argv[2]), env, sys.argv[3])
    async with open_gateway(loaded, env=env) as gateway:
        await gateway.serve_stdio()

anyio.run(main)
"""


@asynccontextmanager
async def over_stdio(folder: Path, mode: Any, **servers: dict[str, Any]) -> AsyncGenerator[Client]:
    env = {"HOME": str(folder), "PATH": os.environ.get("PATH", os.defpath), "FAIRLEAD_BUILTINS": "off"}
    document = {"servers": servers, "gateway": {"approval": "allow"}}
    arguments = ["-c", PROGRAM, json.dumps(env), json.dumps(document), str(folder)]
    parameters = StdioServerParameters(command=sys.executable, args=arguments)
    with anyio.fail_after(60):
        async with Client(parameters, mode=mode, elicitation_callback=Person()) as client:
            yield client


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_starts_the_gateway_speaks_over_its_pipes(tmp_path: Path, mode: Any) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with over_stdio(tmp_path, mode, a=server.entry()) as client:
        assert "a_ask" in [tool.name for tool in (await client.list_tools()).tools]
        asked = await client.call_tool("a_ask", {"questions": {"q": form()}})
        assert json.loads(asked.content[0].model_dump()["text"])["q"]["content"]["name"] == "Ada"
    for pid in server.notes("started"):
        assert not is_running(pid)


async def test_a_cancelled_call_of_a_session_ends_at_its_server(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["wait"])
    answers: list[Any] = []
    async with (
        serving(tmp_path, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        await client.older("tools/list")

        async def call() -> None:
            answers.append(await client.older("tools/call", 5, name="a_wait", arguments={}))

        tasks.start_soon(call)
        await until(lambda: server.calls("wait") > 0)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        status, _, _ = await client.post(cancelled)
        assert status == 202
        await until(lambda: "notifications/cancelled" in server.notes("received"))
    assert "cancelled" in answers[0]["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Mcp-Method": "tools/list"}, 400, -32020),
        ({"Mcp-Name": "other"}, 400, -32020),
        ({"Mcp-Protocol-Version": "2099-01-01"}, 400, None),
        ({"Accept": "text/html"}, 406, None),
    ],
)
async def test_what_is_odd_about_a_request_is_refused_by_the_book(
    tmp_path: Path, headers: dict[str, str], status: int, code: int | None
) -> None:
    async with (
        serving(tmp_path, a=scripted(tmp_path, "a").entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.modern("tools/list")
        usual = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "a_echo"}
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params: dict[str, Any] = {"name": "a_echo", "arguments": {}, "_meta": meta}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answered, _, body = await client.post(message, {**usual, **headers})
        assert answered == status
        if code is not None:
            assert body["error"]["code"] == code
        answered, _, body = await client.post(message, usual)
        assert (answered, text_of(body)) == (200, "{}")


@pytest.mark.requirement("HARD-49")
@pytest.mark.parametrize("path", ["/mcp", "/messages"])
@pytest.mark.parametrize("says_length", [True, False])
async def test_a_body_that_is_too_large_is_not_read_to_its_end(
    tmp_path: Path, path: str, says_length: bool
) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield b" " * 65_536

    async with (
        serving(tmp_path, a=scripted(tmp_path, "a").entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        with bind("127.0.0.1", 0) as listener:
            keeper = TokenAuthenticator(OriginPolicy("127.0.0.1", listener.getsockname()[1]), tokens=None)
            async with listening(GuardedApp(served.gateway.app(keeper), keeper), listener):
                large = io.BytesIO(b" " * (MAX_BODY_BYTES + 1)) if says_length else endless()
                headers = {"Content-Type": "application/json"}
                async with http.post(f"{url_of(listener)}{path}", data=large, headers=headers) as response:
                    assert response.status == 413


async def test_nothing_is_admitted_that_was_not_screened(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, aiohttp.ClientSession() as http:
        with bind("127.0.0.1", 0) as listener:
            keeper = TokenAuthenticator(OriginPolicy("127.0.0.1", listener.getsockname()[1]), tokens=None)
            async with (
                listening(served.gateway.app(keeper), listener),
                http.post(f"{url_of(listener)}/mcp", json={}) as response,
            ):
                assert response.status == 500


async def test_clients_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    options = GatewayOptions(session_idle_seconds=0.2)
    async with (
        serving(tmp_path, options=options, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        older, modern = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp")
        await older.begin()
        await older.older("tools/call", name="a_pid", arguments={})
        await modern.modern("tools/call", name="a_pid", arguments={})
        await until(lambda: not served.gateway.sessions())
        await until(lambda: not any(map(is_running, server.notes("started"))))
        again = await modern.modern("tools/call", name="a_pid", arguments={})
        assert "result" in again


@pytest.mark.requirement("NEED-18")
async def test_another_configuration_is_taken_over_while_clients_stay(tmp_path: Path) -> None:
    kept, gone, new = (scripted(tmp_path, name, tools=["pid"]) for name in ("kept", "gone", "new"))
    async with (
        serving(tmp_path, kept=kept.entry(), gone=gone.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        await client.older("tools/list")
        before = {
            name: text_of(await client.older("tools/call", name=f"{name}_pid", arguments={}))
            for name in ("kept", "gone")
        }
        servers = {"kept": kept.entry(), "new": new.entry()}
        document = {"servers": servers, "gateway": {"approval": "allow"}}
        loaded = load_config(None, document, dict(served.env), tmp_path / "project")
        await served.gateway.reload(loaded)
        listed = await client.older("tools/list")
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert "new_pid" in names
        assert "gone_pid" not in names
        after = await client.older("tools/call", name="kept_pid", arguments={})
        assert text_of(after) == before["kept"]
        await until(lambda: not is_running(int(before["gone"])))


async def test_a_server_that_fails_after_it_left_the_configuration_costs_no_session(tmp_path: Path) -> None:
    kept = scripted(tmp_path, "kept", tools=["pid"])
    gone = scripted(tmp_path, "gone", tools=["pid", "wait"])
    async with (
        serving(tmp_path, kept=kept.entry(), gone=gone.entry()) as served,
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        pids = {
            name: text_of(await client.older("tools/call", name=f"{name}_pid", arguments={}))
            for name in ("kept", "gone")
        }

        async def wait() -> None:
            await client.older("tools/call", name="gone_wait", arguments={})

        tasks.start_soon(wait)  # its connection stays until this call has ended
        await until(lambda: gone.calls("wait") > 0)
        document = {"servers": {"kept": kept.entry()}, "gateway": {"approval": "allow"}}
        await served.gateway.reload(load_config(None, document, dict(served.env), tmp_path / "project"))
        os.kill(int(pids["gone"]), signal.SIGKILL)
        await until(lambda: not is_running(int(pids["gone"])))
        after = await client.older("tools/call", name="kept_pid", arguments={})
        assert text_of(after) == pids["kept"]
        tasks.cancel_scope.cancel()


async def test_a_call_under_way_is_let_finish_when_the_gateway_ends(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["hold"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answers: list[Any] = []
    async with (
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
        serving(tmp_path, a=server.entry()) as served,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()

        async def call() -> None:
            arguments = {"file": str(pipe)}
            answers.append(await client.older("tools/call", name="a_hold", arguments=arguments))

        tasks.start_soon(call)
        await until(lambda: server.calls("hold") > 0)
        tasks.start_soon(anyio.to_thread.run_sync, pipe.write_text, "held")
    assert text_of(answers[0]) == "held"
