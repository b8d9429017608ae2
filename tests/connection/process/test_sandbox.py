"""What a server in a sandbox can and cannot do, tried out with the real bubblewrap."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.bubblewrap import SandboxView, bwrap_arguments
from fairlead.connection.process.child import Command, child_environment
from fairlead.connection.process.sandbox import SandboxRequest, pack_without_program, wrap_in_sandbox
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import ConnectFailed
from fairlead.testing.fixtures import Link, write_tree
from tests.conftest import Machine
from tests.connection.boxed_host import started, stubborn
from tests.connection.servers import SERVERS
from tests.host.support import hosting

with_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: `apt install bubblewrap`"
)

TRY = """
import json, os, socket, sys

def attempt(what, *arguments):
    try:
        return DEEDS[what](*arguments)
    except OSError as exc:
        return type(exc).__name__

def write(path):
    with open(path, "w") as file:
        file.write("written")
    return "written"

def connect(port):
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    return "connected"

DEEDS = {
    "read": lambda path: open(path).read(),
    "list": lambda path: sorted(os.listdir(path)),
    "write": write,
    "connect": connect,
    "cwd": os.getcwd,
    "variable": os.environ.get,
    "processes": lambda: [int(name) for name in os.listdir("/proc") if name.isdigit()],
    "capabilities": lambda: [line for line in open("/proc/self/status") if line.startswith("CapEff")][0],
}
print(json.dumps([attempt(*deed) for deed in json.loads(sys.argv[1])]))
"""


def run(command: Command) -> subprocess.CompletedProcess[str]:
    env = child_environment(command.env, command.parent)
    return subprocess.run(command.argv, env=env, capture_output=True, text=True, timeout=60, check=False)


def attempts(
    *deeds: tuple[Any, ...],
    wanted: SandboxRequest,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """What became of each deed that a program in such a sandbox tried."""
    argv = (sys.executable, "-I", "-S", "-c", TRY, json.dumps([list(map(plain, deed)) for deed in deeds]))
    done = run(wrap_in_sandbox("x", Command(argv=argv, cwd=cwd, env=env or {}), wanted))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(part: object) -> object:
    return str(part) if isinstance(part, Path) else part


def refusal(command: Command, wanted: SandboxRequest) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as caught:
        wrap_in_sandbox("x", command, wanted)
    return caught.value


@pytest.fixture
def listener() -> Generator[int]:
    """A port on this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_folder_is_mounted_before_what_is_in_it() -> None:
    shown: dict[Path, Any] = {Path("/home/me/code/out"): "write", Path("/home/me/code"): "read"}
    words = bwrap_arguments(
        SandboxView(home=Path("/home/me"), cwd=Path("/home/me/code"), network=False, shown=shown)
    )
    line = " ".join(words)
    home, code, out = (line.index(f" {path} ") for path in ("/home/me", "/home/me/code", "/home/me/code/out"))
    assert home < code < out
    assert "--ro-bind /home/me/code /home/me/code" in line
    assert "--bind /home/me/code/out" in line
    assert "--unshare-all" in words
    assert "--share-net" not in words


@with_bubblewrap
def test_the_home_is_not_there_and_nothing_outside_can_be_written(machine: Machine) -> None:
    write_tree(machine.home, {".ssh": {"id": "secret"}, "notes": "private"})
    (other := machine.home.parent / "elsewhere").mkdir()
    assert attempts(
        ("list", machine.home),
        ("read", machine.home / ".ssh" / "id"),
        ("write", machine.home / "mine"),
        ("write", "/etc/written"),
        ("write", "/written"),
        ("write", other / "written"),
        ("read", "/etc/passwd"),
        wanted=SandboxRequest(home=machine.home),
    ) == [
        [],
        "FileNotFoundError",
        "written",
        "OSError",
        "OSError",
        "FileNotFoundError",
        Path("/etc/passwd").read_text(),
    ]
    assert not (machine.home / "mine").exists(), "its home is its own"
    assert list(other.iterdir()) == []


