"""Nothing of a project file is started or contacted before the user approved that very entry."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.paths import store_file
from fairlead.errors import ConsentRequired, FairleadError
from fairlead.host.host import Host
from fairlead.policy.consent import record_consent
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS
from tests.servers.hostile_http import serving


def approve(machine: Machine, server_id: str) -> None:
    key = machine.load().servers[server_id].consent
    assert key is not None
    record_consent(store_file(machine.env), [key])


def write_project(machine: Machine, **servers: dict[str, Any]) -> None:
    machine.write_project(json.dumps({"servers": servers}))


async def use_in_every_way(machine: Machine, server_id: str) -> list[FairleadError]:
    """Open a host and do whatever could start a server; return what came of it."""
    errors: list[FairleadError] = []
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            errors += (await host.connect_all()).values()
            errors += (await host.connect(server_id)).values()
            for use in (
                lambda: host.call(server_id, "echo", reviewed=True),
                lambda: host.tools_of(server_id),
                lambda: host.require([server_id]),
            ):
                try:
                    await use()
                except FairleadError as exc:
                    errors.append(exc)
    return errors


@pytest.mark.requirement("HARD-1", "NEED-24")
async def test_a_cloned_repository_starts_no_process(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry(lazy=False))
    errors = await use_in_every_way(machine, "x")
    assert [type(error) for error in errors] == [ConsentRequired] * 5
    assert errors[0].hint == "run `fairlead approve x`"
    assert server.starts == 0


@pytest.mark.requirement("HARD-1", "NEED-24")
async def test_a_cloned_repository_contacts_no_url(machine: Machine) -> None:
    async with serving() as server:
        write_project(
            machine, x={"url": server.url, "lazy": False}, y={"url": server.url, "transport": "sse"}
        )
        assert {type(error) for error in await use_in_every_way(machine, "x")} == {ConsentRequired}
        assert {type(error) for error in await use_in_every_way(machine, "y")} == {ConsentRequired}
        assert server.connections == 0


@pytest.mark.requirement("HARD-1")
async def test_a_repository_cannot_force_its_server_by_making_it_required(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry(required=True))
    with pytest.raises(ConsentRequired):
        async with Host.open(env=machine.env, cwd=machine.project):
            pass
    assert server.starts == 0


@pytest.mark.requirement("HARD-1", "NEED-24")
async def test_an_approved_server_starts(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry())
    approve(machine, "x")
    assert await use_in_every_way(machine, "x") == []
    assert server.starts == 1


@pytest.mark.requirement("HARD-2", "NEED-24")
async def test_an_approval_does_not_outlive_a_change_of_the_arguments(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry())
    approve(machine, "x")
    changed = ScriptedServer(tmp_path / "record", stderr="evil")
    write_project(machine, x=changed.entry())
    errors = await use_in_every_way(machine, "x")
    assert {type(error) for error in errors} == {ConsentRequired}
    assert server.starts == 0


@pytest.mark.requirement("HARD-2")
async def test_a_running_host_asks_again_when_a_reload_brings_other_arguments(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry())
    approve(machine, "x")
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            await host.call("x", "echo", reviewed=True)
            write_project(machine, x=server.entry(env={"EVIL": "1"}))
            await host.reload(machine.load())
            with pytest.raises(ConsentRequired):
                await host.call("x", "echo", reviewed=True)
    assert server.starts == 1


@pytest.mark.requirement("HARD-3")
async def test_a_project_that_redefines_a_users_server_is_not_started_in_its_place(
    machine: Machine, tmp_path: Path
) -> None:
    own, foreign = ScriptedServer(tmp_path / "own"), ScriptedServer(tmp_path / "foreign")
    machine.write_user(json.dumps({"servers": {"x": own.entry()}}))
    write_project(machine, x=foreign.entry())
    errors = await use_in_every_way(machine, "x")
    assert {type(error) for error in errors} == {ConsentRequired}
    assert (own.starts, foreign.starts) == (0, 0)


async def test_without_a_store_no_project_server_counts_as_approved(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    write_project(machine, x=server.entry())
    store_file(machine.env).mkdir(parents=True)  # a folder is no database
    errors = await use_in_every_way(machine, "x")
    assert {type(error) for error in errors} == {ConsentRequired}
    assert server.starts == 0
