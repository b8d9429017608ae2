"""Nothing of a project file is started or contacted before the user approved that very entry."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.paths import store_file
from fairlead.errors import ConsentRequired, FairleadError
from fairlead.host.host import Host
from fairlead.policy.consent import NAMESPACE, record_consent
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures.hostile_http import serving
from tests.host.support import SECONDS


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
                lambda: host.call(server_id, "echo", confirmed=True),
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
            await host.call("x", "echo", confirmed=True)
            write_project(machine, x=server.entry(env={"EVIL": "1"}))
            await host.reload(machine.load())
            with pytest.raises(ConsentRequired):
                await host.call("x", "echo", confirmed=True)
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


# What was approved is what is started.


SERVER = """#!/bin/sh
echo "$0 $PWD" >> {record}
exec {python} -I -S {program} '{script}'
"""
ENTRY: dict[str, Any] = {"command": "./run", "trust": "trusted", "approval": "allow"}


def write_server(folder: Path, record: Path, **script: Any) -> None:
    """Put a server into a folder that notes how it was started."""
    server = ScriptedServer(record.with_suffix(".calls"), **script)
    *_, program, said = server.argv
    text = SERVER.format(record=record, python=sys.executable, program=program, script=said)
    folder.mkdir(exist_ok=True)
    (folder / "run").write_text(text)
    (folder / "run").chmod(0o755)


@pytest.mark.requirement("HARD-72")
async def test_a_clone_whose_file_links_to_an_approved_one_runs_nothing_of_its_own(
    machine: Machine, tmp_path: Path
) -> None:
    write_server(machine.project, tmp_path / "approved")
    write_project(machine, x=ENTRY)
    approve(machine, "x")
    clone = tmp_path / "clone"
    write_server(clone, tmp_path / "evil")
    (clone / "fairlead.json").symlink_to(machine.project_file)
    stranger = Machine(home=machine.home, project=clone, env=machine.env)
    errors = await use_in_every_way(stranger, "x")
    assert {type(error) for error in errors} == {ConsentRequired}
    assert not (tmp_path / "evil").exists()
    assert await use_in_every_way(machine, "x") == []
    assert (tmp_path / "approved").read_text() == f"{machine.project}/run {machine.project}\n"


@pytest.mark.requirement("HARD-72")
async def test_a_program_that_changes_while_a_host_runs_is_not_started_again(
    machine: Machine, tmp_path: Path
) -> None:
    write_server(machine.project, tmp_path / "approved")
    write_project(machine, x=ENTRY)
    approve(machine, "x")
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            await host.call("x", "echo")
            await host.close("x")
            write_server(machine.project, tmp_path / "evil")
            with pytest.raises(ConsentRequired) as refused:
                await host.call("x", "echo")
            assert refused.value.hint == "run `fairlead approve x`"
            assert not (tmp_path / "evil").exists()
            assert host.tools.catalog.tools == (), "what is not approved is not offered"
            approve(machine, "x")
            await host.call("x", "echo")
    assert (tmp_path / "evil").exists(), "it was approved by then"


@pytest.mark.requirement("HARD-72")
async def test_a_folder_that_becomes_a_link_is_not_started_in(machine: Machine, tmp_path: Path) -> None:
    write_server(machine.project / "sub", tmp_path / "approved")
    write_project(machine, x=ENTRY | {"cwd": "sub"})
    approve(machine, "x")
    assert await use_in_every_way(machine, "x") == []
    write_server(tmp_path / "other", tmp_path / "evil")
    (machine.project / "sub").rename(machine.project / "old")
    (machine.project / "sub").symlink_to(tmp_path / "other")
    assert {type(error) for error in await use_in_every_way(machine, "x")} == {ConsentRequired}
    assert not (tmp_path / "evil").exists()


@pytest.mark.requirement("HARD-72")
async def test_what_an_earlier_version_recorded_is_not_enough_and_the_reason_is_said(
    machine: Machine, tmp_path: Path
) -> None:
    write_server(machine.project, tmp_path / "started")
    write_project(machine, x=ENTRY)
    key = machine.load().servers["x"].consent
    assert key is not None
    store_file(machine.env).parent.mkdir(parents=True)
    with open_database(store_file(machine.env)) as database:
        database.put(NAMESPACE, key.earlier, b"{}", expect=ANY)
    errors = await use_in_every_way(machine, "x")
    assert {type(error) for error in errors} == {ConsentRequired}
    assert "a version of Fairlead that did not look at what an entry runs" in str(errors[0])
    assert not (tmp_path / "started").exists()


@pytest.mark.requirement("HARD-72")
async def test_a_headers_program_that_changes_is_not_run_again(machine: Machine, tmp_path: Path) -> None:
    helper = machine.project / "helper"
    helper.write_text(f"#!/bin/sh\necho a >> {tmp_path}/ran\necho 'X-Key: 1'\n")
    helper.chmod(0o755)
    async with serving() as server:
        write_project(machine, x={"url": server.url, "headers_helper": ["./helper"]})
        approve(machine, "x")
        with anyio.fail_after(SECONDS):
            async with Host.open(env=machine.env, cwd=machine.project) as host:
                await host.connect("x")
                assert set((tmp_path / "ran").read_text()) == {"a", "\n"}, "found from the project's folder"
                helper.write_text(f"#!/bin/sh\necho evil >> {tmp_path}/ran\necho 'X-Key: 1'\n")
                await host.close("x")
                failures = await host.connect("x")
    assert isinstance(failures["x"], ConsentRequired)
    assert "evil" not in (tmp_path / "ran").read_text()
