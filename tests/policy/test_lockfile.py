"""The lock file: what it says, that it narrows, and how drift is told."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import LoadedServer
from fairlead.config.paths import LOCK_NAME
from fairlead.errors import ConfigUnreadable
from fairlead.policy.lockfile import (
    Drift,
    Lock,
    LockedServer,
    check_lock,
    drifts,
    lock_path,
    lock_server,
    lock_text,
    locks_of,
    package_of,
    read_lock,
    require_replaceable,
)
from fairlead.policy.quarantine import screen
from tests.conftest import Machine
from tests.policy.tools import SEARCH, changed, listing

DELETE: dict[str, Any] = {"name": "delete", "inputSchema": {"type": "object"}}
OTHER_DEFAULT = changed(SEARCH, "inputSchema", "properties", "fields", "default", to="title,id")
PROJECT = '{"servers": {"x": {"command": "npx", "args": ["-y", "pkg@1.2.3"], "allow_tools": ["search"]}}}'


def project_server(machine: Machine) -> LoadedServer:
    machine.write_project(PROJECT)
    return machine.load().servers["x"]


def locked(machine: Machine, *definitions: dict[str, Any], **rest: Any) -> LockedServer:
    return lock_server(
        project_server(machine),
        listing(*definitions, **rest),
        protocol="2025-11-25",
        reported="server 1",
    )


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["npx", "-y", "pkg@1.2.3"], "pkg 1.2.3"),
        (["npx", "@scope/server-files@0.6.2", "."], "@scope/server-files 0.6.2"),
        (["uvx", "mcp-server-time==2025.1.17"], "mcp-server-time 2025.1.17"),
        (["uvx", "server[extra]==1.0"], "server 1.0"),
        (["npx", "pkg@latest"], None),
        (["run", "someone@example.com"], None),
        (["run"], None),
    ],
)
def test_a_version_is_told_from_the_command_line(
    machine: Machine, words: list[str], package: str | None
) -> None:
    entry = {"command": words[0], "args": words[1:]}
    assert package_of(machine.load(overrides={"servers": {"x": entry}}).servers["x"]) == package


def test_a_lock_lies_beside_the_file_and_is_stable_text(machine: Machine) -> None:
    path = lock_path(project_server(machine))
    assert path is not None
    assert path == machine.project / LOCK_NAME
    lock = Lock(servers={"x": locked(machine, SEARCH, DELETE, instructions="kind")})
    text = lock_text(lock)
    path.write_text(text)
    assert read_lock(path) == lock
    again = Lock(servers={"x": locked(machine, DELETE, SEARCH, instructions="kind")})
    assert lock_text(again) == text
    assert '"package": "pkg 1.2.3"' in text
    assert text.endswith("}\n")


def test_a_server_that_no_file_describes_has_no_lock(machine: Machine) -> None:
    server = machine.load(overrides={"servers": {"x": {"command": "run"}}}).servers["x"]
    assert lock_path(server) is None
    assert locks_of([server]) == {}
    assert read_lock(machine.project / LOCK_NAME) is None


def test_a_file_that_is_no_lock_is_an_error_and_lets_nothing_through(machine: Machine) -> None:
    server = project_server(machine)
    path = machine.project / LOCK_NAME
    path.write_text('{"version": "x", "servers": {}}')
    with pytest.raises(ConfigUnreadable, match="not a valid lockfile"):
        read_lock(path)
    screened = screen(server, listing(SEARCH, instructions="kind"), None, locks_of([server])["x"])
    assert set(screened.quarantined) == {"search"}
    assert screened.listing.instructions is None


def test_a_server_that_is_not_in_the_lock_is_not_narrowed(machine: Machine) -> None:
    server = project_server(machine)
    (machine.project / LOCK_NAME).write_text(lock_text(Lock()))
    assert locks_of([server]) == {}


@pytest.mark.requirement("HARD-40")
def test_what_is_not_as_locked_is_held_back(machine: Machine) -> None:
    lock = locked(machine, SEARCH, DELETE, instructions="kind")
    assert not check_lock(lock, listing(SEARCH, DELETE, instructions="kind")).tools
    assert not check_lock(lock, listing()).tools
    other = listing(
        {**SEARCH, "title": "Other"}, {"name": "more", "inputSchema": {"type": "object"}}, instructions="rude"
    )
    verdicts = check_lock(lock, other)
    assert verdicts.tools == {"search": "changed", "more": "new"}
    assert verdicts.instructions_changed
    screened = screen(project_server(machine), other, None, lock)
    assert screened.quarantined == {
        "search": "it differs from fairlead.lock",
        "more": "it is not in fairlead.lock",
    }
    assert screened.listing.instructions is None
    (note,) = screened.listing.notes
    assert note.startswith("2 tools differ from fairlead.lock: run `fairlead lock --check --only x`")


def test_other_default_texts_than_the_locked_ones_are_left_out(machine: Machine) -> None:
    lock = locked(machine, SEARCH)
    screened = screen(project_server(machine), listing(OTHER_DEFAULT), None, lock)
    assert not screened.quarantined
    assert b"title,id" not in screened.listing.tools[0].definition


def test_a_lock_holds_trusted_servers_too(machine: Machine) -> None:
    machine.write_project(PROJECT.replace('"allow_tools"', '"trust": "trusted", "allow_tools"'))
    server = machine.load().servers["x"]
    lock = lock_server(server, listing(SEARCH), protocol="2025-11-25", reported=None)
    assert screen(server, listing({**SEARCH, "title": "Other"}), None, lock).quarantined


def test_drift_names_servers_tools_and_fields(machine: Machine) -> None:
    before = {"gone": locked(machine), "x": locked(machine, SEARCH, DELETE)}
    described = {**SEARCH, "description": "Other.", "annotations": {"readOnlyHint": False}}
    now = {
        "came": locked(machine),
        "x": LockedServer(
            protocol="2026-07-28",
            server="server 1",
            package="pkg 1.2.3",
            tools=locked(machine, described, {"name": "more"}).tools,
        ),
    }
    assert drifts(before, before) == []
    assert drifts(before, now) == [
        Drift(server_id="came", what="added"),
        Drift(server_id="gone", what="removed"),
        Drift(server_id="x", what="changed", fields=("protocol",), before="2025-11-25", now="2026-07-28"),
        Drift(server_id="x", what="removed", tool="delete"),
        Drift(server_id="x", what="added", tool="more"),
        Drift(server_id="x", what="changed", tool="search", fields=("annotations", "description")),
    ]


def test_other_default_texts_are_no_drift(machine: Machine) -> None:
    assert drifts({"x": locked(machine, SEARCH)}, {"x": locked(machine, OTHER_DEFAULT)}) == []


def test_a_lock_in_a_folder_of_its_own_is_found_there(machine: Machine) -> None:
    folder = machine.project / ".fairlead"
    folder.mkdir()
    Path(folder / "fairlead.json").write_text(PROJECT)
    assert lock_path(machine.load().servers["x"]) == folder / LOCK_NAME


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 3, "servers": {}}',
        '{"version": 99, "anything": [1, 2]}',
        '{"version": 99, "servers": []}',
        '{"version": 2, "servers": {}, "signature": "x"}',
        '{"version": 2, "servers": {"x": {"protocol": "1", "only": []}}}',
        '{"version": 2, "servers": {"x": {"protocol": "1", "format": 99}}}',
        '{"version": 2, "servers": {"x": {"protocol": "1", "tools": {"t": {"digest": "1", "new": 1}}}}}',
    ],
)
def test_a_lock_of_a_newer_release_is_refused_and_not_written_over(machine: Machine, text: str) -> None:
    path = machine.project / LOCK_NAME
    path.write_text(text)
    for refuse in (read_lock, require_replaceable):
        with pytest.raises(ConfigUnreadable, match="was written by a newer Fairlead") as caught:
            refuse(path)
        assert caught.value.hint == "update Fairlead"
    server = project_server(machine)
    assert "newer Fairlead" in str(locks_of([server])["x"])
    assert path.read_text() == text


FORMAT_0 = '{"version": 2, "servers": {"x": {"protocol": "1", "format": 0}}}'


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": "x"}', '{"version": 0}', FORMAT_0, "<<<<<<< HEAD"]
)
def test_a_damaged_lock_may_be_written_anew(machine: Machine, text: str) -> None:
    path = machine.project / LOCK_NAME
    path.write_text(text)
    require_replaceable(path)
    with pytest.raises(ConfigUnreadable, match="not a valid lockfile"):
        read_lock(path)
