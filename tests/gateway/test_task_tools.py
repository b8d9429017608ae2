"""Tools that run as tasks are plain tools on every surface: polled for, cancelled, failed or expired."""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from tests.conftest import Machine, Outcome
from tests.gateway.support import HANDSHAKE, MODERN, Raw, serving, until

pytestmark = pytest.mark.requirement("HARD-85")

SERVER = Path(__file__).parent.parent / "fixtures" / "tasks_server.py"
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "work": ({"polls": 2, "text": "done well"}, "done well"),
    "long": ({"polls": 2, "text": "done long"}, "done long"),
    "quick": ({"text": "at once"}, "at once"),
}

every_server = pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
every_client = pytest.mark.parametrize("mode", ["legacy", "auto"])
hops = pytest.mark.parametrize("hops", [1, 2])


def entry(folder: Path, version: str, support: str = "required") -> dict[str, Any]:
    arguments = ["-I", "-S", str(SERVER), str(folder / "tasks.json"), version, support]
    return {"command": sys.executable, "args": arguments, "trust": "trusted", "elicitation": True}


@asynccontextmanager
async def gateways(
    folder: Path, version: str, hops: int, support: str = "required"
) -> AsyncGenerator[tuple[str, str]]:
    """The URL of a gateway before the server, or of one before another; and how its tools begin."""
    async with serving(folder / "first", x=entry(folder, version, support)) as first:
        if hops == 1:
            yield f"{first.url}/mcp", "x_"
            return
        behind = {"url": f"{first.url}/mcp", "trust": "trusted", "elicitation": True}
        async with serving(folder / "second", b=behind) as second:
            yield f"{second.url}/mcp", "b_x_"


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@hops
@every_client
@pytest.mark.parametrize("support", ["required", "optional"])
@every_server
async def test_task_tools_are_plain_tools_for_every_client(
    tmp_path: Path, mode: Any, version: str, support: str, hops: int
) -> None:
    async with (
        gateways(tmp_path, version, hops, support) as (url, prefix),
        Client(url, mode=mode) as client,
    ):
        for name, (arguments, wanted) in CALLS.items():  # the first call of all, before any list
            result = await client.call_tool(f"{prefix}{name}", arguments)
            assert wanted in text_of(result), (name, result)
            assert not result.is_error
            assert "related-task" not in json.dumps(result.model_dump(mode="json")), name
        listed = (await client.list_tools()).tools
        assert {f"{prefix}{name}" for name in CALLS} <= {tool.name for tool in listed}
        assert all(tool.execution is None or tool.execution.task_support != "required" for tool in listed)
        failed = await client.call_tool(f"{prefix}stumble", {"polls": 1})
        assert failed.is_error
        assert "the disk is full" in await failure_of(client, f"{prefix}crash", {"polls": 1})
        if support == "required":
            expired = await failure_of(client, f"{prefix}long", {"polls": 50, "ttl_ms": 1})
            assert "expired" in expired or "not found" in expired


async def failure_of(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """How a call fails: by a protocol error or by a result that says so."""
    try:
        result = await client.call_tool(name, arguments)
    except Exception as exc:  # noqa: BLE001 - which error it is differs between versions
        return str(exc)
    assert result.is_error
    return text_of(result)


async def test_a_tool_that_runs_as_a_task_is_known_where_this_runs_list_failed(tmp_path: Path) -> None:
    fails = tmp_path / "fails"
    server = entry(tmp_path, HANDSHAKE) | {"env": {"LIST_FAILS": str(fails)}}
    for _ in range(2):  # the second time it is known from the first
        async with serving(tmp_path, seconds=20, x=server) as served:
            host = served.gateway.host
            failures = await host.connect("x")
            assert bool(failures) == fails.exists()
            result = await host.call("x", "long", {"text": "it is done"}, confirmed=True)
            assert result.text == "it is done"
        fails.touch()


@hops
@every_client
@every_server
async def test_a_task_that_asks_its_user_is_answered_through_gateways(
    tmp_path: Path, mode: Any, version: str, hops: int
) -> None:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        gateways(tmp_path, version, hops) as (url, prefix),
        Client(url, mode=mode, elicitation_callback=answer) as client,
    ):
        await client.list_tools()
        result = await client.call_tool(f"{prefix}greet", {"questions": ["name"]})
        assert "Ada" in text_of(result)


@hops
@every_server
async def test_a_client_that_gives_up_cancels_the_task(tmp_path: Path, version: str, hops: int) -> None:
    async with gateways(tmp_path, version, hops) as (url, prefix), Client(url) as client:
        await client.list_tools()
        with anyio.move_on_after(2):
            await client.call_tool(f"{prefix}endless", {})
        tasks = tmp_path / "tasks.json"
        await until(lambda: "cancelled" in tasks.read_text())
        assert "again" in text_of(await client.call_tool(f"{prefix}work", {"polls": 1, "text": "again"}))


@every_server
async def test_what_is_raw_says_nothing_of_tasks(tmp_path: Path, version: str) -> None:
    async with gateways(tmp_path, version, 1) as (url, prefix), aiohttp.ClientSession() as http:
        plain, modern = Raw(http, url, "ann"), Raw(http, url, "ben")
        await plain.begin()
        for answer in (
            await plain.older("tools/list", 3),
            await modern.modern("tools/list", 3),
            await plain.older("tools/call", 4, name=f"{prefix}long", arguments=CALLS["long"][0]),
            await modern.modern("tools/call", 4, name=f"{prefix}long", arguments=CALLS["long"][0]),
        ):
            said = json.dumps(answer)
            assert "result" in answer, said
            assert '"taskSupport": "required"' not in said
            assert "related-task" not in said
            assert '"resultType": "task"' not in said


@every_server
def test_the_command_line_waits_for_tasks(
    machine: Machine, fairlead: Callable[..., Outcome], version: str
) -> None:
    document = {"servers": {"x": entry(machine.home, version)}, "policy": {"approval": "allow"}}
    machine.write_user(json.dumps(document))
    for name, (arguments, wanted) in CALLS.items():
        outcome = fairlead("call", "x", name, "--input", json.dumps(arguments))
        assert outcome.status == 0, (name, outcome.err)
        assert wanted in outcome.out, name
    failed = fairlead("call", "x", "stumble", "--input", '{"polls": 1}')
    assert failed.status != 0
    crashed = fairlead("call", "x", "crash", "--input", '{"polls": 1}')
    assert crashed.status != 0
    assert "bug" not in crashed.err
