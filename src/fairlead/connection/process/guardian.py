"""The host's side of the guardian process: starts servers below it, and learns how they end.

The guardian's own program, and why servers are its descendants rather than ours, is in `reaper.py`.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import anyio

from fairlead.connection.outcomes import SpawnFailed
from fairlead.connection.process.child import (
    TERMINATE_SECONDS,
    Command,
    ProcessLease,
    child_environment,
)
from fairlead.store.protocol import LEASE_CLOCK

logger = logging.getLogger(__name__)

_START_SECONDS = 30.0
"""How long a start may take. The first one waits for the guardian's interpreter, maybe on a busy machine."""

_BUSY_SECONDS = 0.01
_EXIT_SECONDS = 1.0
_GRACE_SECONDS = 0.5
"""How much longer than promised a reaper may take before it is killed and the guardian does its work."""

# Imported rather than run as a script, so that its bytecode is cached; without its package, whose imports
# would double its start. The folder comes last on the path: it has modules that are named like standard ones.
_BOOT = "import sys; sys.path.append(sys.argv[1]); import reaper; reaper.main(int(sys.argv[2]), sys.argv[3])"


_COMMAND_LINE = re.compile(re.escape(_BOOT) + r" .+ (\d+)(?: \d+,-?\d+,-?\d+)+\s*")


def host_of_guardian(command: str) -> int | None:
    """The process id of the host that a guardian, or a reaper of it, was started by.

    Args:
        command: The command line of a process, its words separated by spaces.

    Returns:
        The host, which may be gone; None for any other process.
    """
    found = _COMMAND_LINE.search(command)
    return int(found[1]) if found and found.end() == len(command) else None


class _GuardianGone(Exception):
    """The guardian ended before it had started a server."""