@with_bubblewrap
def test_named_paths_can_be_read_or_written(machine: Machine) -> None:
    tree = {"real": {"in": "old"}, "book": {"page": "text"}, "other": "hidden"}
    data = write_tree(machine.home / "data", tree)
    wanted = SandboxRequest(home=machine.home, read=(data / "book",), write=(data / "real",))
    assert attempts(
        ("read", data / "book" / "page"),
        ("write", data / "book" / "page"),
        ("write", data / "real" / "new"),
        ("read", data / "other"),
        wanted=wanted,
    ) == ["text", "OSError", "written", "FileNotFoundError"]
    assert sorted(path.name for path in (data / "real").iterdir()) == ["in", "new"]


@with_bubblewrap
def test_what_is_only_to_be_read_stays_so_inside_what_may_be_written(machine: Machine) -> None:
    code = write_tree(machine.home / "code", {".git": {"config": "kept"}})
    wanted = SandboxRequest(home=machine.home, read=(code / ".git",), write=(code,))
    done = attempts(("write", code / "new"), ("write", code / ".git" / "config"), wanted=wanted, cwd=code)
    assert done == ["written", "OSError"]


@with_bubblewrap
def test_it_starts_in_the_folder_its_entry_names_or_in_its_own_home(machine: Machine) -> None:
    write_tree(machine.project, {"file": "text"})
    wanted = SandboxRequest(home=machine.home)
    done = attempts(("cwd",), ("read", "file"), ("write", "file"), wanted=wanted, cwd=machine.project)
    assert done == [str(machine.project), "text", "OSError"]
    (machine.home / "file").write_text("private")
    for cwd in (None, machine.home, machine.home.parent):
        done = attempts(("cwd",), ("list", "."), wanted=wanted, cwd=cwd)
        assert done == [str(machine.home), []], "a folder that holds the home is not shown"


@with_bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_the_network_is_there_only_if_allowed(network: bool, machine: Machine, listener: int) -> None:
    done = attempts(("connect", listener), wanted=SandboxRequest(home=machine.home, network=network))
    assert (done == ["connected"]) == network


@with_bubblewrap
def test_the_users_sockets_processes_and_rights_are_not_there(machine: Machine) -> None:
    env = {"XDG_RUNTIME_DIR": "/run/user/0", "TMPDIR": "/elsewhere"}
    parent = dict(os.environ) | env
    argv = (
        sys.executable,
        "-I",
        "-S",
        "-c",
        TRY,
        json.dumps(
            [
                ["list", "/run"],
                ["list", "/tmp"],
                ["processes"],
                ["capabilities"],
                ["variable", "XDG_RUNTIME_DIR"],
                ["variable", "TMPDIR"],
            ]
        ),
    )
    done = run(wrap_in_sandbox("x", Command(argv=argv, parent=parent), SandboxRequest(home=machine.home)))
    runtime, temporary, processes, capabilities, *variables = json.loads(done.stdout)
    assert (runtime, variables) == ([], [None, None])
    # The test's own home is below /tmp, and Python may be: the ways to them are there, and nothing else.
    there = [Path(sys.prefix), Path(sys.base_prefix), Path.cwd(), machine.home]
    assert {*temporary} <= {path.parts[2] for path in there if path.is_relative_to("/tmp")}
    assert len(processes) <= 2
    assert capabilities.split()[1].strip("0") == ""


@with_bubblewrap
def test_variables_that_load_code_do_not_reach_bubblewrap_itself(machine: Machine) -> None:
    env = {"LD_LIBRARY_PATH": "/mine", "TOKEN": "secret"}
    command = wrap_in_sandbox("x", Command(argv=("true",), env=env), SandboxRequest(home=machine.home))
    assert "LD_LIBRARY_PATH" not in command.env
    assert not any("secret" in word for word in command.argv), "other users can read a command line"
    done = attempts(
        ("variable", "LD_LIBRARY_PATH"),
        ("variable", "TOKEN"),
        wanted=SandboxRequest(home=machine.home),
        env=env,
    )
    assert done == ["/mine", "secret"]


