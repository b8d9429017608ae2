"""What gateways that act as one offer besides plain calls: tasks, searches, subscriptions."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.testing import ScriptedServer
from tests.gateway.cluster.cluster_support import Rounds, replicas
from tests.gateway.support import MODERN, Raw, text_of
from tests.gateway.test_search_sessions import QUERIES, TOOLS, names, signatures
from tests.gateway.test_task_tools import CALLS, entry
from tests.host.asking import HANDSHAKE, AskingServer
from tests.host.test_search_memory import ECHO, SHIP

every_era = pytest.mark.parametrize("era", ["modern", "older"])
SESSION = "fairlead/session"


async def call(client: Raw, era: str, name: str, **arguments: Any) -> str:
    if era == "older":
        return text_of(await client.older("tools/call", name=name, arguments=arguments))
    meta = {SESSION: "one"}
    return text_of(await client.modern("tools/call", name=name, arguments=arguments, meta=meta))


@every_era
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_tools_that_run_as_tasks_are_plain_tools_at_every_replica(
    tmp_path: Path, version: str, era: str
) -> None:
    async with replicas(tmp_path, 2, x=entry(tmp_path, version)) as served, aiohttp.ClientSession() as http:
        client = Rounds(http, served)
        if era == "older":
            await client.begin()
        for _ in range(2):  # each at each replica
            for name, (arguments, wanted) in CALLS.items():
                assert wanted in await call(client, era, f"x_{name}", **arguments), name


@every_era
async def test_a_session_is_shown_nothing_twice_whichever_replica_searches(tmp_path: Path, era: str) -> None:
    server = ScriptedServer(tmp_path / "record", tools=TOOLS)
    async with (
        replicas(tmp_path, 2, mode="meta", x=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        for each in served:
            with anyio.fail_after(30):
                while len(each.cluster.directory.living()) < 2:
                    await each.cluster.directory.refresh()
        client = Rounds(http, served)
        if era == "older":
            await client.begin()
        shown: list[str] = []
        named: list[str] = []
        for query in QUERIES:
            answer = await call(client, era, "mcp_search_tools", queries=[query])
            assert not {*signatures(answer)} & {*shown}, answer
            assert not {*names(answer)} & {*shown, *named}, answer
            shown += signatures(answer)
            named += names(answer)
        assert len(shown) > len(QUERIES)


async def test_what_a_search_led_to_at_one_replica_is_found_first_at_the_other(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[ECHO, SHIP])
    query: dict[str, Any] = {"name": "mcp_search_tools", "arguments": {"queries": ["ship the website"]}}
    async with (
        replicas(tmp_path, 2, mode="meta", x=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        echo: dict[str, Any] = {
            "name": "mcp_call_tool",
            "arguments": {"name": "x.echo", "arguments": {"text": "hi"}},
        }
        for _ in range(2):  # each search in a session of its own
            client = Raw(http, f"{served[0].url}/mcp", "ada")
            await client.begin()
            await client.older("tools/call", **query)
            called = await client.older("tools/call", **echo)
            assert not called["result"].get("isError"), called
        found: list[str] = []
        for name in ("ada", "bob"):
            client = Raw(http, f"{served[1].url}/mcp", name)
            await client.begin()
            found.append(text_of(await client.older("tools/call", **query)))
        assert signatures(found[0]) == ["x.echo", "x.ship_parcel"]
        assert signatures(found[1]) == ["x.ship_parcel"]


async def test_a_session_hears_of_what_it_subscribed_to_whichever_replica_it_listens_at(
    tmp_path: Path,
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=["say"])
    heard: list[str] = []
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        client.url = f"{served[1].url}/mcp"
        headers = {**client.headers, "Accept": "text/event-stream"}
        async with http.get(client.url, headers=headers) as stream:
            assert stream.status == 200
            uri = (await client.older("resources/list"))["result"]["resources"][0]["uri"]
            assert "result" in await client.older("resources/subscribe", uri=uri)
            client.url = f"{served[0].url}/mcp"
            updated = {"method": "notifications/resources/updated", "params": {"uri": "test://a"}}
            await client.older("tools/call", name="a_say", arguments={"messages": [updated]})
            with anyio.fail_after(30):
                async for line in stream.content:
                    if line.startswith(b"data:") and line[5:].strip():
                        message = json.loads(line[5:])
                        if message.get("method") == "notifications/resources/updated":
                            heard.append(message["params"]["uri"])
                            break
        assert heard == [uri]
