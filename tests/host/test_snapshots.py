"""What servers offer is kept between runs, for the very entry it was asked of."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.paths import store_file
from fairlead.errors import UnknownTool
from fairlead.host.snapshots import NAMESPACE, snapshot_key
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting

ANNOTATED = {
    "name": "annotated",
    "inputSchema": {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}},
}


@pytest.mark.requirement("NEED-4")
async def test_a_new_host_knows_the_tools_without_starting_a_server(machine: Machine, tmp_path: Path) -> None:
    tool: dict[str, Any] = {
        "name": "find",
        "title": "Find",
        "description": "Finds.",
        "inputSchema": {"type": "object"},
        "x-own": [1, None],
    }
    server = ScriptedServer(tmp_path / "record", tools=["echo", tool], instructions="Be kind.")
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        before = host.listing("x")
    async with hosting(machine, x=server.entry()) as host:
        assert host.listing("x") == before
        assert before is not None
        assert before.instructions == "Be kind."
        assert before.tools[1].read() == {name: value for name, value in tool.items() if name != "x-own"}
        assert (before.tools[1].title, before.tools[1].description) == ("Find", "Finds.")
        [status] = host.status()
        assert (status.tools, status.version, status.stale) == (2, "2025-11-25", False)
    assert server.starts == 1


async def test_a_listing_is_kept_even_if_the_host_ends_right_after_it(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", more_tools=2_000)
    async with hosting(machine, x=server.entry()) as host:
        await host.list_now("x")
    async with hosting(machine, x=server.entry()) as host:
        assert host.status()[0].tools == 2_001


async def test_listings_are_kept_while_the_host_runs(machine: Machine, tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    entries = {name: ScriptedServer(tmp_path / name, tools=[name]).entry() for name in names}
    async with hosting(machine, **entries) as host:
        assert await host.connect(*names) == {}
        with open_database(store_file(machine.env)) as database:
            while len(database.scan(NAMESPACE)) < len(names):  # noqa: ASYNC110 - written a moment later
                await anyio.sleep(0.01)


async def test_the_listing_of_a_server_that_was_taken_out_at_once_is_kept(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        host.remove("x")
    async with hosting(machine, x=server.entry()) as host:
        assert host.listing("x") is not None


async def test_a_store_that_cannot_be_written_is_no_reason_to_fail(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        with contextlib.closing(sqlite3.connect(store_file(machine.env))) as connection:
            connection.execute("DROP TABLE entry")
        assert await host.connect("x") == {}
    assert "could not be saved" in caplog.text


async def test_an_entry_with_other_arguments_is_asked_anew(machine: Machine, tmp_path: Path) -> None:
    server, other = ScriptedServer(tmp_path / "record"), ScriptedServer(tmp_path / "record", tools=["other"])
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
    async with hosting(machine, x=other.entry()) as host:
        assert host.listing("x") is None
        assert [tool.key.tool for tool in await host.tools_of("x")] == ["other"]
    assert server.starts == 2


async def test_the_same_entry_under_another_name_is_asked_anew(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
    async with hosting(machine, y=server.entry()) as host:
        assert host.listing("y") is None


async def test_a_snapshot_older_than_allowed_is_shown_as_stale_and_still_used(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    entry = server.entry(tools_ttl_ms=1)
    async with hosting(machine, x=entry) as host:
        await host.connect("x")
    async with hosting(machine, x=entry) as host:
        assert host.status()[0].stale
        assert len(await host.tools_of("x")) == 1
    assert server.starts == 1


async def test_what_the_server_says_of_its_lists_counts_for_more_than_the_configuration(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", ttl=1)
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        listing = host.listing("x")
        assert listing is not None
        assert listing.ttl_ms == 1
        while not host.status()[0].stale:  # noqa: ASYNC110 - time passes without telling anybody
            await anyio.sleep(0.002)


async def test_a_lifetime_of_zero_leaves_it_to_the_configuration(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", ttl=0)
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        assert not host.status()[0].stale


async def test_a_stale_list_of_a_connected_server_is_asked_for_again(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(tools_ttl_ms=1)) as host:
        await host.connect("x")
        await host.call("x", "change_tools", {"tools": ["new"], "silently": True})
        while [tool.key.tool for tool in await host.tools_of("x")] != ["new"]:  # noqa: ASYNC110 - see below
            await anyio.sleep(0.01)  # it is asked again because somebody wants to know, not by itself


async def test_a_snapshot_nobody_can_read_is_as_good_as_none(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    definition = machine.load(overrides={"servers": {"x": server.entry()}}).servers["x"]
    with open_database(store_file(machine.env)) as database:
        database.put(NAMESPACE, snapshot_key(definition), b"{]", expect=ANY)
    async with hosting(machine, x=server.entry()) as host:
        assert host.listing("x") is None
        assert len(await host.tools_of("x")) == 1


async def test_a_tool_with_a_bad_header_annotation_is_rejected_alone(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(
        tmp_path / "record", probe="answer", version="2026-07-28", tools=[ANNOTATED, "echo", {"name": 5}]
    )
    for _ in range(2):  # the second time from the snapshot
        async with hosting(machine, x=server.entry()) as host:
            assert [tool.key.tool for tool in await host.tools_of("x")] == ["echo"]
            listing = host.listing("x")
            assert listing is not None
            assert {rejected.name for rejected in listing.rejected} >= {"annotated"}
            assert (await host.call("x", "echo")).text == "{}"
            with pytest.raises(UnknownTool):
                await host.call("x", "annotated")
    assert server.calls("annotated") == 0


async def test_hosts_beside_each_other_share_one_store(machine: Machine, tmp_path: Path) -> None:
    servers = {name: ScriptedServer(tmp_path / name, tools=[name]) for name in "ab"}

    async def connect(name: str) -> None:
        async with hosting(machine, **{name: servers[name].entry()}) as host:
            assert await host.connect(name) == {}

    async with anyio.create_task_group() as tasks:
        for name in servers:
            tasks.start_soon(connect, name)
    async with hosting(machine, **{name: server.entry() for name, server in servers.items()}) as host:
        known = {name: host.listing(name) for name in servers}
        assert {name: len(listing.tools) if listing else 0 for name, listing in known.items()} == {
            "a": 1,
            "b": 1,
        }


def test_the_key_of_a_snapshot_is_no_plain_text(machine: Machine) -> None:
    entry = {"command": "run", "env": {"KEY": "secret"}}
    definition = machine.load(overrides={"servers": {"x": entry}}).servers["x"]
    assert "secret" not in json.dumps(snapshot_key(definition))
