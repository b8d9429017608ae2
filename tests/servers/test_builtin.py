"""Built-in servers (seed 001): those without any configuration, and the same ones served to others."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from fairlead.config.load import load_config
from fairlead.errors import ApprovalRequired, CallDenied, ConnectFailed
from fairlead.host.host import Host
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest, Callbacks
from fairlead.servers.builtin import BuiltinAccess, open_builtin_server
from fairlead.testing import open_host, write_tree
from tests.conftest import Machine, Outcome
from tests.servers.shell.support import needs_bwrap

SECONDS = 30
TREE = {"README.md": "# Hello\n", "src": {"main.py": "print('needle')\n"}}


@pytest.fixture
def newcomer(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine as it is before anybody configured anything."""
    del machine.env["FAIRLEAD_BUILTINS"]
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    write_tree(machine.project, TREE)
    return machine


async def test_with_no_configuration_an_agent_can_read_the_folder_it_is_in(newcomer: Machine) -> None:
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project) as host:
            found = await host.call("repo", "repo.ripgrep", {"query": "needle"})
            read = await host.call("repo", "repo.readFile", {"path": "README.md"})
            blocked = await host.call("docs", "docs.fetch", {"url": "https://docs.python.org/3/"})

    assert found.structured is not None
    assert found.structured["matches"][0]["filePath"] == "src/main.py"
    assert read.text == "# Hello\n"
    assert blocked.is_error
    assert "fairlead docs allow docs.python.org" in blocked.text


async def test_inside_a_repository_all_of_it_is_meant(newcomer: Machine) -> None:
    (newcomer.project / ".git").mkdir()
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project / "src") as host:
            read = await host.call("repo", "repo.readFile", {"path": "README.md"})
    assert read.text == "# Hello\n"


@pytest.mark.parametrize("folder", ["home", "/"])
async def test_a_home_is_never_read_as_a_whole(newcomer: Machine, folder: str) -> None:
    cwd = newcomer.home if folder == "home" else Path("/")
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=cwd) as host:
            states = {status.server_id: status.state for status in host.status()}
            with pytest.raises(ConnectFailed):
                await host.call("repo", "repo.listDir", {})
    assert states == {"repo": "disabled", "docs": "idle"}


async def test_they_can_be_switched_off_each_or_all(newcomer: Machine) -> None:
    newcomer.write_user('{"servers": {"docs": {"enabled": false}}}')
    assert {name: server.enabled for name, server in newcomer.load().servers.items()} == {
        "repo": True,
        "docs": False,
    }
    newcomer.env["FAIRLEAD_BUILTINS"] = "off"
    assert [*newcomer.load().servers] == ["docs"]  # what is written stays, and says what it lies over


async def test_a_server_of_that_name_of_the_users_own_takes_its_place(newcomer: Machine) -> None:
    newcomer.write_user('{"servers": {"repo": {"command": "mine"}}}')
    server = newcomer.load().servers["repo"]
    assert (server.transport, server.source) == ("stdio", "user")


async def test_a_project_cannot_widen_what_they_read_unasked(newcomer: Machine) -> None:
    newcomer.write_project('{"servers": {"repo": {"roots": [".."]}}}')
    assert newcomer.load().servers["repo"].consent is not None


async def test_served_on_a_random_port_a_host_lists_and_calls_them(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "repository", TREE)
    reach = BuiltinAccess(roots=(root,), allow=tuple, cache=None)
    with anyio.fail_after(SECONDS), open_builtin_server(["repo", "docs"], reach) as server:
        async with server.serve() as endpoint:
            headers = {"Authorization": f"Bearer {endpoint.token}"}
            entry = {"url": endpoint.url, "headers": headers, "trust": "trusted"}
            async with open_host(tmp_path, ours=entry) as host:
                tools = [tool.key.tool for tool in await host.tools_of("ours")]
                listed = await host.call("ours", "repo.listDir", {"path": "."})
                read = await host.call("ours", "repo.readFile", {"path": "src/main.py"})

    assert tools == ["repo.ripgrep", "repo.readFile", "repo.listDir", "docs.fetch"]
    assert listed.structured is not None
    assert listed.structured["entries"] == [
        {"name": "README.md", "type": "file", "sizeBytes": 8},
        {"name": "src", "type": "dir"},
    ]
    assert read.structured is not None
    assert (read.structured["content"], read.structured["truncated"]) == ("print('needle')\n", False)


async def test_one_of_the_users_own_without_roots_has_the_workspace(newcomer: Machine) -> None:
    """Not the folder of the file, which is where Fairlead keeps its own."""
    newcomer.write_user('{"servers": {"files": {"builtin": "repo", "trust": "trusted"}}}')
    (newcomer.project / ".git").mkdir()
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project / "src") as host:
            read = await host.call("files", "repo.readFile", {"path": "README.md"})
    assert read.text == "# Hello\n"


