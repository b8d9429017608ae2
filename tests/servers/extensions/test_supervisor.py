"""Extensions at work (seed 004, tools from directories): real processes, behind a real host."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.extension_files import read_extension_folder
from fairlead.config.paths import store_file
from fairlead.errors import ConnectFailed, ConnectionLost, ConsentRequired, FairleadError
from fairlead.host.host import Host
from fairlead.policy.consent import record_consent
from tests.conftest import Machine, Outcome

SECONDS = 120
PATIENT: dict[str, Any] = {"startup_timeout_ms": 100_000}
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the supervisor forks")

TOOL = """
from fairlead import McpServer, ToolContext, ToolDefinition, ToolModel


class Word(ToolModel):
    word: str = ""


async def run(context: ToolContext, given: Word) -> Word:
    return Word(word={answer})


def register(server: McpServer) -> None:
    server.register(
        ToolDefinition(name="{name}", description="Says.", input=Word, output=Word, handler=run)
    )
"""


def tool(name: str, answer: str = "given.word.upper()") -> str:
    return TOOL.format(name=name, answer=answer)


def write_folder(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@asynccontextmanager
async def hosting(machine: Machine, **document: Any) -> AsyncGenerator[Host]:
    """A host with a configuration of the user's."""
    overrides = {"policy": {"approval": "allow"}, "defaults": PATIENT, **document}
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides=overrides, env=machine.env, cwd=machine.project) as host:
            yield host


def entry(folder: Path, **rest: Any) -> dict[str, Any]:
    return {"tools": {"extension": str(folder), "trust": "trusted", **rest}}


async def say(host: Host, name: str, word: str = "x") -> str:
    result = await host.call("tools", name, {"word": word})
    [block] = json.loads(result.raw)["content"]
    return json.loads(block["text"])["word"] if not result.is_error else block["text"]


BAD = {
    "a_syntax": ("def x(:", "SyntaxError: invalid syntax (line 1)"),
    "b_raises": ("\nraise ValueError('no')", "ValueError: no (line 2)"),
    "c_exits": ("import sys\nsys.exit(3)", "it ended with sys.exit(3)"),
    "d_dies": ("import os\nos._exit(7)", "it ended the process"),
    "e_loops": ("while True:\n    pass", "it was not done after"),
    "f_none": ("x = 1", "it has no function `register(server)`"),
    "g_async": ("async def register(server): ...", "it has no function `register(server)`"),
    "h_wrong": ("def register(server): server.register('tool')", "WrongType"),
    "k_kills": ("import os\nos.kill(os.getppid(), 9)\n" + tool("killer"), "it killed its parent process"),
    "z_twice": (tool("good"), "its tool `good` is in good.py already"),
    "z_own": ("class Odd(BaseException): ...\nraise Odd('odd')", "it ended the process"),
}


