"""The built-in `shell` server (seed 002, first-party tools): what a command reaches, and what it leaves."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fairlead.errors import ConnectFailed, ToolFailed
from tests.servers.shell.support import SECONDS, Progress, Shell, git, needs_bwrap, open_shell

pytestmark = needs_bwrap

SECRET = "sk-this-is-the-hosts-own-key"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    (repo / "src").mkdir(parents=True)
    (repo / "src" / "main.py").write_text("print(1)\n")
    git(repo, "init", "-q")
    return repo


@pytest.fixture
def shell(repo: Path, tmp_path: Path) -> Generator[Shell]:
    parent = {"API_KEY": SECRET, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/0/bus", "LANG": "C.UTF-8"}
    with open_shell(repo, home=tmp_path / "home", parent=parent) as shell:
        yield shell


def processes_with(mark: str) -> list[int]:
    """The processes of this machine with a word in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(entry.name))
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ── what it reaches ──


async def test_a_command_works_in_the_repository_and_uses_git(repo: Path, shell: Shell) -> None:
    done = await shell(
        "echo x > new.txt && sed -i s/1/2/ src/main.py && git add -A && "
        "git -c user.name=a -c user.email=a@b commit -qm first && git status --short && git log --format=%s"
    )
    assert (done.exit_code, done.output, done.held) == (0, "first\n", [])
    assert (repo / "src" / "main.py").read_text() == "print(2)\n"
    assert sorted(os.listdir(repo)) == [".git", "new.txt", "src"]
    left = {entry.name for entry in (repo / ".git").iterdir()}
    assert left.isdisjoint({"commondir", "config.worktree", "modules", "worktrees", "remotes"})


async def test_files_outside_are_neither_seen_nor_changed(repo: Path, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "home" / "secret").write_text(SECRET)
    (tmp_path / "beside").mkdir()
    (repo / "way-out").symlink_to(tmp_path / "home")
    done = await shell(
        "cat ~/secret way-out/secret /etc/shadow; ls -A ../beside ~ /tmp/*/; echo x > ../beside/y; "
        "echo x > ~/z; echo x > /etc/passwd; echo x > /usr/bin/x; rm -rf /usr /etc /home ..; true"
    )
    assert SECRET not in done.output
    assert [*(tmp_path / "beside").iterdir()] == []
    assert [entry.name for entry in (tmp_path / "home").iterdir()] == ["secret"]


async def test_no_device_is_made_or_read(shell: Shell, repo: Path) -> None:
    done = await shell(
        "mknod disk b 8 0; mknod mem c 1 1; ls /dev/sda /dev/vda /dev/mem /dev/kmsg; dd if=/dev/vda count=1"
    )
    assert done.exit_code != 0
    assert not (repo / "disk").exists()
    assert "records in" not in done.output


async def test_variables_of_the_host_are_not_there(shell: Shell) -> None:
    done = await shell("env; cat /proc/*/environ | tr '\\0' '\\n'")
    assert SECRET not in done.output
    assert "DBUS" not in done.output
    assert "LANG=C.UTF-8" in done.output


async def test_processes_of_the_host_are_not_there(shell: Shell) -> None:
    done = await shell(
        f"ls -d /proc/[0-9]*; kill -9 {os.getpid()}; kill -9 -1; cat /proc/{os.getpid()}/environ"
    )
    assert SECRET not in done.output
    assert done.output.count("/proc/") < 12


async def test_no_descriptor_is_inherited(shell: Shell, tmp_path: Path) -> None:
    secret = tmp_path / "open-file"
    secret.write_text(SECRET)
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        done = await shell("for f in /proc/self/fd/*; do readlink $f; done")
    assert "open-file" not in done.output
    assert SECRET not in done.output


