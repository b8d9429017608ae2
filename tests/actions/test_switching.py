"""Enabling and disabling is one action: every surface says what is so already, and what has no effect."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.web.support import dashboard_of

Fairlead = Callable[..., Outcome]


@pytest.fixture
def server(machine: Machine, tmp_path: Path) -> ScriptedServer:
    """A server of the user's own, which no file enables or disables."""
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    return server


@pytest.mark.usefixtures("server")
async def test_no_surface_writes_what_is_so_already(machine: Machine) -> None:
    before = machine.user_file.read_text()
    async with session_on(machine) as console:
        assert "`x` is enabled already" in await console.does("/mcp enable x")
    async with dashboard_of(machine) as board, board.visited() as client:
        assert (await client.send("/", "/servers/x", do="enable")).status == 303
    assert machine.user_file.read_text() == before


@pytest.mark.usefixtures("server")
def test_the_command_line_writes_nothing_that_is_so_already(machine: Machine, fairlead: Fairlead) -> None:
    before = machine.user_file.read_text()
    outcome = fairlead("enable", "x")
    assert outcome.status == 0, outcome.err
    assert "`x` is enabled already" in outcome.err
    assert machine.user_file.read_text() == before


@pytest.mark.usefixtures("server")
async def test_every_surface_says_whether_an_edit_without_effect_was_written(machine: Machine) -> None:
    machine.write_project(json.dumps({"servers": {"x": {"enabled": True}}}))
    async with session_on(machine) as console:
        with pytest.raises(ConfigError, match=r"this was written to .*, but .* takes precedence"):
            await console.does("/mcp disable x --scope user")
        with pytest.raises(ConfigError, match=r"this is already so in .*, but .* takes precedence"):
            await console.does("/mcp disable x --scope user")
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await client.send("/", "/servers/x", do="disable", scope="user")
        assert page.status == 409
        assert "this is already so in" in page.text


@pytest.mark.usefixtures("server")
def test_the_command_line_says_whether_an_edit_without_effect_was_written(
    machine: Machine, fairlead: Fairlead
) -> None:
    machine.write_project(json.dumps({"servers": {"x": {"enabled": True}}}))
    first, second = (fairlead("disable", "x", "--scope", "user").err for _ in range(2))
    assert "disabled `x` in" in first
    assert "this was written to" in first
    assert "this is already so in" in second
    assert "is disabled already" not in second


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "words",
    [
        ("disable", "x", "--scope", "project"),
        ("review", "x", "--deny", "echo", "--scope", "project"),
        ("add", "y", "--later", "--scope", "project", "--", "no-such-program"),
    ],
)
def test_a_project_file_that_an_edit_creates_is_named(
    machine: Machine, fairlead: Fairlead, words: tuple[str, ...]
) -> None:
    assert not machine.project_file.exists()
    outcome = fairlead(*words)
    assert outcome.status == 0, outcome.err
    assert "created fairlead.json: no project file was here or in a folder above" in outcome.err
    assert machine.project_file.exists()
    again = fairlead("disable", "x", "--scope", "project")
    assert "created" not in again.err


@pytest.mark.usefixtures("server")
async def test_the_console_names_a_project_file_that_it_creates(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    async with session_on(machine) as console:
        await console.does("/mcp disable x --scope project")
    assert "created fairlead.json" in capsys.readouterr().err
