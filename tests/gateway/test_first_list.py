"""The first list of a gateway: known servers answer at once, unknown ones are waited for once and briefly."""

import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from mcp import Client

from fairlead.testing import ScriptedServer
from tests.fixtures import listing_stdio
from tests.gateway.support import HANDSHAKE, MODES, Raw, serving, text_of, until
from tests.gateway.workers.support import is_alive

SLOW = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1] + str(os.getpid())).touch()
time.sleep(3600)
"""


def entry(*arguments: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [*arguments], "trust": "trusted", "approval": "allow"}


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("capabilities", [{}, {"roots": {}}], ids=["plain", "able"])
@pytest.mark.parametrize("method", ["tools/list", "resources/list", "prompts/list"])
async def test_hanging_servers_delay_the_first_list_once_and_briefly(
    tmp_path: Path, method: str, capabilities: dict[str, Any]
) -> None:
    sound = entry(listing_stdio.__file__, json.dumps({}))
    starts = tmp_path / "starts"
    starts.mkdir()
    a, b = (entry("-c", SLOW, str(starts / f"{name}-")) for name in "ab")
    config = {"gateway": {"startup_wait_ms": 6_000}}
    async with (
        serving(tmp_path, config=config, sound=sound, a=a, b=b) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin(capabilities)
        began = time.monotonic()
        first = await client.older(method)
        waited = time.monotonic() - began
        field = method.partition("/")[0]
        assert len(first["result"][field]) >= 1
        assert waited < 11  # 6 s, on a busy machine
        with anyio.fail_after(3):
            assert await client.older(method, 2)
            assert await client.older("tools/list", 3)
        assert len([*starts.iterdir()]) <= 2  # of each, one process: that of all clients


@pytest.mark.requirement("HARD-86")
async def test_a_server_that_was_listed_in_an_earlier_run_is_hardly_waited_for(tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = entry("-c", LATE, str(go), json.dumps(ANSWERS))
    config = {"gateway": {"startup_wait_ms": 20_000}}
    go.touch()
    async with serving(tmp_path, late=late) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        assert "late_slow" in json.dumps(await client.older("tools/list"))
    go.unlink()
    async with serving(tmp_path, config=config, late=late) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"roots": {}})
        began = time.monotonic()
        assert "late_slow" in json.dumps(await client.older("tools/list"))
        assert time.monotonic() - began < 10  # 1 s, on a busy machine


@pytest.mark.requirement("HARD-86")
async def test_a_listing_for_a_client_leaves_no_process_of_a_server_with_one_for_each_call(
    tmp_path: Path,
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid"])
    async with (
        serving(tmp_path, s=server.entry(sharing="call")) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"roots": {}})
        assert "s_pid" in json.dumps(await client.older("tools/list"))
        pid = int(text_of(await client.older("tools/call", 2, name="s_pid", arguments={})))
        started = server.notes("started")
        assert pid in started
        assert len(started) >= 2
        with anyio.fail_after(20):
            await until(lambda: not any(map(is_alive, started)))


@pytest.mark.requirement("HARD-86")
async def test_a_server_that_was_listed_before_is_waited_for_by_nobody(tmp_path: Path) -> None:
    sound = entry(listing_stdio.__file__, json.dumps({}))
    async with serving(tmp_path, sound=sound) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        assert len((await client.older("tools/list"))["result"]["tools"]) >= 1
    hung = {**sound, "startup_timeout_ms": 60_000}
    async with serving(tmp_path, sound=sound, other=hung) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        assert len((await client.older("tools/list"))["result"]["tools"]) >= 1


LATE = """
import json, os, pathlib, sys, time
go, answers = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
for line in sys.stdin:
    request = json.loads(line)
    while request.get("method") == "tools/list" and not go.exists():
        time.sleep(0.05)
    if "id" in request:
        answer = answers.get(request["method"])
        outcome = {"result": answer} if answer else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
"""
ANSWERS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": HANDSHAKE,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "late", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]},
}


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("mode", MODES)
async def test_servers_that_are_late_in_the_first_list_are_announced(tmp_path: Path, mode: Any) -> None:
    sound = entry(listing_stdio.__file__, json.dumps({}))
    late = entry("-c", LATE, str(tmp_path / "go"), json.dumps(ANSWERS))
    config = {"gateway": {"startup_wait_ms": 500}}
    announced = anyio.Event()

    async def handle(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            announced.set()

    async with (
        serving(tmp_path, config=config, sound=sound, late=late) as served,
        Client(f"{served.url}/mcp", mode=mode, message_handler=handle) as client,
    ):
        first = {tool.name for tool in (await client.list_tools()).tools}
        assert "late_slow" not in first
        assert any(name.startswith("sound_") for name in first)
        async with AsyncExitStack() as stack:
            news = None
            if mode != "legacy":
                news = await stack.enter_async_context(client.listen(tools_list_changed=True))
            (tmp_path / "go").touch()
            with anyio.fail_after(30):
                if news is None:
                    await announced.wait()
                else:
                    assert type(await anext(aiter(news))).__name__ == "ToolsListChanged"
        now = {tool.name for tool in (await client.list_tools()).tools}
        assert now == first | {"late_slow"}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("method", listing_stdio.FIELDS)
async def test_a_list_is_the_same_whichever_way_it_is_answered(tmp_path: Path, method: str) -> None:
    sound = entry(listing_stdio.__file__, json.dumps({}))
    async with serving(tmp_path, sound=sound) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        as_bytes = await client.modern(method)
        # One that wants to hear of progress is answered by the SDK's server.
        by_sdk = await client.modern(method, meta={"progressToken": "t"})
        assert as_bytes == by_sdk
        assert as_bytes["result"][listing_stdio.FIELDS[method]]

        older = Raw(http, f"{served.url}/mcp")
        await older.begin({"elicitation": {}})
        in_session = (await older.older(method))["result"]
        by_sdk = (await older.older(method, 2, _meta={"progressToken": "t"}))["result"]
        assert in_session[listing_stdio.FIELDS[method]] == by_sdk[listing_stdio.FIELDS[method]]
