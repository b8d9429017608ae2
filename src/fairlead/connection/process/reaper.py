"""The guardian process: starts a host's servers and ends every descendant of each.

`guardian.py` runs this module in an interpreter of its own, with a Unix stream socket to the host as stdin:

    host ── guardian ─┬─ reaper ── server ── whatever it starts
                      └─ reaper ── server ── …

Guardian and reapers are *child subreapers* (`prctl(2)`): a process whose parent exits is adopted by the
nearest subreaper above it, regardless of its session, process group or environment. A reaper has one
server, so all its descendants are that server's, and "no children" (ECHILD) means that no descendant is left.

For each server the host sends one byte on stdin with file descriptors attached: a control socket, the working
folder, stdin, stdout, stderr and any further ones. The guardian forks a reaper, which reads a `_StartRequest`
(its length and a NUL byte first) from the control socket, starts the server and writes lines to the socket:

    pid N REAPER        it runs
    error WHAT ERRNO    it could not be started; WHAT is `folder` or `program`
    exit N              it exited: a code, or the negative number of a signal

After the request the host writes lines to the control socket:

    stop, stop quickly    end the server
    until CLOCK TIME      it may run until that time of that clock (`clock_gettime(2)`), a deadline

A server that is to stop has `exit_seconds` to exit (half a second where it answered nothing and is stopped
quickly), then all descendants get SIGTERM and, `terminate_seconds` later, SIGKILL until none is left. Then
the reaper exits, which closes the control socket. SIGTERM comes at once when the server has exited, when the
control socket, the guardian or the host is gone, or when the deadline has passed: then SIGKILL follows half a
second after the deadline. It takes no word of the host for that, so it works while the host is paused.

On systems without subreapers (macOS) the server's process group is ended; there, a descendant that left the
group outlives the server.

This module imports little: it is loaded once for each host, and each reaper is a fork of it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import select
import sys
import time

# Not `socket` and `signal`: with what those import, the guardian would take twice as long to start, and forks
# would have more memory to copy.
from _socket import AF_UNIX, CMSG_SPACE, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from fairlead.connection.process.process_table import descendants, kill_descendants, send_signal
else:
    import _signal as signal

    from process_table import descendants, kill_descendants, send_signal

_MAX_DESCRIPTORS = 200
"""How many file descriptors one request can carry; Linux allows 253."""

# What is still there after this long cannot be killed: it waits in the kernel, or runs as another user.
_GIVE_UP_SECONDS = 20.0
_QUICK_EXIT_SECONDS = 0.5
_EXPIRED_SECONDS = 0.5
"""How long after its deadline a server may still run, between SIGTERM and SIGKILL."""
_CLOCK_CHECK_SECONDS = 0.25
"""How often a deadline is compared with its clock, which may run on while the machine, and `poll`, sleeps."""
_TICK_SECONDS = 0.05
_HOST_CHECK_SECONDS = 1.0
_IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE")
_IS_LINUX = sys.platform == "linux"
# Children made by clone() without SIGCHLD as their exit signal are waited for as well.
_WAIT_OPTIONS = os.WNOHANG | (0x40000000 if _IS_LINUX else 0)
_CLOSE_ON_EXEC = 0x40000000 if _IS_LINUX else 0  # MSG_CMSG_CLOEXEC
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ENOENT, _EIO, _EAGAIN = 2, 5, 11

_prctl: Callable[[int, int], object] = lambda option, value: None  # noqa: E731 - replaced on Linux
_own_limits = b""
"""The resource limits of this process, encoded as in a request. Servers mostly get the same."""
_ignored: list[int] = []
"""The signals that this process ignores, and a server must not: ours, and those that the host ignores."""


class _StartRequest:
    """Request to start a server process, apart from its file descriptors.

    Each field ends with a NUL byte, which none can contain: the two grace periods, and clock and time of the
    deadline if there is one; the umask; the numbers that further descriptors get; resource limits as
    `number,soft,hard`; then three lists, each with its length first: the paths to try, as a shell tries the
    folders of PATH; the arguments; the environment.

    The reaper reads only the first field: what a forked process writes to has to be copied for it.
    """

    __slots__ = ("deadline", "exit_seconds", "fields", "terminate_seconds")

    def __init__(self, data: bytes) -> None:
        times, _, self.fields = data.partition(b"\0")
        exit_seconds, terminate_seconds, *deadline = times.split(b" ")
        self.exit_seconds, self.terminate_seconds = float(exit_seconds), float(terminate_seconds)
        self.deadline = _Deadline(*deadline) if deadline else None


class _Deadline:
    """A time of a clock that all processes of the machine share, as the host writes it."""

    __slots__ = ("_clock", "_time")

    def __init__(self, clock: bytes, at: bytes) -> None:
        self._clock, self._time = int(clock), float(at)

    def seconds_left(self) -> float:
        return self._time - time.clock_gettime(self._clock)


class _Reaper:
    """One server and all that descends from it. The process it runs in has no other children."""

    def __init__(self, control: socket, life: int) -> None:
        self._control = control
        self._life = life
        self._pid = os.getpid()
        self._server = 0
        self._exited = False
        self._status = 0
        self._is_announced = False
        self._has_children = False
        self._stopping = False
        self._quickly = False
        self._abandoned = False
        self._expired = False
        self._deadline: _Deadline | None = None
        self._unheard = b""
        self._wake = _wake_on_child_exit()
        self._poll = select.poll()
        for fd in (control.fileno(), life, self._wake):
            self._poll.register(fd, select.POLLIN)

    def run(self, descriptors: list[int]) -> None:
        """Start the server and wait until it has to end. What is left of it then has had SIGTERM."""
        request = self._receive()
        if request is None or not self._start(request, descriptors):
            return
        while not (self._exited or self._stopping or self._is_hurried()):
            self._wait(None)
        if self._stopping:
            grace = min(request.exit_seconds, _QUICK_EXIT_SECONDS) if self._quickly else request.exit_seconds
            deadline = time.monotonic() + grace
            while not (self._exited or self._is_hurried()) and (left := deadline - time.monotonic()) > 0:
                self._wait(left)
        self._terminate(request.terminate_seconds)

    # Starting.

    def _receive(self) -> _StartRequest | None:
        data, length = b"", -1
        while length < 0 or len(data) < length:
            if self._control.fileno() not in self._wait(None, hear=False):
                if self._abandoned:
                    return None
                continue
            received = _receive(self._control, 65536)  # more would be mapped and unmapped
            if not received:
                return None
            data += received
            if length < 0 and b"\0" in data:
                head, _, data = data.partition(b"\0")
                length = int(head)
        request = _StartRequest(data[:length])
        self._deadline = request.deadline
        self._hear(data[length:])
        return request

    def _start(self, request: _StartRequest, descriptors: list[int]) -> bool:
        reading, writing = os.pipe()
        try:
            self._server = os.fork()
        except OSError as exc:
            self._tell(b"error program %d\n" % (exc.errno or _EAGAIN))
            return False
        if self._server == 0:
            _become_server(request, descriptors, self._pid, writing)
        self._has_children = True
        os.close(writing)
        for fd in descriptors:
            os.close(fd)
        # Executing a file can take as long as the file system it lies on does.
        self._poll.register(reading, select.POLLIN)
        while reading not in self._wait(None):
            if self._stopping or self._is_hurried():
                return False
        failure = os.read(reading, 64)
        self._poll.unregister(reading)
        os.close(reading)
        if failure:
            self._tell(b"error %s\n" % failure)
            return False
        self._tell(b"pid %d %d\n" % (self._server, self._pid))
        self._is_announced = True
        if self._exited:
            self._tell_exit()
        return True

    # Waiting.

    def _wait(self, seconds: float | None, *, hear: bool = True) -> dict[int, int]:
        """Wait for something to happen, and take note of it: exits, the host's words, who is gone."""
        if self._deadline is not None and not self._expired:
            limit = min(_CLOCK_CHECK_SECONDS, self._deadline.seconds_left())
            seconds = limit if seconds is None else min(seconds, limit)
        ready = dict(self._poll.poll(None if seconds is None else max(0, seconds) * 1000))
        if self._life in ready:
            self._abandoned = True
            self._poll.unregister(self._life)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if hear and self._control.fileno() in ready:
            if words := _receive(self._control, 4096):
                self._hear(words)
            else:
                self._abandoned = True
                self._poll.unregister(self._control.fileno())
        # After the host's words: a renewal that came in time counts, however late this process gets to run.
        if self._deadline is not None and self._deadline.seconds_left() <= 0:
            self._expired = True
        self._bury()
        return ready

    def _is_hurried(self) -> bool:
        """Whether the server has to end without being waited for."""
        return self._abandoned or self._expired

    def _hear(self, words: bytes) -> None:
        *lines, self._unheard = (self._unheard + words).split(b"\n")
        for line in lines:
            if line.startswith(b"until "):
                self._deadline = _Deadline(*line.split()[1:])
            else:
                self._stopping = True
                self._quickly = self._quickly or line == b"stop quickly"

    def _bury(self) -> None:
        while self._has_children:
            try:
                pid, status = os.waitpid(-1, _WAIT_OPTIONS)
            except ChildProcessError:
                self._has_children = False
                return
            if pid == 0:
                return
            if pid == self._server:
                self._exited, self._status = True, status
                if self._is_announced:
                    self._tell_exit()

    def _tell_exit(self) -> None:
        self._tell(b"exit %d\n" % os.waitstatus_to_exitcode(self._status))

    def _tell(self, line: bytes) -> None:
        try:
            self._control.sendall(line)
        except OSError:
            self._abandoned = True

    # Ending.

    def _is_over(self) -> bool:
        return not self._has_children and (_IS_LINUX or not send_signal(-self._server, 0))

    def _terminate(self, seconds: float) -> None:
        """Send SIGTERM to all descendants, also to those that are started meanwhile."""
        deadline = time.monotonic() + seconds
        signalled: set[int] = set()
        while not self._is_over() and (left := self._time_to_kill(deadline)) > 0:
            for pid in descendants(self._pid) if _IS_LINUX else [-self._server]:
                if pid not in signalled:
                    signalled.add(pid)
                    send_signal(pid, signal.SIGTERM)
                    send_signal(pid, signal.SIGCONT)  # what is stopped acts on no signal
            self._wait(min(left, _TICK_SECONDS))

    def _time_to_kill(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if self._deadline is not None:
            left = min(left, self._deadline.seconds_left() + _EXPIRED_SECONDS)
        return left

    def kill(self) -> None:
        """Send SIGKILL to all descendants until there are none."""
        deadline = time.monotonic() + _GIVE_UP_SECONDS
        before: list[int] = []
        pause = 0.0
        while not self._is_over() and time.monotonic() < deadline:
            if _IS_LINUX:
                killed = kill_descendants(self._pid, frozenset())
            else:
                killed = [-self._server]
                send_signal(-self._server, signal.SIGKILL)
            # As long as new ones come, there is a race to win against what starts them.
            pause = min(_TICK_SECONDS, pause * 1.5 + 0.0005) if killed == before else 0.0
            before = killed
            self._wait(pause)


def _receive(control: socket, size: int) -> bytes:
    try:
        return control.recv(size)
    except ConnectionError:
        return b""  # the host is gone and has not read all that we wrote


def _become_server(request: _StartRequest, descriptors: list[int], reaper: int, errors: int) -> None:
    """Turn this process, just forked, into the server."""
    what = b"folder"
    number = 0
    try:
        umask, numbers, limits, *groups = request.fields.split(b"\0")
        os.setsid()
        for ignored in _ignored:
            signal.signal(ignored, signal.SIG_DFL)
        os.umask(int(umask))
        if limits != _own_limits:
            _limit(limits)
        os.fchdir(descriptors.pop(0))
        what = b"program"
        if numbers:
            errors = _place(descriptors, [0, 1, 2, *map(int, numbers.split())], errors)
        else:  # none of them has one of these numbers: the guardian's own have
            for fd in (0, 1, 2):
                os.dup2(descriptors[fd], fd)
        # Even a reaper that is killed takes its server along.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            os._exit(255)
        number = _execute(groups)
    except OSError as exc:
        number = exc.errno or _EIO
    finally:
        os.write(errors, b"%s %d" % (what, number or _EIO))
        os._exit(255)


def _place(files: list[int], numbers: list[int], keep: int) -> int:
    """Give descriptors the numbers they have in the server, and return the new number of `keep`."""
    above = max(numbers) + 1
    keep = fcntl.fcntl(keep, fcntl.F_DUPFD_CLOEXEC, above)
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in files]
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
    return keep


