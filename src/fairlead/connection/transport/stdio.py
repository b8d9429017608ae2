"""The stdio transport: a server process, with one message per line on its stdin and stdout."""

import asyncio
import shlex
import signal
import sys
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.dispatcher import CallOptions

from fairlead.catalog.sanitize import gate
from fairlead.connection.outcomes import ConnectionEnding
from fairlead.connection.process.child import Child, Command
from fairlead.connection.process.downloads import FETCHERS
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.process.posix import PosixChild
from fairlead.connection.process.stderr import StderrLog
from fairlead.connection.process.windows import WindowsChild
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.dispatcher import MAX_INBOUND_REQUESTS, WireDispatcher
from fairlead.connection.transport.messages import notification_frame
from fairlead.connection.transport.pacing import LINE_UNITS, ReadPace
from fairlead.jsonrpc.frames import LineSplitter
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong

_MAX_UNREAD_BYTES = 4 * 1024 * 1024
_NO_OPTIONS: CallOptions = {}


class StdioDispatcher(WireDispatcher):
    """A server process and the conversation with it. Enter it to start the process, leave it to end it."""

    kind = "stdio"

    def __init__(
        self,
        command: Command,
        *,
        guardian: Guardian | None = None,
        stderr_log: Path | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_inbound_requests: int = MAX_INBOUND_REQUESTS,
    ) -> None:
        super().__init__(max_inbound_requests=max_inbound_requests)
        self.stderr = StderrLog(stderr_log, on_text=self._on_stderr_text)
        self._command = command
        self._guardian = guardian or Guardian()
        self._owns_guardian = guardian is None
        self._lines = LineSplitter(max_line_bytes)
        self._stdout_pace = ReadPace()
        self._stderr_pace = ReadPace()
        self._child: Child

    async def __aenter__(self) -> Self:
        """Start the process. Raises `SpawnFailed`."""
        self._child = await self._start_child()
        return self

    async def _start_child(self) -> Child:
        if sys.platform == "win32":
            return await WindowsChild.start(self._command, self)
        try:
            return await PosixChild.start(self._command, self, self._guardian)
        except BaseException:
            self._close_guardian()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process and all it started, in bounded time."""
        self._end(ConnectionEnding(kind="closed", message="the connection was closed"))
        with anyio.CancelScope(shield=True):
            # A server that answered nothing has nothing to finish, and its start has taken long enough.
            await self._child.stop(quickly=self._answers == 0)
        self._close_guardian()
        self.stderr.close()

    def _close_guardian(self) -> None:
        if self._owns_guardian:
            self._guardian.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the process: a code, or the negative number of a signal; `None` while it runs."""
        return self._child.returncode

    def _start_receiving(self) -> None:
        self._child.begin(self._tasks)

    def _hold_reading(self, *, hold: bool) -> None:
        self._child.hold_stdout(hold=hold and self.ending is None)

    def _end(self, ending: ConnectionEnding) -> None:
        super()._end(ending)
        self._hold_reading(hold=False)

    # What the process says.

    def on_stdout(self, data: bytes) -> float | None:
        """Take in what arrived. Returns how long to read nothing more."""
        if self.ending is not None:
            # Read on all the same: a server that cannot write cannot exit.
            return None
        busy = len(self._calls) > 0
        if data:
            if not self._answers:
                self.downloads.finish()
            answers = self._answers
            try:
                self._receive_soon(self._lines.feed(data))
            except LineTooLong as exc:
                self._end_soon(ConnectionEnding(kind="overflow", message=str(exc)))
            if self._answers == answers:  # answers were requested, and cost nothing
                self._stdout_pace.spend(len(data), self._lines.completed * LINE_UNITS, busy=busy)
        return self._stdout_pace.pause_seconds(busy=busy)

    def _note_unsolicited(self) -> None:
        self._stdout_pace.spend_on_messages(1, busy=len(self._calls) > 0)

    def on_stderr(self, data: bytes) -> float | None:
        """Log stderr output. Returns the seconds to pause reading."""
        self.stderr.feed(data)
        busy = len(self._calls) > 0
        self._stderr_pace.spend(len(data), busy=busy)
        return self._stderr_pace.pause_seconds(busy=busy) if self.ending is None else None

    def _on_stderr_text(self, text: str) -> None:
        if not self._answers:
            self.downloads.feed(text)

    @property
    def fetch_command(self) -> str | None:
        """The command as a shell takes it, if it fetches the server and has nothing secret in it."""
        argv = self._command.argv
        line = shlex.join(argv)
        is_fetcher = Path(argv[0]).name.removesuffix(".exe").removesuffix(".cmd") in FETCHERS
        return line if is_fetcher and gate.text(line) == line else None

    def stderr_lines(self) -> tuple[str, ...]:
        """The process's stderr, oldest line first."""
        self.stderr.finish()
        return self.stderr.tail.all_lines

    def on_end(self, returncode: int | None) -> None:
        """Wake all waiting tasks."""
        if self.ending is None:
            self._receive_soon(self._lines.finish())
        self.stderr.finish()
        ending = _describe_ending(returncode, self.stderr.tail.all_lines)
        self._end_soon(replace(ending, unheard=not self._child.has_read, is_local=True))

    # What we say.

    def _send(self, call: Call, frame: bytes, opts: CallOptions) -> Awaitable[None] | None:
        if self._child.congested is not None:
            return self._send_later(call, frame)
        call.require_decision()
        # What a process that is gone does not take was not sent; the call ends with the connection, soon.
        if len(self._calls) > 1:  # where there is much to do, others are about to write as well
            call.sent = self._child.write_soon(_line(frame))
        else:
            call.sent = self._child.write(_line(frame))
        return None

    async def _send_later(self, call: Call, frame: bytes) -> None:
        while (drained := self._child.congested) is not None and not call.answer.done():
            await asyncio.wait((drained, call.answer), return_when=asyncio.FIRST_COMPLETED)
        if not call.answer.done():
            call.require_decision()
            call.sent = self._child.write(_line(frame))

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Send a message as soon as the server reads on."""
        while (drained := self._child.congested) is not None:
            await asyncio.wait((drained,))
        self._child.write(_line(frame))

    def post_now(self, frame: bytes) -> None:
        """Send a message at once, or drop it where the server does not read."""
        if self._child.waiting_bytes < _MAX_UNREAD_BYTES:
            self._child.write(_line(frame))

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        params = {"requestId": call.id, "reason": reason}
        self._child.write(_line(notification_frame("notifications/cancelled", params)))


def _line(frame: bytes) -> bytes:
    # Bytes passed on as they came may span lines. In JSON a newline is a blank, never part of a string.
    return (frame.replace(b"\n", b" ") if b"\n" in frame else frame) + b"\n"


def _describe_ending(returncode: int | None, stderr: tuple[str, ...]) -> ConnectionEnding:
    if returncode is None:
        return ConnectionEnding(
            kind="hung_up", message="the server closed its end of the connection", stderr=stderr
        )
    if returncode >= 0:
        message = f"the server exited with code {returncode}"
        return ConnectionEnding(kind="exited", message=message, exit_code=returncode, stderr=stderr)
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return ConnectionEnding(
        kind="exited", message=f"the server was killed by {name}", signal=-returncode, stderr=stderr
    )
