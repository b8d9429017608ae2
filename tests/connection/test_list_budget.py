"""Lists of servers: capped in bytes and numbers over all pages and kinds, each standing alone."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from fairlead.connection import lists
from fairlead.connection.server_messages import MAX_INSTRUCTIONS
from fairlead.errors import ListFailed
from fairlead.host.host import Host
from fairlead.host.server_status import ServerStatus
from tests.conftest import Machine
from tests.fixtures import listing_stdio
from tests.host.support import hosting

MEBIBYTE = 1024 * 1024
OTHERS = [method for method in listing_stdio.FIELDS if method != "tools/list"]


def entry(behaviours: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": [listing_stdio.__file__, json.dumps(behaviours)],
        "trust": "trusted",
        "approval": "allow",
        **fields,
    }


def status_of(host: Host) -> ServerStatus:
    return host.status()[0]


async def tools_of(host: Host) -> list[str]:
    with anyio.fail_after(60):
        return [tool.key.tool for tool in await host.tools_of("x")]


async def until_noted(host: Host, text: str) -> str:
    with anyio.fail_after(60):
        while not (found := [note for note in status_of(host).notes if text in note]):
            await checkpoint()
    return found[0]


def stored_bytes(machine: Machine) -> int:
    return sum(file.stat().st_size for file in machine.home.rglob("*") if file.is_file())


@pytest.mark.requirement("HARD-68")
async def test_a_hundred_huge_pages_cost_no_more_than_the_budget(machine: Machine) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with hosting(machine, x=entry({"tools/list": "huge-pages"})) as host:
        tools = await tools_of(host)
        assert tools[0] == "echo"
        assert 10 < len(tools) < 30
        assert "`max_list_bytes` is 16777216" in status_of(host).notes[0]
        assert (await host.call("x", "echo")).text == "echoed"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 200 * MEBIBYTE
    assert stored_bytes(machine) < 64 * MEBIBYTE


@pytest.mark.requirement("HARD-68")
async def test_all_lists_share_one_budget_and_tools_come_first(machine: Machine) -> None:
    behaviours = dict.fromkeys(listing_stdio.FIELDS, "one-huge-page")
    async with hosting(machine, x=entry(behaviours, max_list_bytes=9 * MEBIBYTE)) as host:
        assert len(await tools_of(host)) == 26
        listing = host.listing("x")
        assert listing is not None
        rest = (*listing.resources, *listing.templates, *listing.prompts)
        assert sum(map(len, rest)) < 2 * MEBIBYTE
        assert len(status_of(host).notes) == 3


@pytest.mark.requirement("HARD-68")
async def test_one_definition_that_is_too_large_is_left_out_and_named(machine: Machine) -> None:
    async with hosting(machine, x=entry({"tools/list": "one-large", "prompts/list": "one-large"})) as host:
        assert await tools_of(host) == ["echo"]
        listing = host.listing("x")
        assert listing is not None
        assert [(tool.name, "larger than" in tool.reason) for tool in listing.rejected] == [("n0", True)]
        assert len(listing.prompts) == 1
        assert "`n0`" in await until_noted(host, "prompts/list")


@pytest.mark.requirement("HARD-68")
@pytest.mark.parametrize(
    ("behaviour", "count"),
    [("tiny", 10_000), ("duplicates", 1), ("empty-objects", 1), ("dense-later", 1)],
)
async def test_very_many_entries_are_listed_up_to_the_limit(
    machine: Machine, behaviour: str, count: int
) -> None:
    async with hosting(machine, x=entry({"tools/list": behaviour})) as host:
        assert len(await tools_of(host)) == count
        assert (await host.call("x", "echo")).text == "echoed"


@pytest.mark.requirement("HARD-68")
@pytest.mark.parametrize("behaviour", ["dense", "empty-pages", "many-pages", "not-a-list"])
async def test_a_list_of_tools_that_cannot_be_read_to_its_end_is_an_error(
    machine: Machine, behaviour: str
) -> None:
    async with hosting(machine, x=entry({"tools/list": behaviour})) as host:
        with anyio.fail_after(60):
            assert isinstance((await host.connect("x"))["x"], ListFailed)


@pytest.mark.requirement("HARD-68")
async def test_instructions_are_cut_to_a_limit(machine: Machine, tmp_path: Path) -> None:
    async with hosting(machine, x=entry({"instructions": "a" * 100_000})) as host:
        await tools_of(host)
        listing = host.listing("x")
        assert listing is not None
        assert listing.instructions is not None
        assert len(listing.instructions) == MAX_INSTRUCTIONS


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize(
    "behaviour",
    [
        "error",
        "null",
        "no-list",
        "null-list",
        "not-a-list",
        "same-cursor",
        "empty-pages",
        "dense",
        "huge-pages",
    ],
)
async def test_a_list_that_fails_costs_nothing_but_itself(
    machine: Machine, method: str, behaviour: str
) -> None:
    async with hosting(machine, x=entry({method: behaviour})) as host:
        assert await tools_of(host) == ["echo"]
        assert status_of(host).state == "ready"
        assert (await host.call("x", "echo")).text == "echoed"
        await until_noted(host, method)
        with anyio.fail_after(30):
            while any("not been answered" in note for note in status_of(host).notes):
                await checkpoint()
        listing = host.listing("x")
        assert listing is not None
        sound = {
            "resources/list": listing.resources,
            "resources/templates/list": listing.templates,
            "prompts/list": listing.prompts,
        }
        assert all(len(entries) == 1 for other, entries in sound.items() if other != method)


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("method", OTHERS)
async def test_a_list_that_hangs_delays_no_other(machine: Machine, method: str) -> None:
    async with hosting(machine, x=entry({method: "hang"})) as host:
        with anyio.fail_after(20):
            assert await tools_of(host) == ["echo"]
            assert status_of(host).state == "ready"
            assert "has not been answered yet" in await until_noted(host, method)
            assert (await host.call("x", "echo")).text == "echoed"


@pytest.mark.requirement("HARD-86")
async def test_a_list_that_hung_is_named_when_its_time_is_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_SECONDS", 2.0)
    async with hosting(machine, x=entry({"resources/list": "hang"})) as host:
        assert await tools_of(host) == ["echo"]
        await until_noted(host, "resources/list took longer than 2 s")
        assert status_of(host).state == "ready"


@pytest.mark.requirement("HARD-86")
async def test_a_storm_of_changes_does_not_keep_a_list_from_being_finished(machine: Machine) -> None:
    behaviours = {"tools/list": "one-huge-page", "storm": "yes", "prompts/list": "hang"}
    async with hosting(machine, x=entry(behaviours)) as host:
        assert len(await tools_of(host)) == 26
        assert (await host.call("x", "echo")).text == "echoed"


BROKEN = ["error", "null", "no-list", "null-list", "not-a-list", "dense", "hang"]


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("behaviour", BROKEN)
async def test_tools_that_cannot_be_listed_hide_no_resources_and_no_prompts(
    machine: Machine, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_SECONDS", 6.0)
    async with hosting(machine, x=entry({"tools/list": behaviour})) as host:
        with pytest.raises(ListFailed), anyio.fail_after(30):
            await host.tools_of("x")
        assert status_of(host).state == "error"
        assert status_of(host).tools is None
        with anyio.fail_after(30):
            offered = await host.offers("x")
        assert [len(part) for part in (offered.resources, offered.templates, offered.prompts)] == [1, 1, 1]
        assert await until_noted(host, "tools/list")
        with pytest.raises(ListFailed), anyio.fail_after(30):
            await host.list_now("x")


@pytest.mark.requirement("HARD-86")
async def test_tools_whose_list_hangs_delay_no_resources_and_no_prompts(machine: Machine) -> None:
    async with hosting(machine, x=entry({"tools/list": "hang"})) as host, anyio.create_task_group() as tasks:
        tasks.start_soon(host.connect, "x")
        with anyio.fail_after(15):
            await until_noted(host, "tools/list has not been answered yet")
            offered = await host.offers("x")
        assert [len(part) for part in (offered.resources, offered.templates, offered.prompts)] == [1, 1, 1]
        assert status_of(host).tools is None
        assert (await host.call("x", "echo")).text == "echoed"
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("method", listing_stdio.FIELDS)
async def test_a_later_page_that_fails_costs_only_what_follows(machine: Machine, method: str) -> None:
    async with hosting(machine, x=entry({method: "error-later"})) as host:
        assert await tools_of(host) == ["echo"]
        assert "what follows the first 1 entries is left out" in await until_noted(host, "database is down")
        offered = await host.offers("x")
        assert [len(part) for part in (offered.resources, offered.templates, offered.prompts)] == [1, 1, 1]
        assert (await host.call("x", "echo")).text == "echoed"


@pytest.mark.requirement("HARD-86")
async def test_a_later_page_that_fails_does_not_hide_tools_that_were_known(
    machine: Machine, tmp_path: Path
) -> None:
    program = tmp_path / "behaviours.json"
    program.write_text(json.dumps({"tools/list": "two-pages"}))
    server = {**entry({}), "args": [listing_stdio.__file__, f"@{program}"]}
    async with hosting(machine, x=server) as host:
        assert await tools_of(host) == ["echo", "n1"]
    program.write_text(json.dumps({"tools/list": "error-later"}))
    async with hosting(machine, x=server) as host:
        with anyio.fail_after(30):
            assert isinstance((await host.connect("x"))["x"], ListFailed)
        assert await tools_of(host) == ["echo", "n1"]


@pytest.mark.requirement("HARD-86")
@pytest.mark.parametrize("behaviour", ["error", "null", "hang"])
async def test_tools_that_were_known_stay_known_when_they_cannot_be_listed(
    machine: Machine, behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_SECONDS", 2.0)
    program = tmp_path / "behaviours.json"
    program.write_text("{}")
    server = {**entry({}), "args": [listing_stdio.__file__, f"@{program}"]}
    async with hosting(machine, x=server) as host:
        assert await tools_of(host) == ["echo"]
    program.write_text(json.dumps({"tools/list": behaviour}))
    async with hosting(machine, x=server) as host:
        with anyio.fail_after(30):
            assert await host.connect("x")
        assert await tools_of(host) == ["echo"]
        assert (await host.call("x", "echo")).text == "echoed"
    async with hosting(machine, x=server) as host:
        assert host.status()[0].tools == 1  # what was saved is the last sound listing
