"""Every code block of the README works as it is printed.

The Python blocks run under `asyncio.run` in `tests/host/test_event_loops.py`, and the installation in
`tests/tools/try-package`; here it is made sure that none is left out.
"""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from fairlead.cli.main import cli
from fairlead.config.command_lines import extra_hint
from fairlead.console.verbs import load_verbs
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine, Outcome

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)

TIME_SERVER = """#!{python}
import json, sys
names = ("get_current_time", "convert_time")
tools = [{{"name": name, "inputSchema": {{"type": "object"}}}} for name in names]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {{"result": {{}}}}
    if message["method"] == "initialize":
        info = {{"name": "time", "version": "1"}}
        offers = {{"tools": {{}}}}
        answer["result"] = {{"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}}
    elif message["method"] == "tools/list":
        answer["result"] = {{"tools": tools}}
    elif message["method"] == "tools/call":
        told = json.dumps(message["params"]["arguments"])
        answer["result"] = {{"content": [{{"type": "text", "text": told}}]}}
    else:
        answer = {{"error": {{"code": -32601, "message": "no"}}}}
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **answer}}), flush=True)
"""
"""What `uvx mcp-server-time` is to Fairlead, without a download."""


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def commands(text: str) -> list[list[str]]:
    """The command lines of a block, without their prompt and comment."""
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


def parse(words: list[str]) -> None:
    """Have the command line read its words, down to the last subcommand, without running anything."""
    command: click.Command = cli
    name, rest, parent = "fairlead", words, None
    while True:
        context = command.make_context(name, [*rest], parent=parent)
        left = [*getattr(context, "_protected_args", ()), *context.args]
        if not isinstance(command, click.Group) or not left:
            return
        found, chosen, rest = command.resolve_command(context, left)
        assert found is not None
        assert chosen is not None
        name, command, parent = found, chosen, context


def test_every_block_is_of_a_kind_that_a_test_runs() -> None:
    assert {name for name, _ in BLOCKS} <= {"", "sh", "console", "python"}
    assert len(blocks("")) == 1
    assert len(blocks("sh")) == 1


def test_the_first_block_runs_it_and_the_tests() -> None:
    run, test = blocks("")[0].splitlines()
    assert run.startswith("pip install uv && uv run fairlead gateway ")
    assert test.startswith("pip install uv && uv run pytest ")
    parse(["gateway"])


def test_the_installation_is_tried_for_every_change() -> None:
    assert [line.split("#")[0].split() for line in blocks("sh")[0].splitlines()] == [
        ["uv", "tool", "install", "."],
        ["pipx", "install", "."],
        ["uvx", "--from", ".", "fairlead", "--help"],
    ]
    assert "\ntests/tools/try-package\n" in (ROOT / ".ci" / "run").read_text()
    assert "tests/tools/try-package --index" in (ROOT / ".ci" / "full").read_text()


def test_every_python_block_is_run_under_asyncio() -> None:
    source = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    marks = re.findall(r"snippet_with\(\"([^\"]+)\"\)", source)
    for block in blocks("python"):
        assert any(mark in block for mark in marks), f"no test runs this:\n{block}"


@pytest.mark.parametrize(
    "words", [words for text in blocks("console") for words in commands(text)], ids=shlex.join
)
def test_every_command_of_a_block_is_one_that_the_command_line_takes(
    machine: Machine, words: list[str]
) -> None:
    if words[0] == "export":
        assert re.fullmatch(r"[A-Z_]+=\S+", words[1])
        return
    assert words[0] == "fairlead"
    parse(words[1:])


def test_a_command_that_is_not_there_would_be_noticed(machine: Machine) -> None:
    for words in (["gateway", "stat"], ["gateway", "start", "--login"], ["ad", "x"]):
        with pytest.raises(click.UsageError):
            parse(words)


def test_every_line_of_the_console_is_one_that_it_takes() -> None:
    lines = [line for text in blocks("console") for line in text.splitlines() if line.startswith("> /")]
    verbs = load_verbs()
    for line in lines:
        word = line.removeprefix("> /").split()[0]
        assert ":" in word or word in verbs, line


def test_the_first_server_goes_as_the_readme_shows(machine: Machine) -> None:
    folder = machine.home / "bin"
    folder.mkdir()
    (folder / "uvx").write_text(TIME_SERVER.format(python=sys.executable))
    (folder / "uvx").chmod(0o755)
    env = {**machine.env, "PATH": f"{folder}:{machine.env['PATH']}"}
    (text,) = [block for block in blocks("console") if "fairlead add time" in block]
    add, call = commands(text)
    with at_terminal(*add[1:], cwd=machine.project, env=env) as person:
        person.sees("What may these 2 tools do?")
        person.types("allow")
        assert person.waits() == 0
        assert "added `time` to fairlead.json" in person.seen
        assert "allowed 2 tools of `time` in fairlead.json" in person.seen
    with at_terminal(*call[1:], cwd=machine.project, env=env) as person:
        assert person.waits() == 0
        assert "Europe/Berlin" in person.seen


def test_a_server_with_a_secret_is_added_as_the_readme_shows(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    (text,) = [block for block in blocks("console") if "fairlead add github" in block]
    ((_, *words),) = commands(text)
    added = fairlead(*words)
    assert added.status == 0
    for line in text.splitlines()[1:]:
        assert line.split("; the file has ")[0] in added.err
    assert "ghp_" not in machine.project_file.read_text()


def test_nothing_that_is_printed_needs_a_package_that_is_not_published() -> None:
    for source in (ROOT / "src").rglob("*.py"):
        text = source.read_text()
        assert "uvx fairlead" not in text, source
        assert "install fairlead" not in text, source
        assert "install 'fairlead" not in text or source.name == "command_lines.py", source


def test_an_extra_is_installed_from_where_the_program_came() -> None:
    hint = extra_hint("pdf")
    assert "`fairlead[pdf]`" in hint
    assert f"uv sync --inexact --project {ROOT} --extra pdf" in hint