@with_bubblewrap
def test_a_program_in_the_home_brings_what_it_needs_and_no_more(machine: Machine) -> None:
    tool = machine.home / "tools" / "thing"
    write_tree(machine.home, {"private": "x"})
    script = "#!/bin/sh\ncat $(dirname $0)/../lib/words\nls -A $HOME\n"
    write_tree(tool, {"bin": {"thing": script}, "lib": {"words": "hello\n"}, "state": {"token": "x"}})
    (tool / "bin" / "thing").chmod(0o755)
    wanted = SandboxRequest(home=machine.home)
    done = run(wrap_in_sandbox("x", Command(argv=("bin/thing",), cwd=tool / "lib" / ".."), wanted))
    assert done.stdout.splitlines()[:1] == ["hello"], done.stderr
    path = os.pathsep.join([str(tool / "bin"), os.environ["PATH"]])
    done = run(wrap_in_sandbox("x", Command(argv=("thing",), env={"PATH": path}), wanted))
    assert done.stdout.splitlines() == ["hello", "tools"], done.stderr
    (machine.home / "lone").write_text("#!/bin/sh\nls -A $HOME\n")
    (machine.home / "lone").chmod(0o755)
    done = run(wrap_in_sandbox("x", Command(argv=("./lone",), cwd=machine.home), wanted))
    assert done.stdout.splitlines() == ["lone"], done.stderr


@with_bubblewrap
def test_a_package_script_finds_its_packages_and_its_interpreter(machine: Machine) -> None:
    package = {"cli.js": "#!/usr/bin/env -S words\n", "data": "from the package\n"}
    modules = {".bin": {"cli": Link("../pkg/cli.js")}, "pkg": package}
    write_tree(machine.home, {"code": {"node_modules": modules}, "runtime": {"bin": {"words": ""}}})
    runtime = machine.home / "runtime" / "bin" / "words"
    runtime.write_text('#!/bin/sh\ncat "$(dirname "$(readlink -f "$1")")/data"\n')
    for program in (runtime, machine.home / "code/node_modules/pkg/cli.js"):
        program.chmod(0o755)
    command = Command(
        argv=(str(machine.home / "code/node_modules/.bin/cli"),),
        env={"PATH": f"{runtime.parent}:{os.environ['PATH']}"},
    )
    done = run(wrap_in_sandbox("x", command, SandboxRequest(home=machine.home)))
    assert done.stdout == "from the package\n", done.stderr


@with_bubblewrap
def test_a_home_behind_a_link_is_found_under_both_names(machine: Machine) -> None:
    link = machine.home.parent / "linked"
    link.symlink_to(machine.home)
    (machine.home / "out").mkdir()
    done = attempts(
        ("list", link),
        ("write", link / "out" / "a"),
        ("write", machine.home / "out" / "b"),
        wanted=SandboxRequest(home=link, write=(link / "out",)),
    )
    assert done == [["out"], "written", "written"]


@with_bubblewrap
@pytest.mark.parametrize("field", ["read", "write"])
def test_a_path_that_is_missing_or_everything_is_refused(field: str, machine: Machine) -> None:
    for path, words in (
        (machine.home / "nowhere", "is not there"),
        (machine.home, "the whole home"),
        (Path("/"), "the whole home"),
    ):
        named = replace(SandboxRequest(home=machine.home), **{field: (path,)})
        error = refusal(Command(argv=("true",)), named)
        assert f"`sandbox.{field}` names {path}" in str(error)
        assert words in str(error)
        assert error.hint