class ServerProcess:
    """A server process below its reaper.

    `on_exit` is called once when the process has exited, or when its reaper is gone, which may leave
    `returncode` at `None`. `gone` is set once the reaper has exited: then no descendant is left.
    """

    def __init__(self, control: socket.socket, on_exit: Callable[[], None]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.gone = asyncio.Event()
        self.on_close: Callable[[], None] = lambda: None
        """Called when it is over for the host; it may be called again."""
        self._reaper_pid = 0
        self._control = control
        self._on_exit: Callable[[], None] | None = on_exit
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._partial = b""
        self._loop.add_reader(control, self._receive)

    async def wait_started(self) -> None:
        """Wait until the program runs. Raises `OSError`, with `filename` set to `folder` or `program`."""
        await self._started

    def stop(self, *, quickly: bool = False) -> None:
        """Ask the reaper to stop the server and all that descends from it."""
        with contextlib.suppress(OSError):  # the reaper is gone, or about to be
            self._control.send(b"stop quickly\n" if quickly else b"stop\n")

    def run_until(self, deadline: float) -> None:
        """Send the reaper another deadline for the server (see `ProcessLease`)."""
        with contextlib.suppress(OSError):  # as above; a reaper that does not read keeps the earlier deadline
            self._control.send(b"until %d %.6f\n" % (LEASE_CLOCK, deadline))

    async def wait_gone(self, seconds: float) -> None:
        """Wait until no descendant is left. A reaper that takes longer is killed: the guardian takes over."""
        with anyio.move_on_after(seconds + _GRACE_SECONDS):
            await self.gone.wait()
        if not self.gone.is_set():
            logger.warning("the reaper of a server did not finish in time", extra={"pid": self.pid})
            # It holds the control socket until it exits, so the pid is its own still.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._reaper_pid, signal.SIGKILL)
            with anyio.move_on_after(_GRACE_SECONDS):
                await self.gone.wait()

    def close(self) -> None:
        """Close the control socket. If the server still runs, its reaper ends it."""
        self._on_exit = None
        self.on_close()
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()

    def _receive(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._note(line.decode().split())
        if not data:
            self._fail(_GuardianGone())
            self.gone.set()
            self._tell_exit()
            self.close()

    def _note(self, words: Sequence[str]) -> None:
        match words:
            case ["pid", pid, reaper_pid]:
                self.pid, self._reaper_pid = int(pid), int(reaper_pid)
                if not self._started.done():
                    self._started.set_result(None)
            case ["error", what, number]:
                self._fail(OSError(int(number), os.strerror(int(number)), what))
            case ["exit", code]:
                self.returncode = int(code)
                self._tell_exit()
            case _:
                logger.warning("a reaper sent an unknown message")

    def _fail(self, exc: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(exc)

    def _tell_exit(self) -> None:
        if (on_exit := self._on_exit) is not None:
            self._on_exit = None
            on_exit()


class _GuardianProcess:
    """One run of the guardian's program, and the socket it takes requests from."""

    def __init__(self) -> None:
        self.owner = _identity()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [_interpreter(), "-I", "-S", "-c", _BOOT, _FOLDER, str(os.getpid()), _resource_limits()],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._channel = ours

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, descriptors: Sequence[int]) -> None:
        """Ask for a reaper that gets these descriptors. Raises `_GuardianGone`."""
        while True:
            try:
                socket.send_fds(self._channel, [b"+"], descriptors)
            except BlockingIOError:
                await anyio.sleep(_BUSY_SECONDS)
            except (BrokenPipeError, ConnectionError) as exc:
                raise _GuardianGone from exc
            else:
                return

    def close(self) -> None:
        """End it, and with it all servers below it."""
        self._channel.close()
        if self.owner[0] != os.getpid():
            # It is our parent's, and so is the decision when it ends.
            self._process.returncode = 0
            return
        try:
            self._process.wait(_EXIT_SECONDS + TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("the guardian still ends servers", extra={"pid": self.pid})
            self._process.returncode = 0  # it exits by itself; nothing here waits for it any more


class Guardian:
    """Starts the servers of one host below a guardian process, which starts with the first of them.

    When the host is gone, by SIGKILL or otherwise, the guardian ends every descendant of every server. If the
    guardian itself is killed, its servers end, and the next start brings a new one. One event loop uses it.
    In a process forked off the host, and after a change of user, servers get another guardian.
    """

    def __init__(self) -> None:
        self._process: _GuardianProcess | None = None
        self._former: list[_GuardianProcess] = []

    @property
    def pid(self) -> int | None:
        """The guardian's pid while it runs."""
        return self._process.pid if self._process else None

    async def start(
        self, command: Command, files: tuple[int, int, int], on_exit: Callable[[], None]
    ) -> ServerProcess:
        """Start a server with these descriptors as stdin, stdout and stderr; they stay the caller's.

        Raises:
            OSError: The program cannot be run; `filename` says whether `folder` or `program` is to blame.
            ValueError: An argument or variable cannot be passed on.
            SpawnFailed: There is no guardian, or the lease of the command has ended.
        """
        if command.lease is not None and command.lease.has_ended:
            raise SpawnFailed("the lease to run it has ended")
        request = _encode_request(command)
        folder = os.open(command.cwd or ".", _FOLDER_FLAGS)
        try:
            descriptors = [folder, *files, *command.descriptors.values()]
            with anyio.fail_after(_START_SECONDS):
                try:
                    return await self._start(request, descriptors, command.lease, on_exit)
                except _GuardianGone:
                    # It was killed. Nothing can have happened twice: what it started ends with it.
                    self._discard()
                    return await self._start(request, descriptors, command.lease, on_exit)
        except _GuardianGone as exc:
            raise SpawnFailed("the guardian, which starts servers, ended twice") from exc
        except TimeoutError as exc:
            raise SpawnFailed(f"the guardian did not start it within {_START_SECONDS:g} s") from exc
        finally:
            os.close(folder)

    async def _start(
        self,
        request: bytes,
        descriptors: Sequence[int],
        lease: ProcessLease | None,
        on_exit: Callable[[], None],
    ) -> ServerProcess:
        process = self._running()
        control, theirs = socket.socketpair()
        control.setblocking(False)
        server = ServerProcess(control, on_exit)
        try:
            with theirs:
                await process.send([theirs.fileno(), *descriptors])
            try:
                await asyncio.get_running_loop().sock_sendall(control, request)
            except ConnectionError as exc:
                raise _GuardianGone from exc
            if lease is not None:  # only now: the request is whole, and no renewal comes in between
                server.on_close = lease.follow(server.run_until)
            await server.wait_started()
        except BaseException:
            server.close()
            raise
        return server

    def _running(self) -> _GuardianProcess:
        if self._process is not None and self._process.owner != _identity():
            self._discard()
        if self._process is None:
            try:
                self._process = _GuardianProcess()
            except OSError as exc:
                raise SpawnFailed(f"the guardian, which starts servers, cannot be run: {exc}") from exc
        return self._process

    def _discard(self) -> None:
        if self._process is not None:
            self._former.append(self._process)
            self._process = None

    def close(self) -> None:
        """End the guardian, and with it all that still runs below it."""
        self._discard()
        while self._former:
            self._former.pop().close()


# Not imported here: Windows has little of what it imports.
_FOLDER = str(Path(__file__).parent)
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)


def _identity() -> tuple[object, ...]:
    """The attributes that servers inherit from the guardian, which it must therefore share with us."""
    return (os.getpid(), os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups())


def _interpreter() -> str:
    """A Python that can run the guardian. A program bundled with its interpreter is none."""
    own = None if getattr(sys, "frozen", False) else sys.executable
    found = own or shutil.which("python3")
    if found is None:
        raise FileNotFoundError("there is no Python interpreter; install `python3`")
    return found


def _encode_request(command: Command) -> bytes:
    """Encode what `reaper.py` decodes. Raises `ValueError` for what no program can be given."""
    env = child_environment(command.env, command.parent)
    if any("=" in name or not name for name in env):
        raise ValueError("illegal environment variable name")
    program = command.argv[0]
    paths = [program]
    if "/" not in program:
        paths = [f"{folder}/{program}" if folder else program for folder in os.get_exec_path(env)]
    deadline = f" {LEASE_CLOCK} {command.lease.deadline:.6f}" if command.lease else ""
    fields = [
        f"{command.exit_seconds} {command.terminate_seconds}{deadline}",
        str(_umask()),
        " ".join(map(str, command.descriptors)),
        _resource_limits(),
        str(len(paths)),
        *paths,
        str(len(command.argv)),
        *command.argv,
        str(len(env)),
        *[f"{name}={value}" for name, value in env.items()],
    ]
    data = os.fsencode("\0".join(fields) + "\0")  # all at once: there may be a hundred
    if data.count(b"\0") != len(fields):
        raise ValueError("embedded null byte")
    return b"%d\0" % len(data) + data


def _resource_limits() -> str:
    """The limits of this process, as `reaper.py` reads them."""
    import resource  # this module is imported on systems that have none

    limits = ((number, *resource.getrlimit(number)) for number in _resource_numbers())
    return " ".join(f"{number},{soft},{hard}" for number, soft, hard in limits)


@cache
def _resource_numbers() -> list[int]:
    import resource

    return sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _umask() -> int:
    """The process's umask. Where the system does not tell it, it has to be set to be read."""
    with contextlib.suppress(OSError), open("/proc/self/status", "rb", buffering=0) as file:
        _, _, rest = file.read(512).partition(b"Umask:")
        if rest:
            return int(rest.split(None, 1)[0], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