async def test_edits_are_asked_for_and_then_made(machine: Machine) -> None:
    """The `edit` server, added by the user, changes files only with the user's yes."""
    write_tree(machine.project, TREE)
    machine.write_user('{"servers": {"edit": {"builtin": "edit", "trust": "trusted"}}}')
    asked: list[str] = []

    async def answer(request: ApprovalRequest) -> ApprovalAnswer:
        await anyio.lowlevel.checkpoint()
        asked.append(request.tool)
        return "once" if len(asked) > 1 else "no"

    arguments = {"path": "src/main.py", "oldText": "needle", "newText": "thread"}
    with anyio.fail_after(SECONDS):
        async with Host.open(
            env=machine.env, cwd=machine.project, operator=Callbacks(on_approve=answer)
        ) as host:
            with pytest.raises(CallDenied):
                await host.call("edit", "edit.replace", arguments)
            before = (machine.project / "src/main.py").read_text()
            changed = await host.call("edit", "edit.replace", arguments)
    assert before == "print('needle')\n"
    assert (machine.project / "src/main.py").read_text() == "print('thread')\n"
    assert "+print('thread')" in changed.text
    assert asked == ["edit.replace", "edit.replace"]


CONFIGURED = """{
  "servers": {"edit": {"builtin": "edit", "trust": "trusted", "approval": "allow", "allow_tools": ["*"]}},
  "extensions": ["./tools", "${MORE}"]
}"""


async def test_what_fairlead_runs_without_asking_is_not_edited(machine: Machine) -> None:
    """A gateway restarts an extension of the user's own, and reads its configuration, when that changes."""
    own = {"tools": {"a.py": ""}, "more": {"b.py": ""}, "agents.json": CONFIGURED}
    write_tree(machine.project, TREE | own)
    machine.env["MORE"] = str(machine.project / "more")
    machine.env["XDG_STATE_HOME"] = str(machine.project / "state")
    refused = ("tools/a.py", "tools/new.py", "Tools/a.py", "more/b.py", "agents.json", "state/fairlead/a")
    with anyio.fail_after(SECONDS):
        config = load_config(machine.project / "agents.json", env=machine.env, cwd=machine.project)
        async with Host.open(config=config, env=machine.env, cwd=machine.project) as host:
            for path in refused:
                outcome = await host.call("edit", "edit.writeFile", {"path": path, "content": "x"})
                assert outcome.is_error
                assert "is protected: Fairlead itself would run what it says" in outcome.text
            made = await host.call("edit", "edit.writeFile", {"path": "tools.py", "content": "x"})
    assert not made.is_error
    assert (machine.project / "agents.json").read_text() == CONFIGURED
    assert not (machine.project / "tools" / "new.py").exists()


async def test_an_extension_of_the_project_can_be_edited(machine: Machine) -> None:
    """Its files are bound by consent: a change asks again."""
    write_tree(machine.project, TREE | {"tools": {"a.py": ""}})
    machine.write_user('{"servers": {"edit": {"builtin": "edit", "trust": "trusted", "approval": "allow"}}}')
    machine.write_project('{"extensions": ["./tools"]}')
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            made = await host.call("edit", "edit.writeFile", {"path": "tools/b.py", "content": "x"})
    assert not made.is_error


# The command line.

Fairlead = Callable[..., Outcome]


def test_the_list_shows_them_apart(newcomer: Machine, fairlead: Fairlead) -> None:
    shown = fairlead("list")
    assert shown.status == 0
    assert "no MCP servers configured" in shown.err
    assert "built in:" in shown.err
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["repo", "docs"]


def test_a_person_uses_them_at_once(newcomer: Machine, fairlead: Fairlead) -> None:
    called = fairlead("call", "repo", "repo.readFile", "--arg", "path=README.md")
    assert (called.status, called.out) == (0, "# Hello\n\n")


def test_another_folder_gets_a_name_of_its_own(newcomer: Machine, fairlead: Fairlead) -> None:
    write_tree(newcomer.home / "library", {"book.txt": "chapter"})
    added = fairlead(
        "add", "library", "--builtin", "repo", "--root", str(newcomer.home / "library"), "--trust", "trusted"
    )
    assert added.status == 0
    called = fairlead("call", "library", "repo.readFile", "--arg", "path=book.txt")
    assert called.out == "chapter\n"


