"""Which file an edit of a server goes to: one rule for every surface, and `--scope` on each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError, UnknownServer
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.web.support import dashboard_of
from tests.web.test_pages import review_form

Fairlead = Callable[..., Outcome]
DENIED = {"deny_tools": ["echo"]}


@pytest.fixture
def server(machine: Machine, tmp_path: Path) -> ScriptedServer:
    """A server of the user's own, in a project with a file of its own."""
    server = ScriptedServer(tmp_path / "record", tools=["echo", "delete"])
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    machine.write_project('{"servers": {}}')
    return server


def entry_in(file: Path, server_id: str = "x") -> dict[str, Any] | None:
    return json.loads(file.read_text())["servers"].get(server_id)


@pytest.mark.usefixtures("server")
def test_the_command_line_writes_the_file_of_the_scope(machine: Machine, fairlead: Fairlead) -> None:
    before = machine.user_file.read_text()
    reviewed = fairlead("review", "x", "--deny", "echo", "--scope", "project")
    assert reviewed.status == 0, reviewed.err
    assert "denied 1 tool of `x` in fairlead.json" in reviewed.err
    assert entry_in(machine.project_file) == DENIED
    assert fairlead("disable", "x", "--scope", "project").status == 0
    assert entry_in(machine.project_file) == {**DENIED, "enabled": False}
    assert machine.user_file.read_text() == before


@pytest.mark.usefixtures("server")
async def test_the_console_writes_the_file_of_the_scope(machine: Machine) -> None:
    before = machine.user_file.read_text()
    async with session_on(machine) as console:
        await console.does("/mcp review x --scope=project --deny echo")
        assert entry_in(machine.project_file) == DENIED
        said = await console.does("/mcp disable x --scope project")
        assert "`x` is disabled, in fairlead.json" in said
        with pytest.raises(ConfigError, match="no scope `elsewhere`"):
            await console.does("/mcp enable x --scope elsewhere")
        said = await console.does("/mcp enable --scope project x")
        assert "`x` is enabled, in fairlead.json" in said
    assert entry_in(machine.project_file) == {**DENIED, "enabled": True}
    assert machine.user_file.read_text() == before


@pytest.mark.usefixtures("server")
async def test_the_dashboard_writes_the_file_of_the_scope(machine: Machine) -> None:
    before = machine.user_file.read_text()
    async with dashboard_of(machine) as board, board.visited() as client:
        await board.host.connect("x")
        page = await client.sees("/servers/x/review", "echo")
        assert f"in {machine.project_file} (project)" in page.text
        form = await review_form(client, "echo")
        sent = await client.send("/", "/servers/x/review", verdict="deny", scope="project", **form)
        assert sent.status == 303, sent.text
        assert entry_in(machine.project_file) == DENIED
        page = (await client.get("/servers/x")).text
        assert f"in {machine.user_file}" in page
        assert f"in {machine.project_file} (project)" in page
        assert (await client.send("/", "/servers/x", do="disable", scope="project")).status == 303
        assert (await client.send("/", "/servers/x", do="enable", scope="elsewhere")).status == 409
    assert entry_in(machine.project_file) == {**DENIED, "enabled": False}
    assert machine.user_file.read_text() == before


async def test_the_dashboard_offers_no_choice_without_a_project(machine: Machine, tmp_path: Path) -> None:
    entry = ScriptedServer(tmp_path / "record").entry()
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    async with dashboard_of(machine) as board, board.visited() as client:
        assert "<select" not in (await client.get("/servers/x")).text
        assert board.configuration.loaded.servers["x"].enabled


def test_answers_that_another_file_overrides_say_so(
    machine: Machine, server: ScriptedServer, fairlead: Fairlead
) -> None:
    assert server.entry()
    machine.write_project('{"servers": {"x": {"allow_tools": ["delete"]}}}')
    assert fairlead("approve", "--all", "--yes").status == 0
    outcome = fairlead("review", "x", "--allow", "echo", "--scope", "user")
    assert outcome.status == 0, outcome.err
    assert "the review is recorded, but " in outcome.err
    assert "sets another value, which takes precedence" in outcome.err


def test_a_projects_server_is_not_edited_below_it(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_project(json.dumps({"servers": {"x": server.entry()}}))
    assert fairlead("approve", "x", "--yes").status == 0
    for words in (("disable", "x"), ("review", "x", "--deny", "echo")):
        outcome = fairlead(*words, "--scope", "user")
        assert outcome.status == 1
        assert "add `--scope project`" in outcome.err
    assert not machine.user_file.exists()


@pytest.fixture
def with_builtins(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine.env.pop("FAIRLEAD_BUILTINS")
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    return machine


def test_a_built_in_server_is_reviewed_in_the_users_file(with_builtins: Machine, fairlead: Fairlead) -> None:
    machine = with_builtins
    assert fairlead("review", "repo", "--deny", "all").status == 0
    written = entry_in(machine.user_file, "repo")
    assert written is not None
    assert len(written["deny_tools"]) > 1
    allowed = written["deny_tools"][0]
    assert fairlead("review", "repo", "--ask", allowed).status == 0
    written = entry_in(machine.user_file, "repo")
    assert written is not None
    assert allowed not in written["deny_tools"]
    assert written["approval"] == {"default": "auto", "tools": {allowed: "ask"}}
    disabled = fairlead("disable", "repo")
    assert disabled.status == 0, disabled.err
    assert (entry_in(machine.user_file, "repo") or {})["enabled"] is False


def test_a_built_in_server_is_reviewed_in_the_file_that_is_given(
    with_builtins: Machine, fairlead: Fairlead
) -> None:
    given = with_builtins.home / "mine.json"
    given.write_text("{}")
    outcome = fairlead("--config", str(given), "review", "repo", "--deny", "all")
    assert outcome.status == 0, outcome.err
    assert entry_in(given, "repo")
    assert not with_builtins.user_file.exists()


async def test_a_built_in_server_is_reviewed_in_the_console(with_builtins: Machine) -> None:
    async with session_on(with_builtins) as console:
        await console.does("/mcp review repo --deny all")
        with pytest.raises(UnknownServer):
            await console.does("/mcp review nothing --deny all")
    assert (entry_in(with_builtins.user_file, "repo") or {})["deny_tools"]