def _limit(limits: bytes) -> None:
    for limit in limits.split():
        number, soft, hard = map(int, limit.split(b","))
        if resource.getrlimit(number) != (soft, hard):
            try:
                resource.setrlimit(number, (soft, hard))
            except ValueError:
                continue  # the host was given more than the guardian, and only the superuser may take it


def _execute(groups: list[bytes]) -> int:
    """Execute the first program that is there. Returns only the errno of why there is none."""
    arguments = 1 + int(groups[0])
    variables = arguments + 1 + int(groups[arguments])
    programs, argv = groups[1:arguments], groups[arguments + 1 : variables]
    env: dict[bytes, bytes] = {}
    for variable in groups[variables + 1 : variables + 1 + int(groups[variables])]:
        name, _, env[name] = variable.partition(b"=")
    found = 0
    number = _ENOENT
    for program in programs:
        try:
            os.execve(program, argv, env)  # noqa: S606 - a program, never a shell's line
        except OSError as exc:
            number = exc.errno or _EIO
            # One that is there and cannot be run says more than another that is not there.
            if not isinstance(exc, (FileNotFoundError, NotADirectoryError)) and not found:
                found = number
    return found or number


def _wake_on_child_exit() -> int:
    """Return a descriptor that becomes readable when a child exits."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


# The guardian.


class _Guardian:
    """Forks a reaper for each server. Each of its children is a reaper, or what a killed reaper left."""

    def __init__(self, host: int) -> None:
        self._host = host
        self._pid = os.getpid()
        self._channel = socket(AF_UNIX, SOCK_STREAM, 0, 0)
        self._reapers: set[int] = set()
        self._has_orphans = False
        # Reapers read from a pipe that only the guardian holds open: it ends with the guardian.
        self._life, self._held = os.pipe()
        self._wake = _wake_on_child_exit()
        self._host_process = _open_process(host)
        self._poll = select.poll()
        for fd in (0, self._wake, self._host_process):
            if fd is not None:
                self._poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Start what the host asks for until the host is gone, then see the servers end."""
        while True:
            ready = self._wait(None if self._host_process is not None else _HOST_CHECK_SECONDS)
            # A process forked off the host may hold the socket open for longer than the host lives.
            if self._host_process in ready or os.getppid() != self._host:
                break
            if 0 in ready and not self._receive():
                break
        os.close(self._held)
        self._poll.unregister(0)
        if self._host_process is not None:
            self._poll.unregister(self._host_process)
        self._see_reapers_end()

    def _see_reapers_end(self) -> None:
        began = time.monotonic()
        while self._reapers or self._has_orphans:
            seconds = time.monotonic() - began
            if seconds > 2 * _GIVE_UP_SECONDS:
                return
            for pid in self._reapers:
                # A server can stop what runs as its user. A killed reaper leaves its children to us.
                send_signal(pid, signal.SIGCONT if seconds < _GIVE_UP_SECONDS else signal.SIGKILL)
            self._wait(_TICK_SECONDS)

    def _wait(self, seconds: float | None) -> dict[int, int]:
        if self._has_orphans:
            seconds = _TICK_SECONDS
        ready = dict(self._poll.poll(None if seconds is None else seconds * 1000))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._wake in ready or self._has_orphans:
            self._bury()
            self._kill_orphans()
        return ready

    def _bury(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, _WAIT_OPTIONS)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._reapers.discard(pid)

    def _kill_orphans(self) -> None:
        deadline = time.monotonic() + _TICK_SECONDS
        while True:
            self._has_orphans = _IS_LINUX and bool(kill_descendants(self._pid, self._reapers))
            if not self._has_orphans or time.monotonic() > deadline:
                return
            self._bury()

    def _receive(self) -> bool:
        try:
            data, ancillary, _, _ = self._channel.recvmsg(1, CMSG_SPACE(_MAX_DESCRIPTORS * 4), _CLOSE_ON_EXEC)
        except ConnectionError:
            return False
        if not data:
            return False
        fds: list[int] = []
        for level, kind, packed in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                fds += memoryview(packed[: len(packed) // 4 * 4]).cast("i").tolist()
        if not _CLOSE_ON_EXEC:
            for fd in fds:
                os.set_inheritable(fd, False)
        if len(fds) >= 5:  # else the descriptors did not fit: the host sees its control socket close
            control = socket(AF_UNIX, SOCK_STREAM, 0, fds.pop(0))
            self._fork(control, fds)
            control.close()
        for fd in fds:
            os.close(fd)
        return True

    def _fork(self, control: socket, descriptors: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as exc:
            control.sendall(b"error program %d\n" % (exc.errno or _EAGAIN))
            return
        if pid:
            self._reapers.add(pid)
            return
        try:
            os.dup2(1, 0, inheritable=False)  # the null device; the host's socket is the guardian's alone
            for fd in (self._held, self._wake, self._host_process, signal.set_wakeup_fd(-1)):
                if fd is not None:
                    os.close(fd)
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            reaper = _Reaper(control, self._life)
            try:
                reaper.run(descriptors)
            finally:
                reaper.kill()
        finally:
            os._exit(0)


def _open_process(host: int) -> int | None:
    """Return a file descriptor that is readable once the host is dead, where there are such things."""
    if not _IS_LINUX or os.getppid() != host:
        return None
    try:
        return os.pidfd_open(host)
    except OSError:
        return None


def _load_prctl() -> None:
    global _prctl
    try:
        import ctypes

        function = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return  # descendants are then found only while their parents live
    zero = ctypes.c_ulong(0)
    _prctl = lambda option, value: function(option, ctypes.c_ulong(value), zero, zero, zero)  # noqa: E731


def main(host: int, limits: str) -> None:
    """Run as the guardian of the process `host`, whose socket is our stdin, with the same resource limits."""
    global _own_limits
    _own_limits = limits.encode()
    _limit(_own_limits)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in _IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    _ignored.extend(n for n in range(1, signal.NSIG) if signal.getsignal(n) == signal.SIG_IGN)
    if _IS_LINUX:
        _load_prctl()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # What is never written to is shared with the reapers.
    gc.disable()
    gc.freeze()
    try:
        _Guardian(host).run()
    finally:
        os._exit(0)
