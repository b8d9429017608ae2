"""A gateway behind a gateway: every feature of a server arrives, over one connection and one process."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourceUpdated
from pydantic import FileUrl

from tests.gateway.support import HANDSHAKE, MODERN, MODES, serving, until
from tests.gateway.test_offers import SAMPLE, Everything
from tests.host.asking import AskingServer, form, page

TOOLS = ["ask", "change", "echo", "log", "meet", "pid", "progress", "update"]

every_client = pytest.mark.parametrize("mode", MODES)
every_server = pytest.mark.parametrize("version", [HANDSHAKE, MODERN])


@asynccontextmanager
async def two_gateways(folder: Path, server: AskingServer) -> AsyncGenerator[str]:
    """The URL of a gateway in front of a gateway in front of a server."""
    entry = server.entry(sampling={"max_tokens": 1000})
    async with serving(folder / "back", a=entry) as back:
        behind = {"url": f"{back.url}/mcp", "trust": "trusted", "sampling": {"max_tokens": 1000}}
        async with serving(folder / "front", b=behind) as front:
            yield f"{front.url}/mcp"


def asking(tmp_path: Path, version: str) -> AskingServer:
    return AskingServer(tmp_path / "record", version=version, tools=TOOLS)


def text(result: Any) -> str:
    return result.content[0].model_dump()["text"]


@every_client
@every_server
async def test_lists_reads_prompts_completions_and_questions_pass_two_gateways(
    tmp_path: Path, mode: Any, version: str
) -> None:
    server, person = asking(tmp_path, version), Everything()
    async with (
        two_gateways(tmp_path, server) as url,
        Client(url, mode=mode, elicitation_callback=person.elicit, sampling_callback=person.sample) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {f"b_a_{tool}" for tool in TOOLS} <= names
        assert json.loads(text(await client.call_tool("b_a_echo", {"x": 1}))) == {"x": 1}
        questions = {"form": form(), "page": page(), "model": SAMPLE}
        answers = json.loads(text(await client.call_tool("b_a_ask", {"questions": questions})))
        assert answers["form"]["content"] == {"name": "Ada", "city": "Kiel"}
        assert answers["page"]["action"] == "accept"
        assert answers["model"]["content"]["text"] == "Hi"
        [resource] = (await client.list_resources()).resources
        read = await client.read_resource(str(resource.uri))
        assert read.contents[0].model_dump()["text"] == "test://a"
        [prompt] = (await client.list_prompts()).prompts
        got = await client.get_prompt(prompt.name, {"who": "Ada"})
        assert "Ada" in json.dumps(got.model_dump(mode="json"))
        reference = types.PromptReference(name=prompt.name)
        found = await client.complete(reference, {"name": "who", "value": "al"})
        assert found.completion.values == ["alpha"]
    assert len(server.notes("started")) <= 2, "one to be listed, one for the client"


@every_server
async def test_a_modern_client_hears_of_changes_over_two_gateways(tmp_path: Path, version: str) -> None:
    server = asking(tmp_path, version)
    change = {"resources": [{"uri": "test://new", "name": "new"}], "prompts": [{"name": "new"}]}
    async with two_gateways(tmp_path, server) as url, Client(url) as client:
        await client.list_tools()
        await client.list_prompts()
        [resource] = (await client.list_resources()).resources
        process = text(await client.call_tool("b_a_pid", {}))
        uri = str(resource.uri)
        async with client.listen(resource_subscriptions=[uri], resources_list_changed=True) as news:
            await client.call_tool("b_a_update", {"uri": "test://a"})
            async for event in news:
                if event == ResourceUpdated(uri=uri):
                    break
            await client.call_tool("b_a_change", change)
            async for event in news:
                if type(event).__name__ == "ResourcesListChanged":
                    break
        assert text(await client.call_tool("b_a_pid", {})) == process
        assert [found.name for found in (await client.list_resources()).resources] == ["new"]


@every_server
async def test_a_session_hears_of_changes_over_two_gateways(tmp_path: Path, version: str) -> None:
    server = asking(tmp_path, version)
    heard: set[str] = set()
    subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri="test://a"))

    async def handle(message: Any) -> None:
        heard.add(getattr(message, "method", ""))

    async with (
        two_gateways(tmp_path, server) as url,
        Client(url, mode="legacy", message_handler=handle) as client,
    ):
        await client.list_tools()
        await client.list_resources()
        await client.list_prompts()
        await client.session.send_request(subscribe, types.EmptyResult)
        await client.call_tool("b_a_update", {"uri": "test://a"})
        await until(lambda: "notifications/resources/updated" in heard)
        await client.call_tool("b_a_change", {"prompts": [{"name": "new"}]})
        await until(lambda: "notifications/prompts/list_changed" in heard)


@every_client
@every_server
async def test_progress_logs_and_cancellation_pass_two_gateways(
    tmp_path: Path, mode: Any, version: str
) -> None:
    server = asking(tmp_path, version)
    progressed, logged = anyio.Event(), anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progressed.set()

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.set()

    async with (
        two_gateways(tmp_path, server) as url,
        Client(url, mode=mode, logging_callback=on_log) as client,
    ):
        await client.list_tools()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    await client.call_tool("b_a_progress", {}, progress_callback=on_progress)

                tasks.start_soon(call)
                await progressed.wait()
                scope.cancel()
        await until(lambda: bool(server.heard("notifications/cancelled")))
        if mode == "legacy":
            set_level = types.SetLevelRequest(params=types.SetLevelRequestParams(level="info"))
            await client.session.send_request(set_level, types.EmptyResult)
            await client.call_tool("b_a_log", {"level": "error", "data": "x"})
            await logged.wait()


@every_client
@every_server
async def test_a_server_behind_two_gateways_hears_where_the_client_works(
    tmp_path: Path, mode: Any, version: str
) -> None:
    server = asking(tmp_path, version)

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///work/project"), name="project")])

    async with (
        two_gateways(tmp_path, server) as url,
        Client(url, mode=mode, list_roots_callback=roots) as client,
    ):
        await client.list_tools()
        questions = {"where": {"method": "roots/list"}}
        answers = json.loads(text(await client.call_tool("b_a_ask", {"questions": questions})))
        [root] = answers["where"]["roots"]
        assert root["uri"] == "file:///work/project"


@every_server
async def test_clients_of_the_front_gateway_have_servers_of_their_own_behind_the_other(
    tmp_path: Path, version: str
) -> None:
    server = asking(tmp_path, version)
    async with (
        two_gateways(tmp_path, server) as url,
        Client(url, client_info=types.Implementation(name="one", version="1")) as one,
        Client(url, client_info=types.Implementation(name="two", version="1")) as two,
        Client(url, mode="legacy") as three,
    ):
        pids: list[str] = []
        for client in (one, two, three, one, two, three):
            await client.list_tools()
            pids.append(text(await client.call_tool("b_a_pid", {})))
        assert pids[:3] == pids[3:]
        assert len(set(pids)) == (3 if version == HANDSHAKE else 1)
