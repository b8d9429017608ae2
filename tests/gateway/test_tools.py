"""Tools through the gateway: whatever era a client speaks, and whatever era its server does."""

from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from fairlead.testing import ScriptedServer
from tests.gateway.support import HANDSHAKE, MODERN, MODES, Raw, serving, text_of, until

UPSTREAM = {
    HANDSHAKE: {"version": HANDSHAKE},
    MODERN: {"version": MODERN, "probe": "answer"},
}


def scripted(folder: Path, name: str, version: str = HANDSHAKE, **script: Any) -> ScriptedServer:
    return ScriptedServer(folder / f"{name}.record", **UPSTREAM[version], **script)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
@pytest.mark.requirement("NEED-10")
async def test_a_client_of_either_era_calls_a_server_of_either(
    tmp_path: Path, mode: Any, version: str
) -> None:
    definition = {
        "name": "echo",
        "title": "Echo",
        "description": "Says it again.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "_meta": {"example.org/kind": "test", "ui": {"resourceUri": "ui://echo"}},
    }
    server = scripted(tmp_path, "a", version, tools=[definition, "refuse"])
    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode=mode) as client,
    ):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"a_echo", "a_refuse"} <= tools.keys()
        echo = tools["a_echo"]
        assert (echo.title, echo.description) == ("Echo", "[a/echo] Says it again.")
        assert echo.annotations is not None
        assert echo.annotations.read_only_hint is True
        assert echo.meta == {"ui": {"resourceUri": "ui://echo"}}
        result = await client.call_tool("a_echo", {"word": "hello"})
        assert result.content[0].model_dump()["text"] == '{"word": "hello"}'
        by_dotted_name = await client.call_tool("a.echo", {"word": "again"})
        assert by_dotted_name.content[0].model_dump()["text"] == '{"word": "again"}'
        with pytest.raises(MCPError) as refused:
            await client.call_tool("a_refuse", {})
        assert refused.value.error.code == -32602
        with pytest.raises(MCPError, match="no tool is called"):
            await client.call_tool("a_nothing", {})


@pytest.mark.parametrize("mode", MODES)
async def test_progress_comes_to_whoever_asked_for_it(tmp_path: Path, mode: Any) -> None:
    server = scripted(tmp_path, "a", tools=["tick"])
    heard: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode=mode) as client,
    ):
        await client.list_tools()
        result = await client.call_tool("a_tick", {"times": 3}, progress_callback=progressed)
        assert not result.is_error
    assert len(heard) == 3
    assert heard == sorted(heard)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.requirement("NEED-20")
async def test_a_call_that_is_given_up_is_cancelled_at_its_server(tmp_path: Path, mode: Any) -> None:
    server = scripted(tmp_path, "a", tools=["echo", "wait"])
    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode=mode) as client,
    ):
        await client.list_tools()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "a_wait")
            await until(lambda: server.calls("wait") > 0)
            tasks.cancel_scope.cancel()
        await until(lambda: "notifications/cancelled" in server.notes("received"))
        assert not (await client.call_tool("a_echo", {})).is_error