async def test_there_is_no_network_unless_it_is_configured(repo: Path, shell: Shell, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected"
        assert "connected" not in (await shell(connect)).output
        with open_shell(repo, home=tmp_path / "home", network=True) as open_one:
            assert "connected" in (await open_one(connect)).output
            assert open_one.tool.annotations is not None
            assert open_one.tool.annotations.open_world_hint is True


@pytest.mark.parametrize("kind", ["file", "abstract", "in the repository"])
async def test_no_socket_of_the_host_is_reached(repo: Path, shell: Shell, tmp_path: Path, kind: str) -> None:
    path = {"file": str(tmp_path / "s"), "abstract": f"\0fairlead-{os.getpid()}"}.get(kind, str(repo / "s"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connect = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); print('connected')"
        done = await shell(argv=["/usr/bin/python3", "-c", connect.replace("\0", "\\0")])
    assert "connected" not in done.output
    assert "Error" in done.output


async def test_a_socket_of_a_daemon_is_not_there(shell: Shell) -> None:
    done = await shell("ls /run /var/run/docker.sock /run/user /run/dbus /tmp/.X11-unix; ls -A /run | wc -l")
    assert done.output.endswith("0\n")


# ── what it is given ──


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "src/../..", "link", "nothing", "src/main.py"])
async def test_a_command_starts_only_in_a_folder_of_the_repository(
    repo: Path, shell: Shell, cwd: str
) -> None:
    (repo / "link").symlink_to("/")
    with pytest.raises(ToolFailed):
        await shell("pwd", cwd=cwd)
    assert (await shell("pwd", cwd="src")).output == f"{repo}/src\n"


async def test_words_that_no_command_has_are_refused(shell: Shell) -> None:
    refused: list[dict[str, Any]] = [
        {"argv": ["echo", "a\0b"]},
        {"command": "echo \0"},
        {"argv": [""]},
        {"command": "x", "argv": ["x"]},
        {},
        {"argv": ["echo", *(["x" * 90_000] * 2)]},
    ]
    for wrong in refused:
        with pytest.raises(ToolFailed):
            await shell(**wrong)
    assert (await shell(argv=["no-such-program"])).exit_code == 127
    assert (await shell(argv=["echo", "$HOME; `x` $(y)"])).output == "$HOME; `x` $(y)\n"


async def test_a_protected_file_with_two_names_is_refused(repo: Path, shell: Shell) -> None:
    os.link(repo / ".git" / "config", repo / "notes.txt")
    with pytest.raises(ToolFailed, match="hard link"):
        await shell("true")
    assert sorted(os.listdir(repo)) == [".git", "notes.txt", "src"]


# ── its output ──


async def test_a_long_output_is_cut_in_the_middle_and_kept_whole_beside_it(shell: Shell) -> None:
    reply = await shell.reply("seq 1 30000; echo the end")
    output = reply.output
    assert output.truncated
    assert output.output_bytes == len("".join(f"{n}\n" for n in range(1, 30001))) + 8
    assert output.output.startswith("1\n2\n")
    assert output.output.endswith("30000\nthe end\n")
    assert "bytes left out" in output.output
    assert [block.type for block in reply.content] == ["text", "text", "resource"]


@pytest.mark.parametrize(
    ("command", "length"),
    [("head -c 3000000 /dev/zero", 3_000_000), ("head -c 3000000 /dev/zero | tr '\\0' 'x'", 3_000_000)],
    ids=["binary", "no line break"],
)
async def test_any_output_is_taken(shell: Shell, command: str, length: int) -> None:
    done = await shell(command)
    assert done.output_bytes == length
    assert len(done.output) < 50_000


async def test_a_command_that_speaks_like_its_sandbox_is_not_taken_for_one_that_never_began(
    repo: Path, shell: Shell
) -> None:
    outcome = await shell("echo 'bwrap: no'; touch made; exit 1")
    assert (outcome.exit_code, outcome.output, outcome.output_bytes) == (1, "bwrap: no\n", 10)
    assert (repo / "made").exists()


async def test_a_program_that_is_not_there_is_said(shell: Shell) -> None:
    outcome = await shell(argv=["no-such-program"])
    assert outcome.exit_code == 127
    assert "no-such-program" in outcome.output


async def test_bytes_that_are_no_text_are_replaced(shell: Shell) -> None:
    done = await shell("printf 'a\\xff\\xfeb\\xe2\\x82'")
    assert done.output == "a��b�"


async def test_output_is_passed_on_while_a_command_runs(shell: Shell) -> None:
    done = await shell("echo begun; while [ ! -e go ]; do sleep 0.05; done", timeout_seconds=2)
    assert done.exit_code is None
    assert any("begun" in message for _, message in shell.progress.reports)
    times = [seconds for seconds, _ in shell.progress.reports]
    assert times == sorted(times)


# ── its end ──


