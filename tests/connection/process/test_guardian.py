import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.connection.outcomes import ConnectionClosed, SpawnFailed
from fairlead.connection.process import guardian as guardian_module
from fairlead.connection.process.child import Command
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import call_json, call_large, call_tool, hostile, running

PR_GET_CHILD_SUBREAPER = 37
SECONDS = 30


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def private_memory(pid: int) -> int:
    """How many bytes a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110 - the process table sends no events
            await anyio.sleep(0.01)


@pytest.fixture
async def guardian() -> AsyncGenerator[Guardian]:
    guardian = Guardian()
    yield guardian
    guardian.close()


@asynccontextmanager
async def serving(guardian: Guardian, command: Command | None = None) -> AsyncGenerator[StdioDispatcher]:
    """A server that answers."""
    with anyio.fail_after(SECONDS):
        async with (
            StdioDispatcher(command or hostile(), guardian=guardian) as dispatcher,
            running(dispatcher),
        ):
            await call_tool(dispatcher, "echo")
            yield dispatcher


async def words_of(guardian: Guardian, code: str, **options: Any) -> Any:
    """What a server prints as JSON on its stderr before it exits."""
    with anyio.fail_after(SECONDS):
        command = Command(argv=(sys.executable, "-I", "-S", "-c", code), **options)
        async with StdioDispatcher(command, guardian=guardian) as dispatcher, running(dispatcher):
            await dispatcher.wait_closed()
        return json.loads("".join(dispatcher.stderr.tail.lines))


@pytest.mark.requirement("HARD-19", "NEED-1")
@pytest.mark.parametrize("forked", [False, True])
def test_nothing_outlives_a_killed_host(forked: bool, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.connection.guarded_host", str(tmp_path), *["fork"] * forked]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert host.stdout is not None
    with host.stdout:
        pids = json.loads(host.stdout.readline())
        everyone = [pids["guardian"], *pids["servers"], *pids["grandchildren"]]
        assert all(map(is_alive, everyone))

        began = time.monotonic()
        host.kill()
        host.wait()
        gone = wait_until(lambda: not any(map(is_alive, everyone)))
        if forked:
            os.kill(pids["forked"], signal.SIGKILL)

    assert gone
    assert time.monotonic() - began < 5


async def test_a_guardian_starts_with_the_first_server_and_leaves_at_once(guardian: Guardian) -> None:
    assert guardian.pid is None
    async with serving(guardian) as server:
        pid = guardian.pid
        assert pid is not None
        assert parent_of(parent_of(server.pid)) == pid
    assert guardian.pid == pid
    began = time.monotonic()
    guardian.close()

    assert not is_alive(pid)
    assert time.monotonic() - began < 2


@pytest.mark.requirement("HARD-84")
async def test_one_guardian_is_enough_for_many_servers_and_keeps_none_of_their_processes(
    guardian: Guardian,
) -> None:
    async def one() -> None:
        async with serving(guardian) as server:
            guardians.add(parent_of(parent_of(server.pid)))

    guardians = set[int]()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(one)

    assert guardians == {guardian.pid}
    children = Path(f"/proc/{guardian.pid}/task/{guardian.pid}/children")
    await until(lambda: not children.read_text())


@pytest.mark.requirement("HARD-84")
async def test_the_library_makes_no_subreaper_of_its_own_process(guardian: Guardian) -> None:
    async with serving(guardian):
        found = ctypes.c_int(-1)
        assert ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0) == 0

    assert found.value == 0


@pytest.mark.requirement("HARD-19")
async def test_what_still_runs_ends_with_the_guardian(guardian: Guardian) -> None:
    async with serving(guardian) as server:
        guardian.close()
        await until(lambda: not is_alive(server.pid))


@pytest.mark.requirement("HARD-19")
async def test_a_guardian_heeds_no_signal_that_a_terminal_or_a_supervisor_sends(guardian: Guardian) -> None:
    async with serving(guardian) as server:
        assert guardian.pid is not None
        assert os.getsid(guardian.pid) == guardian.pid
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(guardian.pid, number)
            os.kill(parent_of(server.pid), number)
        await call_tool(server, "echo")
        assert is_alive(guardian.pid)


@pytest.mark.requirement("HARD-84")
async def test_a_killed_guardian_takes_its_servers_along_and_is_replaced(guardian: Guardian) -> None:
    async with serving(guardian, hostile("escaped-grandchild=/dev/null")) as server:
        first = guardian.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        ending = await server.wait_closed()
        assert (ending.kind, ending.signal) == ("exited", signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            await call_tool(server, "echo")

    async with serving(guardian) as server:
        assert guardian.pid not in (None, first)
        assert parent_of(parent_of(server.pid)) == guardian.pid


@pytest.mark.requirement("HARD-84")
async def test_a_killed_reaper_takes_its_server_along_and_no_other(
    guardian: Guardian, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    async with serving(guardian) as neighbour:
        async with serving(guardian, hostile(f"escaped-grandchild={pid_file}")) as server:
            os.kill(parent_of(server.pid), signal.SIGKILL)
            ending = await server.wait_closed()
            assert ending.kind in ("exited", "hung_up")
            await until(lambda: not is_alive(server.pid) and not is_alive(int(pid_file.read_text())))
        await call_tool(neighbour, "echo")


@pytest.mark.requirement("HARD-84")
async def test_descendants_end_when_their_server_crashes_while_the_host_goes_on(
    guardian: Guardian, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    command = hostile(f"escaped-grandchild={pid_file}", terminate_seconds=0.1)
    async with serving(guardian, command) as server:
        os.kill(server.pid, signal.SIGKILL)
        ending = await server.wait_closed()
        assert ending.signal == signal.SIGKILL
        await until(lambda: not is_alive(int(pid_file.read_text())))


async def test_a_process_forked_off_the_host_has_a_guardian_of_its_own(guardian: Guardian) -> None:
    code = """
        import anyio, json, os, sys
        from fairlead.connection.process.guardian import Guardian
        from tests.connection.process.test_guardian import parent_of, serving
        async def pids():
            async with serving(guardian) as server:
                return [guardian.pid, parent_of(parent_of(server.pid))]
        guardian = Guardian()
        first = anyio.run(pids)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps(anyio.run(pids)).encode())
            guardian.close()
            os._exit(0)
        second = json.loads(os.read(reading, 1000))
        os.wait()
        third = anyio.run(pids)
        guardian.close()
        print(json.dumps([first, second, third]))
    """
    lines = "\n".join(line[8:] for line in code.splitlines())
    done = await anyio.run_process([sys.executable, "-W", "ignore", "-c", lines], stderr=None)
    first, second, third = json.loads(done.stdout)
    assert first == third
    assert first[0] == first[1] != second[0] == second[1]


def test_hosts_in_several_threads_do_not_disturb_each_other() -> None:
    async def serve(number: int) -> None:
        guardian = Guardian()
        try:
            for _ in range(3):
                async with serving(guardian) as server:
                    answered.append(await call_json(server, "echo", number=number) == {"number": number})
        finally:
            guardian.close()

    answered: list[bool] = []
    threads = [threading.Thread(target=anyio.run, args=(serve, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    # A thread that ends takes none of its guardian's servers, or the guardian, along.
    assert answered == [True] * 12


# What a server inherits.


STATE = """
import json, os, resource, signal, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
os.umask(umask := os.umask(0))
print(json.dumps({
    "ignored": status["SigIgn"].strip(), "blocked": status["SigBlk"].strip(), "umask": umask,
    "limit": resource.getrlimit(resource.RLIMIT_NOFILE), "folder": os.getcwd(),
    "session": os.getsid(0) == os.getpid(), "files": sorted(os.listdir("/proc/self/fd"))[:-1],
}), file=sys.stderr)
"""


@pytest.mark.requirement("HARD-6")
async def test_a_server_has_default_signals_whatever_its_host_ignores_or_blocks(guardian: Guardian) -> None:
    # Python itself ignores two of them.
    expected = await words_of(guardian, STATE)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGUSR1)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    other = Guardian()
    try:
        found = await words_of(other, STATE)
    finally:
        other.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)

    python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert [int(found[name], 16) for name in ("ignored", "blocked")] == [python, 0]
    assert found == expected
    assert found["session"]
    assert found["files"] == ["0", "1", "2"]


async def test_a_server_gets_what_its_host_has_when_it_starts(
    guardian: Guardian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await words_of(guardian, STATE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0o027)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        found = await words_of(guardian, STATE)
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (found["umask"], found["limit"], found["folder"]) == (0o027, [soft - 1, hard], str(tmp_path))


async def test_a_host_that_becomes_another_user_starts_no_server_as_the_former(guardian: Guardian) -> None:
    code = "import os, sys; print(os.getegid(), file=sys.stderr)"
    former = os.getegid()
    if os.geteuid() != 0:
        return  # only the superuser can
    assert await words_of(guardian, code) == former
    os.setegid(former + 1)
    try:
        assert await words_of(guardian, code) == former + 1
    finally:
        os.setegid(former)


@pytest.mark.requirement("HARD-6")
async def test_further_files_have_the_numbers_that_are_asked_for(guardian: Guardian, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    one, two = os.open(tmp_path / "one", os.O_RDONLY), os.open(tmp_path / "two", os.O_RDONLY)
    # Crossed with what they are here, and with what the guardian may use itself.
    numbers = {two: one, one: two, 3: one, 7: two, 40: one}
    code = (
        "import json, os, sys; found = {fd: os.pread(int(fd), 9, 0).decode() for fd in sys.argv[1:]}; "
        "print(json.dumps(found), file=sys.stderr)"
    )
    try:
        command = (sys.executable, "-I", "-S", "-c", code, *map(str, numbers))
        with anyio.fail_after(SECONDS):
            dispatcher = StdioDispatcher(Command(argv=command, descriptors=numbers), guardian=guardian)
            async with dispatcher, running(dispatcher):
                await dispatcher.wait_closed()
    finally:
        os.close(one)
        os.close(two)

    found = json.loads("".join(dispatcher.stderr.tail.lines))
    assert found == {str(number): "1" if fd == one else "2" for number, fd in numbers.items()}


@pytest.mark.requirement("HARD-84")
async def test_servers_start_where_a_host_has_many_open_files(guardian: Guardian) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1500
    if hard < wanted + 200:
        pytest.skip("so many files may not be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(wanted)]
    try:
        async with serving(guardian) as server:
            assert len([name for name in await call_json(server, "files") if name.startswith("pipe")]) == 3
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("HARD-84")
@pytest.mark.parametrize("free", range(9))
async def test_a_start_with_too_few_free_descriptors_fails_and_leaves_none_open(
    guardian: Guardian, free: int
) -> None:
    await words_of(guardian, STATE)  # the guardian runs: what is missing is missed by the server's start
    before = sorted(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 20, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        dispatcher = StdioDispatcher(Command(argv=(sys.executable, "-c", "")), guardian=guardian)
        with anyio.fail_after(SECONDS), pytest.raises(SpawnFailed, match="too many files are open"):
            async with dispatcher:
                pytest.fail("it started")
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_request_larger_than_a_socket_holds_arrives(guardian: Guardian) -> None:
    values = {f"LARGE_{number}": "x" * 100_000 for number in range(12)}
    async with serving(guardian, hostile(env=values)) as server:
        environment: Mapping[str, str] = await call_large(server, "environment")

    assert values.items() <= environment.items()


# What cannot be started.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"argv": ("cat", "x" * 3_000_000)}, "cat cannot be run: Argument list too long"),
        ({"argv": ("cat",), "env": {"A=B": "c"}}, "cat cannot be run: illegal environment variable name"),
        ({"argv": ("cat",), "env": {"A": "b\0c"}}, "cat cannot be run: embedded null byte"),
        ({"argv": ("./cat",), "cwd": Path("/usr/lib")}, "there is no program ./cat"),
        ({"argv": ("cat",), "env": {"PATH": "/no/such:/etc"}}, "there is no program cat"),
        ({"argv": ("passwd",), "env": {"PATH": "/no/such:/etc:/usr"}}, "passwd may not be run"),
        ({"argv": ("/",)}, "/ is a folder, not a program"),
        ({"argv": ("cat",), "cwd": Path("/etc/passwd")}, "there is no folder /etc/passwd"),
    ],
)
async def test_what_cannot_be_started_says_why_and_leaves_the_guardian_as_it_was(
    guardian: Guardian, options: dict[str, Any], message: str
) -> None:
    async with serving(guardian) as neighbour:
        files = len(os.listdir("/proc/self/fd"))
        with pytest.raises(SpawnFailed, match=message):
            await StdioDispatcher(Command(**options), guardian=guardian).__aenter__()
        assert len(os.listdir("/proc/self/fd")) == files
        await call_tool(neighbour, "echo")


async def test_a_script_without_an_interpreter_says_so(guardian: Guardian, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    with pytest.raises(SpawnFailed, match="Exec format error"):
        await StdioDispatcher(Command(argv=(str(script),)), guardian=guardian).__aenter__()


async def test_a_start_that_is_cancelled_leaves_nothing(guardian: Guardian) -> None:
    async with serving(guardian):
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            with anyio.CancelScope() as scope:
                scope.cancel()
                async with StdioDispatcher(hostile(), guardian=guardian):
                    # A start may be over before the cancellation arrives, which is here at the latest.
                    await anyio.sleep(60)
                    pytest.fail("it had been cancelled")
        children = Path(f"/proc/{guardian.pid}/task/{guardian.pid}/children")
        await until(lambda: len(children.read_text().split()) == 1)
        assert len(os.listdir("/proc/self/fd")) == files


async def test_a_host_without_an_interpreter_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, guardian: Guardian
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SpawnFailed, match="the guardian, which starts servers, cannot be run"):
        await StdioDispatcher(hostile(), guardian=guardian).__aenter__()

    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setenv("PATH", "/no/such")
    with pytest.raises(SpawnFailed, match="install `python3`"):
        await StdioDispatcher(hostile(), guardian=guardian).__aenter__()


async def test_a_program_bundled_with_its_interpreter_takes_another_for_the_guardian(
    monkeypatch: pytest.MonkeyPatch, guardian: Guardian
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    command = hostile()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with serving(guardian, command):
        assert guardian.pid is not None


async def test_a_guardian_that_always_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, guardian: Guardian
) -> None:
    monkeypatch.setattr(guardian_module, "_BOOT", "pass")
    with anyio.fail_after(SECONDS), pytest.raises(SpawnFailed, match="ended twice"):
        await StdioDispatcher(hostile(), guardian=guardian).__aenter__()


@pytest.mark.requirement("HARD-84")
async def test_a_reaper_has_little_memory_of_its_own(guardian: Guardian) -> None:
    async with serving(guardian) as server:
        assert private_memory(parent_of(server.pid)) < 2048 * 1024