@with_bubblewrap
def test_a_program_folder_or_argument_that_will_not_be_there_is_said_at_once(machine: Machine) -> None:
    wanted = SandboxRequest(home=machine.home)
    assert "there is no program nonesuch" in str(refusal(Command(argv=("nonesuch",)), wanted))
    gone = machine.home / "gone"
    assert f"there is no folder {gone}" in str(refusal(Command(argv=("true",), cwd=gone), wanted))
    (script := machine.home / "server.py").write_text("")
    error = refusal(Command(argv=("true", str(script))), wanted)
    assert f"{script}, which is not in its sandbox" in str(error)
    assert "sandbox.read" in str(error.hint)
    wrap_in_sandbox("x", Command(argv=("true", str(machine.home), "/", "/tmp", "/dev/null")), wanted)


async def test_without_bubblewrap_the_server_is_not_started(machine: Machine, tmp_path: Path) -> None:
    (bare := tmp_path / "bin").mkdir()
    (bare / "touch").symlink_to(shutil.which("touch") or "")
    env = machine.env | {"PATH": str(bare)}
    marker = tmp_path / "started"
    entry: dict[str, Any] = {"command": "touch", "args": [str(marker)], "sandbox": {}}
    async with hosting(Machine(home=machine.home, project=machine.project, env=env), x=entry) as host:
        failure = (await host.connect("x"))["x"]
    assert isinstance(failure, ConnectFailed)
    assert "bubblewrap (`bwrap`) is not installed" in str(failure)
    assert "not started without one" in str(failure.hint)
    assert not marker.exists()


def test_where_bubblewrap_cannot_work_it_says_why_and_what_helps(machine: Machine, tmp_path: Path) -> None:
    broken = write_tree(tmp_path / "bin", {"bwrap": ""}) / "bwrap"
    broken.chmod(0o755)
    command = Command(argv=("true",), parent={"PATH": str(broken.parent)})
    for script, words in (
        ("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n", "No permissions"),
        ("#!/bin/sh\nexit 3\n", "exited with code 3"),
        ("#!/nowhere/at/all\n", "No such file"),
    ):
        broken.write_text(script)
        error = refusal(command, SandboxRequest(home=machine.home))
        assert "bubblewrap does not work here: " in str(error)
        assert words in str(error)
        assert "unprivileged_userns" in str(error.hint)


@with_bubblewrap
def test_a_bubblewrap_in_a_folder_that_commands_may_write_is_not_used(
    machine: Machine, tmp_path: Path
) -> None:
    # An activated environment of a repository comes first on PATH, with what a command wrote there.
    write_tree(machine.project / ".venv" / "bin", {"bwrap": f"#!/bin/sh\ntouch {tmp_path}/escaped\n"})
    planted = machine.project / ".venv" / "bin" / "bwrap"
    planted.chmod(0o755)
    (linked := tmp_path / "linked").symlink_to(planted.parent)
    (also := tmp_path / "also").mkdir()
    (also / "bwrap").symlink_to(planted)
    wanted = SandboxRequest(home=machine.home, write=(machine.project,))
    for folder in (planted.parent, linked, also):
        parent = {"PATH": os.pathsep.join((str(folder), os.environ["PATH"]))}
        assert wrap_in_sandbox("x", Command(argv=("true",), parent=parent), wanted).argv[0] != str(
            folder / "bwrap"
        )
        found, _ = pack_without_program("x", wanted, parent)
        assert os.path.realpath(found) == os.path.realpath(shutil.which("bwrap") or "")
    assert "not installed" in str(refusal(Command(argv=("true",), parent={"PATH": str(also)}), wanted))
    assert not (tmp_path / "escaped").exists()


@with_bubblewrap
async def test_a_whole_server_works_in_its_sandbox(machine: Machine) -> None:
    (machine.home / "out").mkdir()
    entry = {
        "command": sys.executable,
        "args": [str(SERVERS / "sdk_stdio.py")],
        "trust": "trusted",
        "approval": "allow",
        "sandbox": {"read": [str(SERVERS)], "write": ["~/out", "../home/out"]},
    }
    async with hosting(machine, x=entry) as host:
        result = await host.call("x", "add", {"a": 2, "b": 3})
    assert result.text == "5"