@pytest.mark.requirement("HARD-52")
async def test_clients_with_the_same_ids_never_get_each_others_answers(tmp_path: Path) -> None:
    shared = scripted(tmp_path, "shared", MODERN)
    own = scripted(tmp_path, "own")
    async with (
        serving(tmp_path, shared=shared.entry(), own=own.entry()) as served,
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        await Raw(http, f"{served.url}/mcp").modern("tools/list")

        async def ask(name: str, *, older: bool) -> None:
            client = Raw(http, f"{served.url}/mcp", name)
            if older:
                await client.begin()
            call = client.older if older else client.modern
            for turn in range(10):
                for tool in ("shared_echo", "own_echo"):
                    said = f"{name}-{older}-{turn}"
                    answer = await call("tools/call", 7, name=tool, arguments={"said": said})
                    assert answer["id"] == 7
                    assert text_of(answer) == f'{{"said": "{said}"}}'

        for name in ("ada", "bob", "eve"):
            tasks.start_soon(lambda name=name: ask(name, older=True))
            tasks.start_soon(lambda name=name: ask(name, older=False))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.requirement("HARD-53")
async def test_a_denied_tool_is_hidden_and_refused(tmp_path: Path, mode: Any) -> None:
    server = scripted(tmp_path, "a", tools=["echo", "pid"])
    async with (
        serving(tmp_path, a=server.entry(deny_tools=["pid"])) as served,
        Client(f"{served.url}/mcp", mode=mode) as client,
    ):
        assert "a_pid" not in [tool.name for tool in (await client.list_tools()).tools]
        for name in ("a_pid", "a.pid"):
            refused = await client.call_tool(name, {})
            assert refused.is_error
            (said,) = refused.content
            assert "listed in deny_tools" in getattr(said, "text", "")
        with pytest.raises(MCPError, match="no tool is called"):
            await client.call_tool("a_nothing", {})
    assert server.calls("pid") == 0


@pytest.mark.requirement("NEED-9", "HARD-53")
async def test_one_server_that_is_down_hides_no_other(tmp_path: Path) -> None:
    sound = scripted(tmp_path, "sound")
    dead = scripted(tmp_path, "dead", exit=3)
    async with (
        serving(tmp_path, sound=sound.entry(), dead=dead.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        listed = await Raw(http, f"{served.url}/mcp").modern("tools/list")
        assert "sound_echo" in [tool["name"] for tool in listed["result"]["tools"]]
        states = {status.server_id: status.state for status in served.gateway.host.status()}
        assert states["dead"] == "error"


@pytest.mark.requirement("NEED-28")
async def test_a_bundle_neither_starts_nor_lists_what_it_leaves_out(tmp_path: Path) -> None:
    chosen, other = scripted(tmp_path, "chosen"), scripted(tmp_path, "other")
    config: dict[str, Any] = {"bundles": {"few": {"servers": {"chosen": {}}}}}
    async with (
        serving(tmp_path, config=config, chosen=chosen.entry(), other=other.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp/few")
        listed = await client.modern("tools/list")
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert "chosen_echo" in names
        assert not any(name.startswith("other") for name in names)
        refused = await client.modern("tools/call", name="other_echo", arguments={})
        assert "no tool is called" in refused["error"]["message"]
        status, _, _ = await Raw(http, f"{served.url}/mcp/none").post({})
        assert status == 404
    assert other.starts == 0


async def test_many_tools_become_meta_tools(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", more_tools=300)
    config = {"gateway": {"mode": "meta"}}
    async with (
        serving(tmp_path, config=config, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        listed = await client.modern("tools/list")
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert "mcp_search_tools" in names
        assert not any(name.startswith("a_") for name in names)
        arguments = {"name": "a.echo", "arguments": {"word": "hi"}}
        for name in ("mcp_call_tool", "mcp.callTool"):
            called = await client.modern("tools/call", name=name, arguments=arguments)
            assert text_of(called) == '{"word": "hi"}'


@pytest.mark.parametrize("mode", MODES)
async def test_clients_hear_that_tools_changed(tmp_path: Path, mode: Any) -> None:
    version = HANDSHAKE if mode == "legacy" else MODERN
    server = scripted(tmp_path, "a", version, tools=["change_tools"])
    changed = anyio.Event()

    async def heard(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed.set()

    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode=mode, message_handler=heard) as client,
    ):
        await client.list_tools()
        if mode == "legacy":
            await client.call_tool("a_change_tools", {"tools": ["change_tools", "echo"]})
            await changed.wait()
        else:
            async with client.listen(tools_list_changed=True) as news:
                await client.call_tool("a_change_tools", {"tools": ["change_tools", "echo"]})
                async for _ in news:
                    break
        assert "a_echo" in [tool.name for tool in (await client.list_tools()).tools]