@pytest.mark.parametrize(
    "start",
    [
        "sleep 987 &",
        "setsid sleep 987 &",
        "nohup sleep 987 > /dev/null 2>&1 &",
        "(trap '' TERM HUP; sleep 987) &",
    ],
)
async def test_no_process_is_left(shell: Shell, start: str) -> None:
    done = await shell(f"{start}\necho started", timeout_seconds=20)
    assert "started" in done.output
    assert await to_thread.run_sync(processes_with, "sleep\0987") == []


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(shell: Shell) -> None:
    done = await shell("setsid sleep 986 & trap '' TERM; sleep 986", timeout_seconds=1)
    assert done.exit_code is None
    assert done.ended_because == "it took longer than 1 seconds"
    assert await to_thread.run_sync(processes_with, "sleep\0986") == []


@pytest.mark.parametrize("moment", ["at once", "once it runs"])
async def test_a_cancelled_call_leaves_no_process_and_no_trace(repo: Path, shell: Shell, moment: str) -> None:
    with anyio.fail_after(SECONDS), anyio.CancelScope() as scope:
        if moment == "at once":
            scope.cancel()
        shell.progress = Progress(on_report=scope.cancel)
        await shell("mkdir -p sub/.git; sleep 985")
    assert scope.cancelled_caught
    assert await to_thread.run_sync(processes_with, "sleep\0985") == []
    assert not (repo / "sub" / ".git").exists()
    assert {*os.listdir(repo)} <= {".git", "src", "sub"}


async def test_commands_in_one_folder_run_one_after_the_other(repo: Path, shell: Shell) -> None:
    async def append(word: str) -> None:
        await shell(f"echo {word} begins >> log; sleep 0.2; echo {word} ends >> log")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, "a")
        tasks.start_soon(append, "b")
    words = (repo / "log").read_text().split("\n")
    assert words[:4] in (
        ["a begins", "a ends", "b begins", "b ends"],
        ["b begins", "b ends", "a begins", "a ends"],
    )


HOST = """
import anyio, sys
from pathlib import Path
from tests.servers.shell.support import open_shell

async def main():
    root = Path(sys.argv[1])
    with open_shell(root, home=root.parent / "home") as shell:
        await shell("touch begun; setsid sleep 984 & sleep 984", timeout_seconds=100)

anyio.run(main)
"""


async def test_a_killed_host_leaves_no_process_and_the_next_one_tidies_up(repo: Path, shell: Shell) -> None:
    host = await anyio.open_process([sys.executable, "-c", HOST, str(repo)], stdout=None, stderr=None)
    await to_thread.run_sync(wait_until, (repo / "begun").exists)
    os.kill(host.pid, signal.SIGKILL)
    await host.wait()
    await to_thread.run_sync(wait_until, lambda: not processes_with("sleep\0984"))
    assert (repo / "fairlead.json").is_dir()  # it could not tidy up
    await shell("true")
    assert sorted(os.listdir(repo)) == [".git", "begun", "src"]
    assert not (repo / ".git" / "commondir").exists()
    assert await to_thread.run_sync(lambda: git(repo, "status", "--short")) == "?? begun\n?? src/\n"


async def test_what_the_user_makes_meanwhile_is_kept(repo: Path, shell: Shell) -> None:
    """An editor outside may save its settings while a command runs."""

    def save() -> None:
        (repo / ".vscode" / "settings.json").write_text("{}")

    shell.progress = Progress(on_report=save)
    done = await shell("sleep 0.7; ls -A .vscode")
    assert done.output == ""
    assert (repo / ".vscode" / "settings.json").read_text() == "{}"
    assert done.held == []


async def test_a_folder_in_another_is_guarded_too(repo: Path, tmp_path: Path) -> None:
    with open_shell(repo, repo / "src", home=tmp_path / "home") as shell:
        done = await shell("mkdir -p src/.idea src/deep/.idea; echo x > src/.envrc; ls", cwd="repo")
    assert [held.path for held in done.held] == ["repo/src/deep/.idea"]
    assert sorted(os.listdir(repo)) == [".git", "src"]
    assert sorted(os.listdir(repo / "src")) == ["deep", "main.py"]


def test_without_bubblewrap_no_command_is_run(repo: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ConnectFailed, match="is not installed"),
        open_shell(repo, home=tmp_path / "home", parent={"PATH": str(tmp_path)}),
    ):
        pass