async def test_one_bad_file_costs_only_itself_and_is_named(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    files = {name: text for name, (text, _) in BAD.items()}
    loud = tool("good") + "\nprint('loud')\nimport sys\nsys.stdin.read()\n"
    folder = write_folder(machine.home / "tools", good=loud, **files)
    document = {"servers": entry(folder), "policy": {"approval": "allow"}, "defaults": PATIENT}
    machine.write_user(json.dumps(document))
    async with hosting(machine) as host:
        assert await say(host, "good", "ada") == "ADA"
        assert [found.key.tool for found in await host.tools_of("tools")] == ["good"]
        [status] = [each for each in host.status() if each.server_id == "tools"]
        said = dict(note.split(".py is left out: ") for note in status.notes if " is left out: " in note)
    assert said.keys() == BAD.keys()
    for name, (_, reason) in BAD.items():
        assert said[name].startswith(reason), (name, said[name])
    assert "c_exits.py is left out" in fairlead("status", "--json").out
    assert "c_exits.py is left out" in fairlead("lint", "tools").out + fairlead("lint", "tools").err


async def test_files_import_each_other_from_what_was_read_and_nothing_else_of_the_folder(
    machine: Machine,
) -> None:
    folder = write_folder(
        machine.home / "tools",
        _words="HELLO = 'hello'",
        one="from _words import HELLO\n" + tool("one", "HELLO"),
        two="import one\nimport json\n" + tool("two", "one.HELLO + json.dumps({}) + str(one.COUNT)"),
        json=tool("three", "'not the one of the library'"),
        four="import package\n" + tool("four"),
    )
    (folder / "one.py").write_text((folder / "one.py").read_text() + "\nCOUNT = 1\n")
    write_folder(folder / "package", __init__="")
    (folder / "my-tool.py").write_text(tool("five", "__file__"))
    async with hosting(machine, servers=entry(folder)) as host:
        assert await say(host, "one") == "hello"
        assert await say(host, "two") == "hello{}1"
        assert await say(host, "three") == "not the one of the library"
        assert await say(host, "five") == str(folder / "my-tool.py")
        [status] = [each for each in host.status() if each.server_id == "tools"]
        assert "four.py is left out: ModuleNotFoundError: No module named 'package' (line 1)" in status.notes
    assert not (folder / "__pycache__").exists()


def approve(machine: Machine) -> None:
    key = machine.load().servers["tools"].consent
    assert key is not None
    record_consent(store_file(machine.env), [key])


@pytest.mark.requirement("HARD-1", "NEED-24")
async def test_a_projects_files_run_only_as_they_were_approved(machine: Machine) -> None:
    marker = machine.project / "ran"
    folder = write_folder(machine.project / "tools", a=f"open({str(marker)!r}, 'w')\n" + tool("a"))
    allowed = {"servers": {"tools": {"allow_tools": ["*"]}}, "defaults": PATIENT}
    machine.write_user(json.dumps({"policy": {"approval": "allow"}, "defaults": PATIENT}))
    machine.write_project(json.dumps({"extensions": ["./tools"], "servers": allowed["servers"]}))

    async def refused() -> bool:
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            failures = await host.connect("tools")
            return isinstance(failures.get("tools"), ConsentRequired)

    with anyio.fail_after(SECONDS):
        assert await refused()
        assert not marker.exists()
        approve(machine)
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            assert await host.connect("tools") == {}
        assert marker.exists()
        marker.unlink()
        (folder / "b.py").write_text(tool("b"))
        assert await refused()
        (folder / "b.py").unlink()
        (folder / "a.py").write_text(f"open({str(marker)!r}, 'w')\n")
        assert await refused()
        assert not marker.exists()


@pytest.mark.requirement("HARD-1")
async def test_a_file_that_is_swapped_after_the_check_is_not_what_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(machine.project / "tools", a=tool("a", "'approved'"))
    machine.write_user(json.dumps({"policy": {"approval": "allow"}, "defaults": PATIENT}))
    machine.write_project('{"servers": {"tools": {"extension": "./tools", "trust": "trusted"}}}')
    approve(machine)
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            check = host.servers.owner("tools").require_approved

            async def check_and_swap(key: Any) -> None:
                await check(key)
                (folder / "a.py").write_text(tool("a", "'evil'"))
                (folder / "b.py").write_text(tool("b", "'evil'"))

            monkeypatch.setattr(host.servers.owner("tools"), "require_approved", check_and_swap)
            assert [found.key.tool for found in await host.tools_of("tools")] == ["a"]
            assert await say(host, "a") == "approved"


def test_an_archive_that_is_not_the_approved_one_is_not_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tools", a="open('ran', 'w')")
    extension = read_extension_folder(folder, follow_links=False)
    archive = tmp_path / "archive.json"
    archive.write_bytes(extension.archive.replace(b"ran", b"run"))
    command = [sys.executable, "-I", "-m", "fairlead.servers.extensions.supervisor"]
    words = [str(archive), extension.archive_digest, "tools"]
    ended = subprocess.run(
        [*command, *words], cwd=tmp_path, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 1
    assert b"not the one that was approved" in ended.stderr
    assert not (tmp_path / "run").exists()


async def test_an_edit_of_a_file_counts_after_a_reload_and_after_a_restart(machine: Machine) -> None:
    folder = write_folder(machine.home / "tools", a=tool("a", "'one'"))
    overrides = {"policy": {"approval": "allow"}, "defaults": PATIENT, "servers": entry(folder)}
    with anyio.fail_after(SECONDS):
        async with Host.open(machine.load(overrides=overrides), env=machine.env) as host:
            assert await say(host, "a") == "one"
            await host.reload(machine.load(overrides=overrides))
            [status] = [each for each in host.status() if each.server_id == "tools"]
            assert status.connects == 1, "nothing changed, nothing restarts"
            (folder / "a.py").write_text(tool("a", "'two!'"))
            assert await say(host, "a") == "one"
            await host.reload(machine.load(overrides=overrides))
            assert await say(host, "a") == "two!"


async def test_a_folder_that_cannot_be_used_is_an_error_with_a_hint(machine: Machine) -> None:
    async with hosting(machine, servers=entry(machine.home / "none")) as host:
        failure = (await host.connect("tools"))["tools"]
        assert isinstance(failure, ConnectFailed)
        assert "cannot read the folder" in str(failure)
        assert failure.hint is not None


async def test_a_tool_that_kills_its_parent_does_not_end_the_server(machine: Machine) -> None:
    kills = "import os\n" + tool("kill", "str(os.kill(os.getppid(), 9))")
    folder = write_folder(
        machine.home / "tools", kills=kills, pids="import os\n" + tool("pid", "str(os.getpid())")
    )
    async with hosting(machine, servers=entry(folder)) as host:
        before = await say(host, "pid")
        assert await say(host, "kill") == "None"
        assert await say(host, "pid") == before
        with suppress(FairleadError):  # its parent is one that the host needs by now
            await say(host, "kill")
        # A call that was sent before the host saw the end of that process is lost; a later one is not.
        with suppress(ConnectionLost):
            await say(host, "pid")
        assert await say(host, "pid")


async def test_an_extension_that_was_killed_is_named_rightly_and_starts_again(machine: Machine) -> None:
    kills = "import os\n" + tool("kill", "str(os.killpg(0, 9))")
    folder = write_folder(machine.home / "tools", kills=kills, fine=tool("fine"))
    async with hosting(machine, servers=entry(folder)) as host:
        with pytest.raises(FairleadError) as caught:
            await say(host, "kill")
        assert "most often" not in f"{caught.value} {caught.value.hint}"
        assert await say(host, "fine", "ada") == "ADA"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
async def test_a_sandboxed_extension_sees_not_even_its_folder(machine: Machine) -> None:
    folder = write_folder(
        machine.home / "tools", a="import os\n" + tool("a", "str(os.path.exists(__file__))")
    )
    async with hosting(machine, servers=entry(folder, sandbox={})) as host:
        assert await say(host, "a") == "False"


@pytest.mark.requirement("NEED-1")
async def test_no_process_and_no_archive_is_left_behind(machine: Machine) -> None:
    folder = write_folder(machine.home / "tools", a="import os\n" + tool("a", "str(os.getpid())"))
    async with hosting(machine, servers=entry(folder)) as host:
        pid = int(await say(host, "a"))
        cache = host.parts.context.transports.cache
        assert cache is not None
        assert [file.name for file in cache.iterdir() if file.name.startswith("extension-")]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not [file.name for file in cache.iterdir() if file.name.startswith("extension-")]


def test_the_command_line_writes_the_folder_as_the_file_needs_it(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    write_folder(machine.project / "tools", a=tool("a"))
    assert fairlead("add", "tools", "--extension", "./tools", "--later").status == 0
    assert json.loads(machine.project_file.read_text())["servers"] == {"tools": {"extension": "./tools"}}
    assert fairlead("add", "mine", "--extension", "tools", "--scope", "user", "--later").status == 0
    written = json.loads(machine.user_file.read_text())["servers"]["mine"]["extension"]
    assert written == str(machine.project / "tools")
    listed = json.loads(fairlead("list", "--json").out)
    assert {server["transport"] for server in listed["servers"]} == {"extension"}
    machine.write_user('{"extensions": ["./tools"]}')
    machine.project_file.unlink()
    removed = fairlead("remove", "tools", "--scope", "user")
    assert "it comes from `extensions` in that file" in removed.err


def test_consent_shows_every_file_and_what_it_does_not_cover(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    write_folder(machine.project / "tools", a=tool("a"), _help="x = 1")
    machine.write_project('{"extensions": ["./tools"]}')
    shown = fairlead("approve", "tools", "--yes").out
    assert "runs the Python files of the folder ./tools" in shown
    assert "runs: a.py (content bound: " in shown
    assert "runs: _help.py (content bound: " in shown
    assert "not covered by your consent: installed packages" in shown
