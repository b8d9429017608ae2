"""Every code block of the README works as it is printed.

The Python blocks run under `asyncio.run` in `tests/host/test_event_loops.py`, the installation in
`tests/tools/try-package`, the login, the model and the console in `test_readme_runs.py`, and the commands are
read in `test_blocks.py`; here it is made sure that none is left out.
"""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from fairlead.config.command_lines import extra_hint
from fairlead.console.verbs import load_verbs
from tests.cli.pty_support import at_terminal
from tests.cli.test_gateway_service import SYSTEMCTL
from tests.conftest import Machine, Outcome
from tests.docs.command_words import parse
from tests.docs.pages import ROOT, Page

BLOCKS = Page(ROOT / "README.md").blocks()

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
    return [block.text for block in BLOCKS if block.language == language]


def commands(text: str) -> list[list[str]]:
    """The command lines of a block, without their prompt and comment."""
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines]


def test_the_blocks_without_a_prompt_are_those_that_are_tried_below() -> None:
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


def test_every_block_of_commands_is_typed_by_a_test() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_readme*.py"))
    marks = re.findall(r"block_with\(\"([^\"]+)\"\)|\"([^\"]+)\" in block", source)
    for text in blocks("console"):
        assert any(mark in text for pair in marks for mark in pair if mark), f"no test types this:\n{text}"


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


def test_the_gateway_goes_as_the_readme_shows(machine: Machine) -> None:
    folder = machine.home / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    env = {**machine.env, "PATH": f"{folder}:{machine.env['PATH']}"}
    machine.write_user('{"gateway": {"port": 0}}')  # the usual port may be taken here
    (text,) = [block for block in blocks("console") if "fairlead gateway --install" in block]
    run, start, workers, install = commands(text)
    for words in (run, workers):
        with at_terminal(*words[1:], cwd=machine.project, env=env) as person:
            person.sees("/mcp")
            person.presses_ctrl_c()
            person.waits()
    with at_terminal(*start[1:], cwd=machine.project, env=env) as person:
        assert person.waits() == 0, person.seen
        assert "at login   yes" in person.seen
    with at_terminal("gateway", "stop", "--disable", cwd=machine.project, env=env) as person:
        assert person.waits() == 0, person.seen
    with at_terminal(*install[1:], cwd=machine.project, env=env) as person:
        person.sees("Write this to")
        person.types("y")
        assert person.waits() == 0, person.seen
    assert "fairlead" in (machine.home / ".cursor" / "mcp.json").read_text()
    with at_terminal("gateway", "--uninstall", "cursor", "--yes", cwd=machine.project, env=env) as person:
        assert person.waits() == 0, person.seen
    assert not (machine.home / ".cursor" / "mcp.json").exists()
