"""Runs one command in a sandbox: its output as it comes, a time limit, and no process left afterwards.

The command is the first process of a PID namespace of its own. When that ends, for any reason, the
kernel ends all others in it before it reports the end; so waiting for it is waiting for all of them.
"""

import json
import os
import secrets
import select
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from fairlead.bubblewrap import SandboxView, bwrap_arguments, comparison
from fairlead.descriptors import keep_descriptors_back
from fairlead.errors import ToolFailed

MAX_KEPT_BYTES: Final = 512 * 1024
"""How much is kept of the beginning of an output, and of its end."""
MAX_OUTPUT_BYTES: Final = 200_000_000
"""A command that writes more is ended."""
REPORT_SECONDS: Final = 0.5
"""How often output is passed on while a command runs."""
QUIET_REPORT_SECONDS: Final = 5.0
"""How often a command that writes nothing is reported to be running: callers give up on silence."""
END_SECONDS: Final = 10.0
"""How long the system may take to end the processes of a command."""

_CHUNK = 65_536

OnOutput = Callable[[float, str], Awaitable[None]]
"""Awaited with the seconds since the start and the last lines of the output."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutcome:
    """Outcome of a command: exit status and output."""

    exit_code: int | None
    """None if it was ended: it took too long or wrote too much."""
    seconds: float
    output: "KeptOutput"
    ended_because: str | None = None
    has_started: bool = True
    """Whether the command itself began; else the output is what its sandbox said."""


class _StartMark:
    """Random text that the sandbox writes before the command does: what follows is the command's.

    Without it a command that says what bubblewrap says when it fails could not be told from that.
    """

    def __init__(self) -> None:
        self.text = secrets.token_hex(16)
        self.is_there = False
        self._waiting: bytes | None = b""

    def strip(self, data: bytes) -> bytes:
        """The output without the mark; nothing as long as it may still be a part of that."""
        if self._waiting is None:
            return data
        self._waiting += data
        mark = self.text.encode()
        if len(self._waiting) < len(mark) and mark.startswith(self._waiting):
            return b""
        self.is_there = self._waiting.startswith(mark)
        return self.rest().removeprefix(mark)

    def rest(self) -> bytes:
        """The text held back as a possible beginning of the mark."""
        rest, self._waiting = self._waiting or b"", None
        return rest


class KeptOutput:
    """The beginning and the end of an output of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add what came next."""
        self.total += len(data)
        room = MAX_KEPT_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * MAX_KEPT_BYTES:  # not at each chunk: each time costs a copy
            del self._tail[:-MAX_KEPT_BYTES]

    def last(self, size: int) -> bytes:
        """The last bytes."""
        end = bytes(self._tail[-size:])
        return end if len(end) == size else bytes(self._head[-(size - len(end)) :]) + end

    def pieces(self) -> tuple[bytes, int, bytes]:
        """The beginning, how many bytes are missing then, and the end."""
        tail = bytes(self._tail[-MAX_KEPT_BYTES:])
        return bytes(self._head), self.total - len(self._head) - len(tail), tail


async def run_command(
    bwrap: str,
    view: SandboxView,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    on_output: OnOutput,
) -> CommandOutcome:
    """Run a command until it ends, or is stopped at a limit.

    Args:
        bwrap: The path of bubblewrap.
        view: What the command sees.
        argv: Its words.
        environment: All of its variables.
        timeout_seconds: When it is ended.
        on_output: Called now and then with what it wrote last.

    Returns:
        How it ended. When this returns or raises, none of its processes is left.

    Raises:
        ToolFailed: It could not be started, or its processes could not be ended.
    """
    words = [bwrap, *bwrap_arguments(view), "--clearenv"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    mark = _StartMark()
    info_read, info_write = os.pipe()
    try:
        words += ["--info-fd", str(info_write), "--", *_compare_view(view, mark), *argv]
        # Started by the thread of the event loop: bubblewrap ends when the thread that started it does.
        with keep_descriptors_back():
            process = await anyio.open_process(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                start_new_session=True,
                pass_fds=(info_write,),
            )
    except OSError as exc:
        os.close(info_read)
        raise ToolFailed(f"the command cannot be started: {exc.strerror}") from exc
    except BaseException:
        os.close(info_read)
        raise
    finally:
        os.close(info_write)
    sandbox = _SandboxProcess(process, info_read)
    started = anyio.current_time()
    output, reason = KeptOutput(), None
    try:
        with anyio.move_on_after(timeout_seconds) as limit:
            reason = await _follow(process, output, mark, on_output, started)
        if limit.cancelled_caught:
            reason = f"it took longer than {timeout_seconds:g} seconds"
    finally:
        # Not to be cancelled: a process that is left would go on changing files.
        with anyio.CancelScope(shield=True):
            await sandbox.end()
    output.add(mark.rest())
    return CommandOutcome(
        exit_code=process.returncode if reason is None else None,
        seconds=anyio.current_time() - started,
        output=output,
        ended_because=reason,
        has_started=mark.is_there,
    )


def _compare_view(view: SandboxView, mark: _StartMark) -> tuple[str, ...]:
    try:
        return comparison(view, {}, say=mark.text)
    except FileNotFoundError as exc:
        raise ToolFailed(f"the sandbox needs `{exc.filename}`, which is not there") from exc


async def _follow(
    process: anyio.abc.Process, output: KeptOutput, mark: _StartMark, on_output: OnOutput, started: float
) -> str | None:
    """Read the output until the command ends. Returns why it has to be ended, if it has to."""
    assert process.stdout is not None
    stdout, reason = process.stdout, None

    async def report() -> None:
        reported, last = -1, started
        while True:
            await anyio.sleep(REPORT_SECONDS)
            now = anyio.current_time()
            if output.total != reported or now - last >= QUIET_REPORT_SECONDS:
                reported, last = output.total, now
                await on_output(now - started, output.last(400).decode(errors="replace"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while reason is None:
                output.add(mark.strip(await stdout.receive(_CHUNK)))
                if output.total > MAX_OUTPUT_BYTES:
                    reason = f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes"
        if reason is None:
            await process.wait()  # it may have closed its output and gone on
        tasks.cancel_scope.cancel()
    return reason


class _SandboxProcess:
    """bubblewrap, and the first process in its PID namespace."""

    def __init__(self, process: anyio.abc.Process, info: int) -> None:
        self._process = process
        self._info = info

    async def end(self) -> None:
        """End everything in the sandbox and wait until it has ended.

        Raises:
            ToolFailed: It did not end in time.
        """
        first: int | None = None
        try:
            if self._process.returncode is None:
                first = await anyio.to_thread.run_sync(self._find_first)
                self._kill(first)
            with anyio.move_on_after(END_SECONDS) as limit:
                # bubblewrap ends once the first process has; where it was killed itself, that may be later.
                await self._process.wait()
                if first is not None:
                    await anyio.wait_readable(first)
            if limit.cancelled_caught:
                raise ToolFailed("the processes of the command could not be ended")
        finally:
            if first is not None:
                os.close(first)
            os.close(self._info)
            await self._process.aclose()

    def _kill(self, first: int | None) -> None:
        with suppress(ProcessLookupError):
            if first is not None:
                signal.pidfd_send_signal(first, signal.SIGKILL)
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _find_first(self) -> int | None:
        """A descriptor of the first process, readable once it has ended; None if there is none.

        Waits until bubblewrap tells of it: killed before, it could leave a process behind that waits for it.
        """
        poll = select.poll()
        poll.register(self._info, select.POLLIN)
        if not poll.poll(1000 * END_SECONDS):
            return None
        try:
            return os.pidfd_open(json.loads(os.read(self._info, 4096))["child-pid"])
        except (ProcessLookupError, ValueError, KeyError):
            return None  # it has ended, or bubblewrap failed before it made one