@with_bubblewrap
async def test_an_exit_code_and_the_last_words_come_through(machine: Machine) -> None:
    script = "import sys; print('no such key', file=sys.stderr); sys.exit(7)"
    entry: dict[str, Any] = {"command": sys.executable, "args": ["-c", script], "sandbox": {}}
    async with hosting(machine, x=entry) as host:
        failure = (await host.connect("x"))["x"]
    assert "exited with code 7" in str(failure)
    assert "no such key" in str(failure)


def marked(marker: str) -> list[int]:
    """The processes that have the marker among their arguments, and run."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@with_bubblewrap
@pytest.mark.requirement("HARD-18")
async def test_a_stubborn_server_and_its_children_end_with_their_sandbox(machine: Machine) -> None:
    marker = f"marker-{os.urandom(8).hex()}"
    with anyio.fail_after(30):
        async with started(StdioDispatcher(stubborn(machine.home, marker))):
            assert len(marked(marker)) >= 3
    assert wait_until(lambda: not marked(marker))


@with_bubblewrap
@pytest.mark.requirement("HARD-19", "NEED-1")
def test_nothing_in_a_sandbox_outlives_a_killed_host(machine: Machine) -> None:
    marker = f"marker-{os.urandom(8).hex()}"
    argv = [sys.executable, "-m", "tests.connection.boxed_host", str(machine.home), marker]
    root = Path(__file__).parents[3]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True, cwd=root)
    assert host.stdout is not None
    with host.stdout:
        assert host.stdout.readline() == b"started\n"
        assert len(marked(marker)) >= 3
        host.send_signal(signal.SIGKILL)
        host.wait(10)
    assert wait_until(lambda: not marked(marker), 5)


@with_bubblewrap
@pytest.mark.requirement("HARD-73")
def test_of_etc_there_is_what_programs_need_and_nothing_that_only_its_owner_reads(machine: Machine) -> None:
    private = ("shadow", "gshadow", "shadow-", "sudoers", "ssl/private", "ssh", "sudoers.d", "krb5.keytab")
    listed, *others = attempts(
        ("list", "/etc"),
        ("read", "/etc/hosts"),
        *(("list" if Path("/etc", name).is_dir() else "read", f"/etc/{name}") for name in private),
        wanted=SandboxRequest(home=machine.home),
    )
    assert others == [Path("/etc/hosts").read_text(), *["FileNotFoundError"] * len(private)]
    assert {"hosts", "passwd", "group"} <= {*listed}
    modes = {name: Path("/etc", name).stat().st_mode for name in listed if Path("/etc", name).exists()}
    assert [name for name, mode in modes.items() if not mode & 0o004] == []


PROGRAM = """
import json, locale, pwd, os, socket, ssl, time, urllib.request
print(json.dumps({
    "certificates": ssl.create_default_context().cert_store_stats()["x509_ca"] > 0
        or os.path.isdir(ssl.get_default_verify_paths().capath or ""),
    "user": pwd.getpwuid(os.getuid()).pw_name,
    "service": socket.getservbyname("https"),
    "localhost": socket.gethostbyname("localhost"),
    "zone": time.tzname[0],
}))
"""


@with_bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_programs_find_names_users_time_and_certificates_in_the_sandbox(
    machine: Machine, *, network: bool
) -> None:
    command = Command(argv=(sys.executable, "-I", "-c", PROGRAM))
    plain, boxed = (
        subprocess.run(each.argv, capture_output=True, text=True, timeout=60, check=True).stdout
        for each in (
            command,
            wrap_in_sandbox("x", command, SandboxRequest(home=machine.home, network=network)),
        )
    )
    assert json.loads(boxed) == json.loads(plain)


@with_bubblewrap
def test_a_file_of_etc_that_the_entry_names_can_be_read(machine: Machine) -> None:
    named = Path("/etc/fstab")
    wanted = SandboxRequest(home=machine.home, read=(named,))
    assert attempts(("read", named), wanted=wanted) == [named.read_text()]
