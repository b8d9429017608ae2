"""Listing what a server offers: all pages, within limits, whatever it does to the pages."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from fairlead.connection import lists
from fairlead.errors import AuthRequired, ListFailed
from fairlead.events import McpToolCallEnd, McpToolsChanged
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures import canned_stdio
from tests.fixtures.hostile_http import serving
from tests.host.support import hosting

EVERYTHING: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}


async def names(host: Host) -> list[str]:
    return [tool.key.tool for tool in await host.tools_of("x")]


async def failure_of(host: Host) -> str:
    failure = (await host.connect("x"))["x"]
    assert isinstance(failure, ListFailed)
    assert host.status()[0].state == "error"
    return str(failure)


async def ask_for_stale_tools(host: Host) -> None:
    """Ask for tools that are older than they should be, which makes the host list them again."""
    while not host.status()[0].stale:
        await checkpoint()
    await host.tools_of("x")


@pytest.mark.requirement("HARD-45")
@pytest.mark.parametrize("cursors", [[], ["a", "b", "c"], [""], ["", "next"], ['\u2028 \\ " é']])
async def test_all_pages_are_followed_whatever_their_cursors_look_like(
    machine: Machine, tmp_path: Path, cursors: list[str]
) -> None:
    server = ScriptedServer(tmp_path / "record", cursors=cursors)
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == [*(f"page-{number}" for number in range(len(cursors))), "echo"]


@pytest.mark.requirement("HARD-45")
async def test_a_list_that_never_ends_is_an_error(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", endless="new")
    async with hosting(machine, x=server.entry()) as host:
        assert "does not end" in await failure_of(host)
        assert (await host.call("x", "echo")).text == "{}"
    assert server.notes("received").count("tools/list") == lists.MAX_PAGES


@pytest.mark.requirement("HARD-45")
async def test_a_cursor_that_comes_again_ends_the_list_with_a_note(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", endless="same")
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == ["tool-1", "tool-2"]
        assert "does not end" in host.status()[0].notes[0]
    assert server.notes("received").count("tools/list") == 2


ONE_TOOL: list[Any] = [{"name": "echo", "inputSchema": {"type": "object"}}]


@pytest.mark.requirement("HARD-45")
@pytest.mark.parametrize(
    ("cursor", "note"),
    [
        (None, ""),
        ("", ""),
        (0, ""),
        (False, ""),
        (7, "not a text"),
        ({"page": 2}, "not a text"),
        ([], "not a text"),
        ("again", "does not end"),
    ],
)
async def test_no_cursor_costs_the_tools_that_came_with_it(
    machine: Machine, tmp_path: Path, cursor: object, note: str
) -> None:
    server = ScriptedServer(tmp_path / "record", list_result={"tools": ONE_TOOL, "nextCursor": cursor})
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == ["echo"]
        notes = host.status()[0].notes
        assert note in notes[0] if note else not notes


@pytest.mark.requirement("HARD-45")
async def test_more_items_than_the_configuration_allows_are_left_out_and_named(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", endless="new")
    async with hosting(machine, x=server.entry(max_list_items=5)) as host:
        assert len(await names(host)) == 5
        assert "`max_list_items` is 5" in host.status()[0].notes[0]


@pytest.mark.requirement("HARD-45")
async def test_a_list_that_takes_too_long_is_an_error(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_SECONDS", 0.2)
    server = ScriptedServer(tmp_path / "record", list_silence=True)
    async with hosting(machine, x=server.entry()) as host:
        failure = await failure_of(host)
        assert failure.count("server `x`") == 1
        assert "0.2 s" in failure


@pytest.mark.requirement("HARD-45")
@pytest.mark.long
async def test_twenty_thousand_tools_are_listed(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", more_tools=20_000)
    async with hosting(machine, x=server.entry(max_list_items=50_000)) as host:
        assert len(await host.tools_of("x")) == 20_001
        assert (await host.call("x", "echo")).text == "{}"
    async with hosting(machine, x=server.entry(max_list_items=50_000)) as host:
        assert len(await host.tools_of("x")) == 20_001
    assert server.starts == 1


@pytest.mark.requirement("HARD-46")
async def test_a_flood_of_changes_causes_few_lists(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.connect("x")
        assert (await host.call("x", "announce", {"times": 20_000})).text == "announced"
        await host.call("x", "change_tools", {"tools": ["last"]})
        while await names(host) != ["last"]:
            await anext(events)
        assert host.status()[0].state == "ready"
    assert server.notes("received").count("tools/list") <= 10


@pytest.mark.requirement("HARD-46")
async def test_changes_one_after_the_other_are_listed_together(machine: Machine, tmp_path: Path) -> None:
    server, changes = ScriptedServer(tmp_path / "record"), 60
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        for _ in range(changes):
            await host.call("x", "announce", {"times": 1})
    assert server.notes("received").count("tools/list") < changes / 3


@pytest.mark.requirement("HARD-46")
async def test_a_flood_of_requests_is_survived(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.call("x", "ask", {"times": 20_000})).text == "asked"
        assert (await host.call("x", "echo")).text == "{}"
        assert await host.connect("x") == {}
        assert host.status()[0].connects == 1


async def test_changes_that_come_while_a_list_is_under_way_are_not_lost(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["0"])
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        for number in range(1, 6):
            await host.call("x", "change_tools", {"tools": [str(number)]})
        while await names(host) != ["5"]:
            await anext(events)


async def test_a_list_that_fails_later_is_an_error_and_the_tools_stay_known(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.connect("x")
        await host.call("x", "break_lists")
        while host.status()[0].state != "error":
            await anext(events)
        assert await names(host) == ["echo"]
        assert (await host.call("x", "echo")).text == "{}"
    assert server.starts == 1


@pytest.mark.parametrize("capabilities", [{}, {"tools": {}}, EVERYTHING])
async def test_lists_the_server_does_not_offer_are_simply_not_there(
    machine: Machine, tmp_path: Path, capabilities: dict[str, Any]
) -> None:
    """It refuses all lists but that of its tools, whatever it declares."""
    server = ScriptedServer(tmp_path / "record", capabilities=capabilities)
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == ["echo"]
        listing = host.listing("x")
        assert listing is not None
        assert (listing.resources, listing.templates, listing.prompts) == ((), (), ())


async def test_a_server_without_tools_is_ready_with_none(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", capabilities={}, list_error=-32601)
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == []
        assert host.status()[0].state == "ready"


async def test_a_list_that_wants_a_login_says_so(machine: Machine) -> None:
    async with (
        serving("no-stream", "login") as server,
        hosting(machine, x={"url": server.url, "tools_ttl_ms": 1}) as host,
        host.events() as events,
    ):
        await host.connect("x")
        server.quirks |= {"token"}
        await ask_for_stale_tools(host)
        while host.status()[0].state != "auth_required":
            await anext(events)
        assert isinstance((await host.connect("x"))["x"], AuthRequired)
        server.quirks -= {"token"}
        assert await host.connect("x") == {}
        assert host.status()[0].state == "ready"
        assert len(server.seen("initialize")) == 1


async def test_a_list_that_finds_the_session_forgotten_leads_to_another(machine: Machine) -> None:
    async with (
        serving("no-stream") as server,
        hosting(machine, x={"url": server.url, "tools_ttl_ms": 1}) as host,
        host.events() as events,
    ):
        await host.connect("x")
        server.sessions.clear()
        await ask_for_stale_tools(host)
        while host.status()[0].state != "error":
            await anext(events)
        assert await host.connect("x") == {}
        assert host.status()[0].state == "ready"
        assert len(server.seen("initialize")) == 2


async def test_one_bad_definition_costs_no_other_tool(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["a", {"title": "nameless"}, {"name": 7}, "a", "b"])
    async with hosting(machine, x=server.entry()) as host:
        assert await names(host) == ["a", "b"]
        listing = host.listing("x")
        assert listing is not None
        assert [rejected.name for rejected in listing.rejected] == ["#2", "#3", "a"]


async def test_a_listing_and_a_call_do_not_wait_for_each_other(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", list_silence=True)
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        assert (await host.call("x", "echo")).text == "{}"
        heard: list[object] = []
        with anyio.fail_after(10):
            while not heard or not isinstance(heard[-1], McpToolCallEnd):
                heard.append(await anext(events))
        assert not any(isinstance(event, McpToolsChanged) for event in heard)
        assert host.status()[0].state == "ready"  # it answers calls


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize("padding", [0, 1_500_000])
async def test_half_a_character_costs_no_entry_of_a_list_of_any_size(
    machine: Machine, tmp_path: Path, padding: int
) -> None:
    answers: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "cut", "version": "1"},
        },
        "tools/list": {
            "tools": [
                {"name": "cut", "inputSchema": {"type": "object"}, "description": "\ud83d"},
                *({"name": f"t{number}", "description": "y" * (padding // 4)} for number in range(4)),
            ]
        },
    }
    (tmp_path / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    entry = {"command": sys.executable, "args": [canned_stdio.__file__, f"@{tmp_path}/answers.json"]}
    async with hosting(machine, x={**entry, "trust": "trusted"}) as host:
        assert await names(host) == ["cut", "t0", "t1", "t2", "t3"]
