"""`fairlead resources` and `fairlead read`, with a real server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Machine, Outcome
from tests.host.asking import HANDSHAKE, AskingServer

Fairlead = Callable[..., Outcome]

pytestmark = pytest.mark.requirement("NEED-36")


def add(fairlead: Fairlead, machine: Machine, server_id: str = "s", **script: Any) -> AskingServer:
    """Add an asking server the way a person adds one."""
    server = AskingServer(machine.home / f"{server_id}.record", **script)
    assert fairlead("add", server_id, "--", *server.argv).status == 0
    return server


def test_resources_are_shown_and_known_ones_at_once(fairlead: Fairlead, machine: Machine) -> None:
    nasty = {"uri": "test://a", "name": "a", "description": "one\n\x1b[31m two", "mimeType": "text/plain"}
    server = add(fairlead, machine, resources=[nasty])
    outcome = fairlead("resources")
    assert outcome.status == 0
    assert [line.split(None, 3) for line in outcome.out.splitlines()] == [
        ["SERVER", "URI", "TYPE", "DESCRIPTION"],
        ["s", "test://a", "text/plain", "one two"],
        ["s", "test://{name}", "-", "any"],
    ]
    assert "--arg" in outcome.err
    assert "test://a" in fairlead("resources", "s").out
    assert server.starts == 1
    assert fairlead("resources", "s", "--refresh").status == 0
    assert server.starts == 2
    found = json.loads(fairlead("resources", "--json").out)
    assert [item["uri"] for item in found["resources"]] == ["test://a"]
    assert [item["uriTemplate"] for item in found["templates"]] == ["test://{name}"]


def test_a_server_that_declares_no_resources_may_have_some(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, capabilities={"tools": {}})
    assert "no resources known" in fairlead("resources").err
    assert "test://a" in fairlead("resources", "s").out


def test_one_server_that_is_down_costs_only_its_own(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine)
    fairlead("add", "down", "--", "/nowhere/at-all")
    outcome = fairlead("resources")
    assert outcome.status == 4
    assert "test://a" in outcome.out
    assert "/nowhere/at-all" in outcome.err
    assert fairlead("resources", "down").status == 4


def test_a_project_server_nobody_approved_is_not_started(fairlead: Fairlead, machine: Machine) -> None:
    server = AskingServer(machine.home / "record")
    machine.write_project(json.dumps({"servers": {"s": server.entry()}}))
    assert fairlead("resources").status == 4
    outcome = fairlead("read", "s", "test://a")
    assert outcome.status == 3
    assert "fairlead approve s" in outcome.err
    assert server.starts == 0


def test_a_resource_is_shown_without_what_is_hidden_and_saved_as_it_is(
    fairlead: Fairlead, machine: Machine
) -> None:
    add(fairlead, machine, version=HANDSHAKE, texts={"test://a": "a\x1b[31m\nlast line"})
    outcome = fairlead("read", "s", "test://a")
    assert (outcome.status, outcome.out) == (0, "a\nlast line")
    saved = machine.home / "saved"
    assert fairlead("read", "s", "test://a", "-o", str(saved)).status == 0
    assert saved.read_bytes() == b"a\x1b[31m\nlast line"  # a file gets every byte
    whole = json.loads(fairlead("read", "s", "test://a", "--json").out)
    assert whole["contents"][0]["mimeType"] == "text/plain"


def test_a_template_is_filled_in(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine)
    assert fairlead("read", "s", "test://{name}", "--arg", "name=a b").out == "test://a%20b"
    for arguments in (("--arg", "other=1"), ("--arg", "name"), ("--arg", "=1")):
        outcome = fairlead("read", "s", "test://{name}", *arguments)
        assert outcome.status == 2
    assert fairlead("read", "s", "test://{na me}", "--arg", "na me=1").status == 2


def test_a_resource_is_written_to_a_file(fairlead: Fairlead, machine: Machine, tmp_path: Path) -> None:
    add(fairlead, machine)
    file = tmp_path / "out"
    outcome = fairlead("read", "s", "test://é", "-o", str(file))
    assert (outcome.status, outcome.out) == (0, "")
    assert file.read_text(encoding="utf-8") == "test://é"
    assert "9 bytes" in outcome.err
    assert fairlead("read", "s", "test://a", "-o", "-").out == "test://a"
    nowhere = fairlead("read", "s", "test://a", "-o", str(tmp_path / "no" / "such" / "folder"))
    assert nowhere.status == 2
    assert "No such file" in nowhere.err


def test_what_cannot_be_read_is_said(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, refused={"resources/read": -32002})
    outcome = fairlead("read", "s", "test://nothing")
    assert outcome.status == 1
    assert "refused" in outcome.err
    assert fairlead("read", "nobody", "test://a").status == 1
