"""Tools that only run as tasks, or that depend on what a client can do, are there from the first list on."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.testing import ScriptedServer
from fairlead.testing.fixtures import open_host
from tests.gateway.support import Raw, serving, text_of
from tests.gateway.test_results import HANDSHAKE, TEXT, entry, tool

TASKS = Path(__file__).parent.parent / "fixtures" / "tasks_server.py"
pytestmark = pytest.mark.requirement("HARD-87")


def tasks_entry(folder: Path, version: str) -> dict[str, Any]:
    arguments = ["-I", "-S", str(TASKS), str(folder / "tasks.json"), version]
    return {"command": sys.executable, "args": arguments, "trust": "trusted", "approval": "allow"}


def check_plain(answer: dict[str, Any]) -> None:
    assert text_of(answer) == "done"
    assert not answer["result"].get("isError")
    assert "related-task" not in str(answer)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_tool_that_only_runs_as_a_task_is_a_plain_tool_from_the_first_call_of_a_run(
    tmp_path: Path, version: str
) -> None:
    for _ in range(2):  # without a snapshot, and with one
        async with (
            serving(tmp_path, work=tasks_entry(tmp_path, version)) as served,
            aiohttp.ClientSession() as http,
        ):
            modern, older = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp", "older")
            await older.begin()
            name = "work_long"
            check_plain(await modern.modern("tools/call", 1, name=name, arguments={"text": "done"}))
            check_plain(await older.older("tools/call", 2, name=name, arguments={"text": "done"}))
            listed = (await older.older("tools/list", 3))["result"]["tools"]
            assert name in {each["name"] for each in listed}
            assert not any("execution" in each for each in listed)
            listed = (await modern.modern("tools/list", 4))["result"]["tools"]
            assert not any("execution" in each for each in listed)


async def test_the_library_calls_a_task_tool_before_anything_is_listed(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_host(tmp_path, work=tasks_entry(tmp_path, "2025-11-25")) as host:
            result = await host.call("work", "long", {"text": "done"})
            assert result.text == "done"
            assert b"related-task" not in result.raw


CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


async def test_tools_that_depend_on_the_client_are_in_its_first_list(tmp_path: Path) -> None:
    tools = {
        "always": tool(f"{{{TEXT}}}"),
        "asks": {**tool(f"{{{TEXT}}}"), "needs": "elicitation"},
        "finds": {**tool(f"{{{TEXT}}}"), "needs": "roots"},
    }
    async with (
        serving(tmp_path, results=entry(tmp_path, HANDSHAKE, tools)) as served,
        aiohttp.ClientSession() as http,
    ):

        async def names(capabilities: dict[str, Any]) -> set[str]:
            client = Raw(http, f"{served.url}/mcp")
            await client.begin(capabilities)
            listed = (await client.older("tools/list"))["result"]["tools"]
            asks = await client.older("tools/call", 5, name="results_always", arguments={})
            assert text_of(asks) == "hello"
            found = {each["name"].removeprefix("results_") for each in listed} & {*tools}
            await client.end()
            return found

        assert await names({}) == {"always"}
        assert await names(CAPABILITIES) == {"always", "asks", "finds"}
        assert await names({"roots": {}}) == {"always", "finds"}
        # Which is no news to a client with less, nor to another one with the same.
        assert await names({}) == {"always"}
        assert await names(CAPABILITIES) == {"always", "asks", "finds"}


async def test_what_a_server_may_not_be_told_makes_no_difference(tmp_path: Path) -> None:
    tools = {"always": tool(f"{{{TEXT}}}"), "asks": {**tool(f"{{{TEXT}}}"), "needs": "elicitation"}}
    quiet = entry(tmp_path, HANDSHAKE, tools, elicitation=False)
    async with serving(tmp_path, results=quiet) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"elicitation": {}})
        listed = (await client.older("tools/list"))["result"]["tools"]
        assert "results_asks" not in {each["name"] for each in listed}


@pytest.mark.parametrize("rules", [[], [{"action": "deny", "principal": "ann", "tool": "nothing"}]])
async def test_a_client_with_a_large_catalog_of_its_own_misses_nothing_in_its_first_list(
    tmp_path: Path, rules: list[dict[str, str]]
) -> None:
    tools = {"always": tool(f"{{{TEXT}}}"), "asks": {**tool(f"{{{TEXT}}}"), "needs": "elicitation"}}

    def many(name: str) -> dict[str, Any]:
        return ScriptedServer(tmp_path / name, more_tools=399).entry(trust="trusted", approval="allow")

    async with (
        serving(
            tmp_path,
            config={"gateway": {"mode": "direct", "startup_wait_ms": 60_000}, "policy": {"rules": rules}},
            a=many("a"),
            b=many("b"),
            c=many("c"),
            results=entry(tmp_path, HANDSHAKE, tools),
        ) as served,
        aiohttp.ClientSession() as http,
    ):

        async def count(capabilities: dict[str, Any]) -> Counter[str]:
            client = Raw(http, f"{served.url}/mcp", "ann")
            await client.begin(capabilities)
            listed = (await client.older("tools/list"))["result"]["tools"]
            await client.end()
            return Counter(each["name"].partition("_")[0] for each in listed)

        expected = {"a": 400, "b": 400, "c": 400, "results": 1}
        assert expected.items() <= (await count({})).items()
        for _ in range(3):  # what servers list for such clients is not known at first, and then it is
            assert {**expected, "results": 2}.items() <= (await count(CAPABILITIES)).items()