def test_to_be_without_one_it_is_disabled_and_not_removed(newcomer: Machine, fairlead: Fairlead) -> None:
    removed = fairlead("remove", "repo")
    assert removed.status == 1
    assert "fairlead disable repo" in removed.err
    assert fairlead("disable", "repo").status == 0
    assert not newcomer.project_file.exists()
    assert '"repo"' in newcomer.user_file.read_text()
    assert newcomer.load().servers["repo"].enabled is False


def test_they_are_not_exported(newcomer: Machine, fairlead: Fairlead) -> None:
    exported = fairlead("export", "--to", "claude")
    assert json.loads(exported.out) == {"mcpServers": {}}


def test_serving_everybody_needs_a_second_word(newcomer: Machine, fairlead: Fairlead) -> None:
    refused = fairlead("serve", "--auth", "none")
    assert refused.status == 2
    assert "--i-know" in refused.err


def test_serving_a_home_is_refused_with_a_way_out(newcomer: Machine, fairlead: Fairlead) -> None:
    refused = fairlead("serve", "repo", "--root", str(newcomer.home))
    assert refused.status == 1
    assert "home" in refused.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_where_it_is_and_what_opens_it_and_stops_when_asked(
    newcomer: Machine, stop: signal.Signals
) -> None:
    command = [sys.executable, "-m", "fairlead", "serve"]
    with subprocess.Popen(
        command,
        cwd=newcomer.project,
        env={**os.environ, **newcomer.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()
        token = process.stdout.readline().split()
        process.send_signal(stop)
        _, words = process.communicate(timeout=SECONDS)

    assert url[0] == "url"
    assert url[1].startswith("http://127.0.0.1:")
    kept = newcomer.home / ".local" / "state" / "fairlead" / "serve-token"
    assert token == ["token", kept.read_text().strip()]
    assert "repo.ripgrep" in words
    assert "claude mcp add" in words
    assert process.returncode == 0


async def test_serve_over_stdio_is_a_command_for_any_host(newcomer: Machine, tmp_path: Path) -> None:
    entry = {
        "command": sys.executable,
        "args": ["-m", "fairlead", "serve", "repo", "--stdio", "--root", str(newcomer.project)],
        "trust": "trusted",
    }
    async with open_host(tmp_path / "other", seconds=60, ours=entry) as host:
        read = await host.call("ours", "repo.readFile", {"path": "README.md"})
    assert read.text == "# Hello\n"


async def test_the_approval_of_an_edit_shows_its_diff(newcomer: Machine) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return "once"

    servers = {"edit": {"builtin": "edit", "trust": "trusted"}}
    newcomer.write_user(json.dumps({"servers": servers}))
    operator = Callbacks(on_approve=approve)
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project, operator=operator) as host:
            hidden = "# Bye\u202e"
            arguments = {"path": "README.md", "oldText": "# Hello", "newText": hidden}
            await host.call("edit", "edit.replace", arguments)
            await host.call("edit", "edit.undo", {})
    assert asked[0].preview is not None
    assert asked[0].preview.endswith("-# Hello\n+# Bye⟨U+202E⟩")
    assert asked[1].preview is not None
    assert asked[1].preview.endswith("+# Hello")
    assert (newcomer.project / "README.md").read_text() == "# Hello\n"


async def test_a_sandbox_is_for_shell_alone(newcomer: Machine) -> None:
    newcomer.write_user('{"servers": {"edit": {"builtin": "edit", "sandbox": {"network": true}}}}')
    assert newcomer.load().servers["edit"].config is None
    newcomer.write_user('{"servers": {"shell": {"builtin": "shell", "sandbox": {"network": true}}}}')
    assert newcomer.load().servers["shell"].config is not None


async def test_shell_asks_before_each_command(newcomer: Machine) -> None:
    newcomer.write_user('{"servers": {"shell": {"builtin": "shell", "trust": "trusted"}}}')
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project) as host:
            with pytest.raises((ApprovalRequired, ConnectFailed)):
                await host.call("shell", "shell.run", {"command": "touch x"})
    assert not (newcomer.project / "x").exists()


@needs_bwrap
async def test_the_whole_of_a_long_output_is_an_artifact(newcomer: Machine) -> None:
    newcomer.write_user(
        '{"servers": {"shell": {"builtin": "shell", "trust": "trusted"}}, "policy": {"approval": "allow"}}'
    )
    with anyio.fail_after(SECONDS):
        async with Host.open(env=newcomer.env, cwd=newcomer.project) as host:
            result = await host.call("shell", "shell.run", {"command": "seq 1 30000"})
    assert result.structured is not None
    assert (result.structured["exitCode"], result.structured["outputBytes"]) == (0, 168_894)
    assert "\n30000\n" in result.text
    assert "168,894 bytes: too large to show here. Stored as artifact://" in result.text
    assert result.untrusted
