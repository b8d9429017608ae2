"""Without a store that can be trusted, nothing that needs a pin is offered or can be called."""

import os
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from fairlead.config.paths import store_file
from fairlead.errors import CallDenied, UnknownTool
from fairlead.policy.pins import NAMESPACE
from tests.conftest import Machine
from tests.host.support import SECONDS, hosting
from tests.host.test_quarantine import ECHO, ChangingServer, held_back, offered

posix = pytest.mark.skipif(os.name != "posix", reason="there are no such permissions")


@pytest.fixture
def server(tmp_path: Path) -> ChangingServer:
    return ChangingServer(tmp_path, ECHO, "received")


async def used(machine: Machine, server: ChangingServer) -> Path:
    """Use a server once, so that its tools are pinned. Returns the store."""
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        assert (await host.call("x", "echo", {"what": "a"})).text
    return store_file(machine.env)


def emptied(path: Path) -> None:
    path.write_bytes(b"")
    path.with_name(path.name + "-wal").unlink(missing_ok=True)


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database at all " * 500)


def half_overwritten(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    path.write_bytes(content)


def in_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def linked(path: Path) -> None:
    other = path.with_name("elsewhere.db")
    path.rename(other)
    path.symlink_to(other)


def in_an_open_folder(path: Path) -> None:
    path.parent.chmod(0o777)


def in_a_folder_of_a_group(path: Path) -> None:
    path.parent.chmod(0o770)


def below_an_open_folder(path: Path) -> None:
    path.parent.parent.chmod(0o777)


def far_below_an_open_folder(path: Path) -> None:
    path.parent.parent.parent.chmod(0o777)


def owned_by_another(path: Path) -> None:
    os.chown(path, 12345, -1)


def in_a_folder_of_another(path: Path) -> None:
    os.chown(path.parent, 12345, -1)


def below_a_folder_of_another(path: Path) -> None:
    os.chown(path.parent.parent, 12345, -1)


def executed(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def without_its_table(path: Path) -> None:
    executed(path, "ALTER TABLE entry RENAME TO gone")


def of_a_newer_release(path: Path) -> None:
    executed(path, "PRAGMA user_version = 99")


def with_damaged_pins(path: Path) -> None:
    executed(path, f"UPDATE entry SET value = x'7b5d' WHERE namespace = '{NAMESPACE}'")


def with_cut_pins(path: Path) -> None:
    cut = "substr(value, 1, length(value) / 2)"
    executed(path, f"UPDATE entry SET value = CAST({cut} AS BLOB) WHERE namespace = '{NAMESPACE}'")


def with_pins_of_a_newer_release(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        (value,) = connection.execute("SELECT value FROM entry WHERE namespace = ?", (NAMESPACE,)).fetchone()
        pins: dict[str, Any] = msgspec.json.decode(value)
        for pin in pins["tools"].values():
            pin["format"] = 99
        connection.execute(
            "UPDATE entry SET value = ? WHERE namespace = ?", (msgspec.json.encode(pins), NAMESPACE)
        )
    connection.close()


DAMAGE: list[Callable[[Path], None]] = [
    emptied,
    overwritten,
    half_overwritten,
    in_a_folder,
    linked,
    in_an_open_folder,
    in_a_folder_of_a_group,
    below_an_open_folder,
    far_below_an_open_folder,
    without_its_table,
    of_a_newer_release,
    with_damaged_pins,
    with_cut_pins,
    with_pins_of_a_newer_release,
]
if os.name == "posix" and os.geteuid() == 0:
    DAMAGE.extend([owned_by_another, in_a_folder_of_another, below_a_folder_of_another])


@posix
@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_a_store_that_cannot_be_trusted_lets_nothing_through(
    machine: Machine, server: ChangingServer, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.2)
    path = await used(machine, server)
    damage(path)
    servers = {"x": server.entry(), "t": server.entry(trust="trusted")}
    async with hosting(machine, **servers) as host:
        await host.connect("x", "t")
        with pytest.raises(CallDenied, match="pins cannot be trusted") as caught:
            await host.call("x", "echo", {"what": "a"})
        assert caught.value.hint
        with pytest.raises(CallDenied):
            await host.call("x", "echo", {"what": "a"}, confirmed=True)
        with pytest.raises((CallDenied, UnknownTool)):
            await host.call("x", "never_listed")
        with pytest.raises(CallDenied):
            await host.tasks.begin("x", "echo", {"what": "a"})
        found = {tool.key.server_id for tool in host.catalog(host.tools.selection).tools}
        assert found == {"t"}
        assert (await host.call("t", "echo", {"what": "a"})).text
        notes = {status.server_id: status.notes for status in host.status()}
        assert any("pins cannot be trusted" in note for note in notes["x"])
        assert {hit.key.server_id for hit in host.catalog(host.tools.selection).find("echo")} == {"t"}


@posix
@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("above", [0, 1, 2])
async def test_the_hint_of_an_open_folder_mends_it_while_the_host_runs(
    machine: Machine, server: ChangingServer, above: int
) -> None:
    path = await used(machine, server)
    with anyio.fail_after(SECONDS):
        async with hosting(machine, x=server.entry()) as host:
            await host.connect("x")
            path.parents[above].chmod(0o777)
            await until(lambda: "echo" in held_back(host))
            with pytest.raises(CallDenied, match="other users can write") as caught:
                await host.call("x", "echo", {"what": "a"})
            hint = caught.value.hint or ""
            assert hint.startswith("run `")
            await anyio.run_process(shlex.split(hint.split("`")[1]))
            await until(lambda: "echo" in offered(host))
            assert (await host.call("x", "echo", {"what": "a"})).text


@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_that_is_deleted_or_replaced_while_the_host_runs_counts_no_more(
    machine: Machine, server: ChangingServer, *, replaced: bool
) -> None:
    path = await used(machine, server)
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        assert "echo" in offered(host)
        path.unlink()
        if replaced:
            path.write_bytes(b"another file")
            path.chmod(0o600)
        await until(lambda: "echo" in held_back(host))
        with pytest.raises(CallDenied, match="pins cannot be trusted"):
            await host.call("x", "echo", {"what": "a"})


@pytest.mark.requirement("HARD-83")
async def test_pins_that_cannot_be_saved_hold_their_tools_back(
    machine: Machine, server: ChangingServer
) -> None:
    path = await used(machine, server)
    executed(
        path,
        f"DELETE FROM entry WHERE namespace = '{NAMESPACE}'",
        f"CREATE TRIGGER no_pins BEFORE INSERT ON entry WHEN NEW.namespace = '{NAMESPACE}'"
        " BEGIN SELECT RAISE(FAIL, 'no more pins'); END",
    )
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        await until(lambda: "echo" in held_back(host))
        executed(path, "DROP TRIGGER no_pins")
        await until(lambda: "echo" in offered(host))


@pytest.mark.requirement("HARD-83")
async def test_damaged_pins_are_not_replaced_by_a_first_use(machine: Machine, server: ChangingServer) -> None:
    path = await used(machine, server)
    with_damaged_pins(path)
    for _ in range(2):
        async with hosting(machine, x=server.entry()) as host:
            await host.connect("x")
            assert "echo" in held_back(host)
            with pytest.raises(CallDenied) as caught:
                await host.call("x", "echo", {"what": "a"})
            assert "fairlead review x" in (caught.value.hint or "")


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, which the store's own thread finds out."""
    with anyio.fail_after(SECONDS):
        while not holds():  # noqa: ASYNC110 - there is no event for what happens to a file
            await anyio.sleep(0.02)
