"""Hints name commands that work as they are printed, whatever a server or a file is called."""

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fairlead as package
from fairlead.config.command_lines import command_line, extra_hint
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

OUR_OWN = re.compile(r"`fairlead (approvals answer|artifacts show|gateway --install) $")
"""What is put into these has no characters that a shell or an option parser would notice."""


def interpolated_commands(source: Path) -> Iterator[str]:
    """The places of f-strings that put a value into a command without `command_line`."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.JoinedStr):
            said = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    said += str(part.value)
                elif re.search(r"`fairlead [^`]*$", said) and not OUR_OWN.search(said):
                    yield f"{source.name}:{node.lineno}: {said[-40:]}"


def test_every_hint_with_a_value_in_it_is_made_by_the_one_function_that_quotes() -> None:
    folder = Path(package.__file__).parent
    assert [place for source in folder.rglob("*.py") for place in interpolated_commands(source)] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("login", "x"), "fairlead login x"),
        (("login", "-x"), "fairlead login --no-browser -- -x"),
        (("docs allow", "[::1]:80"), "fairlead docs allow '[::1]:80'"),
        (("import", "/my files/mcp.json"), "fairlead import '/my files/mcp.json'"),
    ],
)
def test_commands_are_quoted_and_end_options_before_a_dash(words: tuple[str, ...], expected: str) -> None:
    options = ("--no-browser",) if words[1] == "-x" else ()
    assert command_line(*words, options=options) == expected


@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        (
            "uv-receipt.toml",
            '[tool]\nrequirements = [{ name = "fairlead" }]',
            "uv tool install '{}[console]'",
        ),
        (
            "uv-receipt.toml",
            '[tool]\nrequirements = [{ name = "fairlead", extras = ["pdf"] }, { name = "rich" }]',
            "uv tool install '{}[console,pdf]'",
        ),
        ("uv-receipt.toml", "not = TOML =", "pip install '{}[console]'"),
        ("pipx_metadata.json", "{}", "pipx install --force '{}[console]'"),
        ("pyvenv.cfg", "", "pip install '{}[console]'"),
    ],
)
def test_an_extra_is_installed_where_the_program_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, command: str
) -> None:
    class Installed:
        """A distribution that came from a clone."""

        def read_text(self, name: str) -> str:
            return json.dumps({"url": "file:///a%20clone", "dir_info": {}})

    def find(_name: str) -> Installed:
        return Installed()

    monkeypatch.setattr("importlib.metadata.distribution", find)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / file).write_text(text)
    assert command.format("/a clone") in extra_hint("console")


def test_the_commands_after_an_import_can_be_followed(
    fairlead: Fairlead, machine: Machine, tmp_path: Path
) -> None:
    servers = {name: ScriptedServer(tmp_path / "record", tools=["echo"]).entry() for name in ("a", "-b")}
    document = {name: {key: entry[key] for key in ("command", "args")} for name, entry in servers.items()}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": document}))
    outcome = fairlead("import", str(tmp_path / "mcp.json"))
    shown, taken = re.findall(r"`fairlead (review [^`]+)`", outcome.err)
    assert fairlead(*shlex.split(shown)).status == 3, "it shows what is to be decided"
    assert fairlead(*shlex.split(taken)).status == 0
    for name in ("a", "-b"):
        assert machine.load().servers[name].entry["allow_tools"] == ["echo"]


def test_hints_about_a_server_that_begins_with_a_dash_can_be_followed(
    fairlead: Fairlead, machine: Machine, tmp_path: Path
) -> None:
    local = ScriptedServer(tmp_path / "record")
    assert fairlead("add", "--url", "http://127.0.0.1:9/mcp", "--allow", "none", "--", "-x").status == 0
    machine.write_user(json.dumps({"servers": {"-p": local.entry()}}))
    for asked in (("whoami", "--", "-x"), ("call", "--", "-p", "nothing")):
        outcome = fairlead(*asked)
        commands = re.findall(r"run `fairlead ([^`]+)`", outcome.err)
        assert commands, outcome.err
        for command in commands:
            followed = fairlead(*shlex.split(command))
            assert followed.status != 2, f"{command}: {followed.err}"
            assert "there is no option" not in followed.err
