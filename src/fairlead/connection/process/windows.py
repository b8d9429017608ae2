"""Server processes on Windows: a job object holds each with its descendants, so that they end together.

The SDK's helpers make the job. Its handle closes with the host, and Windows then kills the job's members, so
no guardian is needed. The pipes are streams there, which is why tasks carry what transports push elsewhere.
"""

import asyncio
import os

import anyio
import anyio.abc
import anyio.to_thread
from mcp.os.win32.utilities import (
    ServerProcess,
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)

from fairlead.connection.process.child import (
    KILL_SECONDS,
    LAST_WORDS_SECONDS,
    MAX_WAITING_BYTES,
    QUICK_EXIT_SECONDS,
    Command,
    ProcessListener,
    child_environment,
    explain_spawn_error,
)

_CHUNK_BYTES = 65536
_STREAM_ENDS = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


class WindowsChild:
    """A child in a job object of its own."""

    def __init__(
        self, command: Command, listener: ProcessListener, process: ServerProcess, stderr: int
    ) -> None:
        self._command = command
        self._listener = listener
        self._process = process
        self._stderr = stderr
        self._outgoing = bytearray()
        self._written = asyncio.Event()
        self._ended = False
        self._reading = asyncio.Event()
        self._reading.set()
        self.congested: asyncio.Future[None] | None = None

    @classmethod
    async def start(cls, command: Command, listener: ProcessListener) -> "WindowsChild":
        """Start the process. Raises `SpawnFailed`."""
        program, *arguments = command.argv
        environment = child_environment(command.env, command.parent)
        reading, writing = os.pipe()
        stderr = os.fdopen(writing, "w")
        try:
            process = await create_windows_process(
                get_windows_executable_command(program), arguments, environment, stderr, command.cwd
            )
        except (OSError, ValueError) as exc:
            os.close(reading)
            raise explain_spawn_error(command, exc) from exc
        finally:
            stderr.close()
        return cls(command, listener, process, reading)

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Carry input and output until the tasks end."""
        tasks.start_soon(self._carry_stdin)
        tasks.start_soon(self._carry_stdout)
        tasks.start_soon(self._carry_stderr)

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status; `None` while it runs."""
        return self._process.returncode

    @property
    def waiting_bytes(self) -> int:
        """Number of written bytes that it has not read yet."""
        return len(self._outgoing)

    @property
    def has_read(self) -> bool:
        """Whether it has read anything. True: Windows cannot tell."""
        return True

    def write(self, data: bytes) -> bool:
        """Write to its stdin, without waiting. False where it is gone, and certainly reads none of it."""
        if self.returncode is not None:
            return False
        self._outgoing += data
        self._written.set()
        if self.congested is None and len(self._outgoing) > MAX_WAITING_BYTES:
            self.congested = asyncio.get_running_loop().create_future()
        return True

    def write_soon(self, data: bytes) -> bool:
        """Write to its stdin; all that waits goes out together here."""
        return self.write(data)

    def hold_stdout(self, *, hold: bool) -> None:
        """Read no more of its stdout for now, or go on."""
        if hold:
            self._reading.clear()
        else:
            self._reading.set()

    async def stop(self, *, quickly: bool = False) -> None:
        """End it and all it started; returns within bounded time, and it must not be cancelled."""
        if self._process.stdin is not None:
            await self._process.stdin.aclose()
        # The end of stdin is the specification's sign to exit; only then is the process ended by force.
        with anyio.move_on_after(QUICK_EXIT_SECONDS if quickly else self._command.exit_seconds):
            await self._process.wait()
        # Also after a clean exit: what the server started itself is in its job object, and would stay.
        await terminate_windows_process_tree(self._process)
        close_process_job(self._process)
        with anyio.move_on_after(KILL_SECONDS):
            await self._process.wait()
        if self._process.stdout is not None:
            await self._process.stdout.aclose()
        os.close(self._stderr)

    async def _carry_stdin(self) -> None:
        assert self._process.stdin is not None
        try:
            while True:
                await self._written.wait()
                self._written.clear()
                data, self._outgoing = bytes(self._outgoing), bytearray()
                await self._process.stdin.send(data)
                self._decongest()
        except _STREAM_ENDS:
            await self._end()

    async def _carry_stdout(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                await self._reading.wait()
                pause = self._listener.on_stdout(await self._process.stdout.receive())
                while pause:
                    await anyio.sleep(pause)
                    pause = self._listener.on_stdout(b"")
        except _STREAM_ENDS:
            await self._end()

    async def _carry_stderr(self) -> None:
        while data := await anyio.to_thread.run_sync(
            os.read, self._stderr, _CHUNK_BYTES, abandon_on_cancel=True
        ):
            pause = self._listener.on_stderr(data)
            while pause:
                await anyio.sleep(pause)
                pause = self._listener.on_stderr(b"")

    async def _end(self) -> None:
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self._process.wait()
        self._decongest()
        if not self._ended:
            self._ended = True
            self._listener.on_end(self.returncode)

    def _decongest(self) -> None:
        if self.congested is not None:
            self.congested.set_result(None)
            self.congested = None
