"""Searches of gateway clients: nothing is shown twice within a session, and sessions do not mix."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client

from fairlead.testing import ScriptedServer
from tests.gateway.support import MODES, Raw, Served, serving, text_of

WORDS = ("weekly", "monthly", "yearly", "daily", "hourly", "final", "draft", "public", "secret", "old")
TOOLS = [
    {
        "name": f"{verb}_{word}_report",
        "description": f"{verb.title()} the {word} report of a project.",
        "inputSchema": {"type": "object", "properties": {"project": {"type": "string"}}},
    }
    for verb in ("read", "write", "send", "print", "rename")
    for word in WORDS
]
QUERIES = ("read a report", "write a report", "send the weekly report")
Search = Callable[[str], Awaitable[str]]


@asynccontextmanager
async def gateway(tmp_path: Path) -> AsyncGenerator[Served]:
    entry = ScriptedServer(tmp_path / "record", tools=TOOLS).entry()
    async with serving(tmp_path, config={"gateway": {"mode": "meta"}}, x=entry) as served:
        yield served


def signatures(answer: str) -> list[str]:
    """The tools whose signatures an answer shows."""
    lines = answer.splitlines()
    return [line.partition("(")[0] for line in lines if line.startswith("x.") and "(" in line]


def names(answer: str) -> list[str]:
    """The tools that an answer names besides, on the line of their server."""
    lines = [line.removeprefix("also x: ") for line in answer.splitlines() if line.startswith("also x: ")]
    return [f"x.{name}" for line in lines for name in line.split(", ")]


@asynccontextmanager
async def searching(served: Served, era: str, session: str) -> AsyncGenerator[Search]:
    """A session of a client that searches."""
    async with aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        if era == "older":
            await client.begin()

        async def search(query: str) -> str:
            asked: dict[str, Any] = {"name": "mcp_search_tools", "arguments": {"queries": [query]}}
            if era == "older":
                return text_of(await client.older("tools/call", **asked))
            return text_of(await client.modern("tools/call", meta={"fairlead/session": session}, **asked))

        yield search


async def require_nothing_twice(search: Search) -> None:
    shown: list[str] = []
    named: list[str] = []
    for query in QUERIES:
        answer = await search(query)
        assert signatures(answer), answer
        assert not {*signatures(answer)} & {*shown}, answer
        assert not {*names(answer)} & {*shown, *named}, answer
        shown += signatures(answer)
        named += names(answer)
    assert len(shown) == len({*shown}) > len(QUERIES)
    assert named


@pytest.mark.parametrize("era", ["modern", "older"])
async def test_a_session_is_shown_nothing_twice(tmp_path: Path, era: str) -> None:
    async with gateway(tmp_path) as served, searching(served, era, "one") as search:
        await require_nothing_twice(search)


@pytest.mark.parametrize("era", ["modern", "older"])
async def test_a_good_hit_that_was_shown_is_named_and_the_same_query_gets_its_answer_again(
    tmp_path: Path, era: str
) -> None:
    async with gateway(tmp_path) as served, searching(served, era, "one") as search:
        first = await search("read the weekly report")
        best = signatures(first)[0]
        assert best == "x.read_weekly_report"
        again = await search("weekly report to read")
        assert best not in signatures(again)
        assert f"shown before: {best}" in again
        assert await search("read the weekly report") == first


@pytest.mark.parametrize("era", ["modern", "older"])
async def test_sessions_know_nothing_of_each_others_searches(tmp_path: Path, era: str) -> None:
    async with (
        gateway(tmp_path) as served,
        searching(served, era, "one") as one,
        searching(served, era, "two") as two,
    ):
        before = [await one(query) for query in QUERIES]
        assert [await two(query) for query in QUERIES] == before


async def test_a_client_that_names_no_session_is_shown_everything(tmp_path: Path) -> None:
    """Another agent with the same token and name may ask: what one was shown, it has not seen."""
    async with gateway(tmp_path) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        for query in ("read the weekly report", "weekly report to read"):
            arguments = {"queries": [query]}
            answer = text_of(await client.modern("tools/call", name="mcp_search_tools", arguments=arguments))
            assert "x.read_weekly_report" in signatures(answer)
            assert "shown before" not in answer


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_of_the_sdk_searches_in_a_session_of_its_own(tmp_path: Path, mode: Any) -> None:
    async with gateway(tmp_path) as served:
        seen: list[list[str]] = []
        for _ in range(2):
            async with Client(f"{served.url}/mcp", mode=mode) as client:

                async def search(query: str, client: Client = client) -> str:
                    result = await client.call_tool("mcp_search_tools", {"queries": [query]})
                    return str(result.content[0].model_dump()["text"])

                if mode == "legacy":
                    await require_nothing_twice(search)
                seen.append(signatures(await search("print the yearly report")))
        assert seen[0] == seen[1]
        assert seen[0][0] == "x.print_yearly_report"


ECHO = {"name": "echo", "description": "Say something back.", "inputSchema": {"type": "object"}}
SHIP = {"name": "ship_parcel", "description": "Ship a parcel.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("era", ["modern", "older"])
async def test_what_searches_of_a_principal_led_to_is_found_by_its_later_sessions_alone(
    tmp_path: Path, era: str
) -> None:
    entry = ScriptedServer(tmp_path / "record", tools=[ECHO, SHIP]).entry()

    async def use(served: Served, principal: str, session: str, *calls: tuple[str, dict[str, Any]]) -> str:
        """The first line of the last answer in a session of its own."""
        told = ""
        async with aiohttp.ClientSession() as http:
            client = Raw(http, f"{served.url}/mcp", principal)
            if era == "older":
                await client.begin()
            for name, arguments in calls:
                if era == "older":
                    answer = await client.older("tools/call", name=name, arguments=arguments)
                else:
                    answer = await client.modern(
                        "tools/call", meta={"fairlead/session": session}, name=name, arguments=arguments
                    )
                told = text_of(answer)
        return told.partition("\n")[0]

    search: tuple[str, dict[str, Any]] = ("mcp_search_tools", {"queries": ["ship the website"]})
    call: tuple[str, dict[str, Any]] = ("mcp_call_tool", {"name": "x.echo", "arguments": {}})
    async with serving(tmp_path, config={"gateway": {"mode": "meta"}}, x=entry) as served:
        assert (await use(served, "ada", "before", search)).startswith("x.ship_parcel")
        await use(served, "ada", "one", search, call)
        assert (await use(served, "ada", "between", search)).startswith("x.ship_parcel")
        await use(served, "ada", "two", search, call)
        assert (await use(served, "ada", "after", search)).startswith("x.echo")
        assert (await use(served, "bob", "after", search)).startswith("x.ship_parcel")
