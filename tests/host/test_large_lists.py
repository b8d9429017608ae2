"""Very large lists hold up nothing: prepared off the loop, the earlier catalog served meanwhile."""

import contextlib
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.paths import store_file
from fairlead.host.host import Host
from fairlead.host.snapshots import NAMESPACE
from fairlead.policy import pins
from fairlead.testing import ScriptedServer, watch_loop
from tests.conftest import Machine
from tests.fixtures import listing_stdio
from tests.host.support import hosting

pytestmark = pytest.mark.slow

MANY = 10_000
ALL: dict[str, Any] = {"trust": "untrusted", "allow_tools": ["*"]}


async def settle(host: Host) -> int:
    with anyio.fail_after(60):
        return len((await host.tools.ready(seconds=60)).catalog)


@pytest.mark.requirement("HARD-66")
@pytest.mark.requirement("HARD-68")
@pytest.mark.parametrize("fields", [{"trust": "trusted"}, ALL], ids=["trusted", "pinned"])
async def test_ten_thousand_tools_hold_the_loop_at_no_step(
    machine: Machine, tmp_path: Path, fields: dict[str, Any]
) -> None:
    entry = ScriptedServer(tmp_path / "record", more_tools=MANY - 1).entry(**fields)
    async with hosting(machine, x=entry) as host:
        with watch_loop():
            assert not await host.connect("x")
            assert await settle(host) == MANY
            assert (await host.tools.search("more tools")).hits
            assert await host.tools.definitions()
            assert (await host.call("x", "echo")).text == "{}"
    async with hosting(machine, x=entry) as host:
        with watch_loop():
            assert await settle(host) == MANY


@pytest.mark.requirement("HARD-68")
async def test_a_small_server_is_offered_while_the_tools_of_a_large_one_are_prepared(
    machine: Machine, tmp_path: Path
) -> None:
    large = ScriptedServer(tmp_path / "large", more_tools=5_000).entry(trust="trusted")
    small = ScriptedServer(tmp_path / "small").entry(trust="trusted")
    async with hosting(machine, large=large, small=small) as host:
        await host.connect("small", "large")
        early = host.tools.catalog
        assert [tool.key.server_id for tool in early.tools] == ["small"]
        assert host.tools.catalog is early
        async with host.events() as events:
            assert await settle(host) == 5_002
            with anyio.fail_after(10):
                async for event in events:
                    if type(event).__name__ == "McpToolsChanged" and event.server_id == "large":  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
                        break
        assert host.tools.catalog is host.tools.catalog is not early
        host.remove("large")
        assert [tool.key.server_id for tool in host.tools.catalog.tools] == ["small"]


@pytest.mark.requirement("HARD-68")
async def test_more_tools_than_a_server_may_list_are_left_out_and_named(
    machine: Machine, tmp_path: Path
) -> None:
    entry = ScriptedServer(tmp_path / "record", more_tools=MANY + 50).entry(trust="trusted")
    async with hosting(machine, x=entry) as host:
        assert len(await host.tools_of("x")) == MANY
        notes = "\n".join(host.status()[0].notes)
        assert "`max_list_items` is 10000" in notes


@pytest.mark.requirement("HARD-68")
async def test_a_snapshot_that_is_too_large_is_not_read_and_the_server_is_listed_anew(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
    with contextlib.closing(sqlite3.connect(store_file(machine.env))) as store, store:
        store.execute("UPDATE entry SET value = zeroblob(70 * 1024 * 1024) WHERE namespace = ?", (NAMESPACE,))
    async with hosting(machine, x=server.entry()) as host:
        assert host.status()[0].tools is None
        assert [tool.key.tool for tool in await host.tools_of("x")] == ["echo"]


@pytest.mark.requirement("HARD-68")
async def test_pins_are_capped_in_bytes_and_tools_beyond_that_wait(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "MAX_PINS_BYTES", 10_000)
    entry = ScriptedServer(tmp_path / "record", more_tools=200).entry(**ALL)
    async with hosting(machine, x=entry) as host:
        await host.connect("x")
        offered = len((await host.tools.ready()).catalog)
        assert 5 < offered < 50
        assert (
            sum(why.absence == "quarantined" for why in host.tools.catalog.hidden.values()) == 201 - offered
        )
        assert any("new: run `fairlead review x`" in note for note in host.status()[0].notes)


@pytest.mark.requirement("HARD-68")
async def test_pins_that_are_too_large_are_not_read_and_nothing_is_offered(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(**ALL)) as host:
        await host.connect("x")
    with contextlib.closing(sqlite3.connect(store_file(machine.env))) as store, store:
        store.execute("UPDATE entry SET value = zeroblob(70 * 1024 * 1024) WHERE namespace = 'pins'")
    async with hosting(machine, x=server.entry(**ALL)) as host:
        await host.connect("x")
        assert len((await host.tools.ready()).catalog) == 0


@pytest.mark.requirement("HARD-68")
@pytest.mark.parametrize("behaviour", ["huge-pages", "tiny", "duplicates", "one-huge-page"])
@pytest.mark.parametrize(
    "method",
    ["tools/list", *(pytest.param(method, marks=pytest.mark.long) for method in [*listing_stdio.FIELDS][1:])],
)
async def test_hostile_lists_hold_the_loop_at_no_step(machine: Machine, method: str, behaviour: str) -> None:
    entry = {
        "command": sys.executable,
        "args": [listing_stdio.__file__, json.dumps({method: behaviour})],
        "trust": "trusted",
    }
    async with hosting(machine, x=entry) as host:
        with watch_loop():
            await host.connect("x")
            await settle(host)
            await host.tools.search("anything")
            await host.tools.definitions()
