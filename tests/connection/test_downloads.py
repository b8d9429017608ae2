"""A download that goes before a server's start is shown, and is no part of the start's time."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from fairlead.config.models import ServerLimits
from fairlead.connection.connection import Connection
from fairlead.connection.process.child import Command
from fairlead.connection.process.downloads import DownloadWatch
from fairlead.connection.supervisor import Supervisor
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import ConnectFailed
from fairlead.testing import scripted_program
from tests.conftest import Machine, Outcome
from tests.connection.test_connection import supervised

Fairlead = Callable[..., Outcome]

# What the tools write to stderr without a terminal, as recorded from uv 0.13, npm 11 and Docker 27.
UV = ("Downloading numpy (16.1MiB)", "Downloading mypy (14.7MiB)", " Downloaded mypy", " Downloaded numpy")
UV_END = "Installed 8 packages in 67ms"
NPM = ("npm warn exec The following package was not found and will be installed: cowsay@1.6.0",)
DOCKER = (
    "Unable to find image 'acme/mcp:latest' locally",
    "latest: Pulling from acme/mcp",
    "0123456789ab: Pulling fs layer",
)
DOCKER_END = "Status: Downloaded newer image for acme/mcp:latest"

RUNNER = """#!{python} -IS
import os, sys, time
def say(*lines):
    for line in lines:
        os.write(2, line.encode() + b"\\n")
        time.sleep({pause})
say(*{lines!r})
time.sleep({seconds})
say(*{end!r})
if not {server!r}: time.sleep(60)
os.execv(sys.executable, [sys.executable, "-I", "-S", {program!r}, {server!r}])
"""


def write_runner(path: Path, lines: tuple[str, ...], *end: str, seconds: float, server: str = "") -> str:
    """A program that writes what a package runner does, and then is the scripted server, or nothing."""
    path.write_text(
        RUNNER.format(
            python=sys.executable,
            pause=0.1,
            lines=lines,
            end=end,
            seconds=seconds,
            server=server,
            program=scripted_program.__file__,
        )
    )
    path.chmod(0o755)
    return str(path)


def script(tmp_path: Path) -> str:
    return json.dumps({"record": str(tmp_path / "record"), "tools": ["echo"]})


@pytest.mark.parametrize(
    ("lines", "end"), [(UV, (UV_END,)), (NPM, ()), (DOCKER, (DOCKER_END,))], ids=["uv", "npm", "docker"]
)
async def test_a_download_that_can_be_seen_is_no_part_of_the_start(
    tmp_path: Path, lines: tuple[str, ...], end: tuple[str, ...]
) -> None:
    runner = write_runner(tmp_path / "uvx", lines, *end, seconds=6, server=script(tmp_path))
    told: list[str | None] = []
    command = Command(argv=(runner, "some-server"))
    async with supervised() as tasks:
        supervisor = Supervisor(
            "x",
            ServerLimits(startup_timeout_ms=5_000),
            [lambda: StdioDispatcher(command)],
            tasks=tasks,
            on_download=told.append,
        )
        connection = Connection(supervisor)
        with anyio.fail_after(60):
            await connection.ready()
        assert connection.vitals.download is None
        assert connection.vitals.notes == ()
        await connection.aclose()
    # On a busy machine, some lines are there before anything could listen: then the latest of them is shown.
    shown = [line.strip() for line in lines]
    assert told[0] in shown
    shown = shown[shown.index(told[0]) :]
    assert told[: len(shown)] == shown
    assert told[-1] is None
    started = [line for line in (tmp_path / "record").read_text().splitlines() if "started" in line]
    assert len(started) == 1, "what is downloaded is not interrupted and begun again"


async def test_a_download_that_was_seen_before_the_start_is_watched_is_shown(tmp_path: Path) -> None:
    runner = write_runner(tmp_path / "uvx", (), seconds=0, server=script(tmp_path))
    told: list[str | None] = []

    def transport() -> StdioDispatcher:
        dispatcher = StdioDispatcher(Command(argv=(runner, "some-server")))
        dispatcher.downloads.feed(UV[0])
        return dispatcher

    async with supervised() as tasks:
        limits = ServerLimits(startup_timeout_ms=30_000)
        supervisor = Supervisor("x", limits, [transport], tasks=tasks, on_download=told.append)
        connection = Connection(supervisor)
        with anyio.fail_after(60):
            await connection.ready()
        await connection.aclose()
    assert told == [UV[0], None]


class _ShortWatch(DownloadWatch):
    def __init__(self) -> None:
        super().__init__(limit=1.0)


async def test_a_download_that_does_not_end_ends_at_its_own_limit(tmp_path: Path) -> None:
    runner = write_runner(tmp_path / "uvx", UV, seconds=60)
    command = Command(argv=(runner, "some server"))

    def transport() -> StdioDispatcher:
        dispatcher = StdioDispatcher(command)
        dispatcher.downloads = _ShortWatch()
        return dispatcher

    async with supervised() as tasks:
        connection = Connection(
            Supervisor("x", ServerLimits(startup_timeout_ms=900), [transport], tasks=tasks)
        )
        with anyio.fail_after(60), pytest.raises(ConnectFailed, match="still downloading after") as raised:
            await connection.ready()
        await connection.aclose()
    assert "Downloaded numpy" in str(raised.value)
    assert f"run `{runner} 'some server'` once in a terminal" in (raised.value.hint or "")


async def test_a_runner_that_says_nothing_gets_the_hint_to_run_it_once(tmp_path: Path) -> None:
    runner = write_runner(tmp_path / "npx", (), seconds=60)
    async with supervised() as tasks:
        command = Command(argv=(runner, "-y", "some-server"))
        limits = ServerLimits(startup_timeout_ms=1_000)
        connection = Connection(Supervisor("x", limits, [lambda: StdioDispatcher(command)], tasks=tasks))
        with pytest.raises(ConnectFailed, match="not ready after") as raised:
            await connection.ready()
        await connection.aclose()
    assert f"it may be downloading the server: run `{runner} -y some-server` once" in (
        raised.value.hint or ""
    )


async def test_what_a_server_itself_writes_ends_the_download() -> None:
    watch = DownloadWatch()
    scope = anyio.CancelScope(deadline=anyio.current_time() + 5)
    with scope, watch.holding(scope, 5, is_whole=False):
        watch.feed("Downloading numpy (16.1MiB)\nnpm notice a new version\n")
        assert (watch.current, scope.deadline) == ("Downloading numpy (16.1MiB)", float("inf"))
        watch.feed("Server ready")
        assert watch.current is None
        assert scope.deadline < float("inf")
        watch.feed("Unable to find image 'x' locally")
        assert watch.current is not None
        watch.finish()
        assert watch.current is None
        watch.feed("a line as any other")
        assert watch.current is None


@pytest.mark.slow
def test_the_command_line_shows_the_download_and_waits_for_it(
    fairlead: Fairlead, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    write_runner(folder / "uvx", UV, UV_END, seconds=2, server=script(tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    entry = {"command": "uvx", "args": ["some-server"], "startup_timeout_ms": 1_500, "trust": "trusted"}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    outcome = fairlead("test", "x")
    assert outcome.status == 0, outcome.err
    assert "x: Downloading numpy (16.1MiB)\n" in outcome.err
    outcome = fairlead("tools", "x", "--refresh")
    assert outcome.status == 0
    assert "x: Downloading numpy (16.1MiB)\n" in outcome.err
