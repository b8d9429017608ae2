"""The process of an extension that a host starts: it forks the worker, again without a file that stops it.

A file that raises costs the worker nothing. One that never ends, or ends the process, can only be
noticed from outside. The worker is forked, so that another one costs no time: everything but the files
is loaded by then. Its parent is a process that does nothing else, so that code which kills its parent does
not end the server.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NoReturn

from fairlead.servers.extensions.worker import READY, Archive, WorkerLinks, run_worker

FILE_SECONDS: Final = 8.0
"""How long one file may take to be run at the start."""
ALL_SECONDS: Final = 20.0
"""How long all files together may take: a host does not wait for a start for ever."""
_MAX_REPORT_BYTES: Final = 64 * 1024


def main(argv: list[str]) -> int:
    """Serve the files of an archive until the host closes stdin. Returns the worker's exit status."""
    path, digest, name = argv
    archive = Archive.open(path, digest)
    if os.name != "posix":  # without `fork`, a file that never ends looks like a slow one
        run_worker(archive, name, {}, None)
        return 0
    left_out: dict[str, str] = {}
    deadline = time.monotonic() + ALL_SECONDS
    while True:
        worker = _Worker(archive, name, left_out)
        stopped = worker.watch(deadline)
        if stopped is None:
            return worker.serve()
        worker.kill()
        file, reason = stopped
        if not file or file in left_out:
            sys.stderr.write("the process that runs the files ended by itself\n")
            return 1
        left_out[file] = reason


class _Worker:
    """A worker without some files, forked, and the process between that is its parent."""

    def __init__(self, archive: Archive, name: str, left_out: Mapping[str, str]) -> None:
        self._pid: int | None = None
        self._reports, reports = os.pipe()
        self._parent = os.fork()
        if not self._parent:
            os.close(self._reports)
            _be_parent(archive, name, left_out, reports)
        os.close(reports)

    def watch(self, deadline: float) -> tuple[str, str] | None:
        """Wait until the worker serves. Returns the file that stopped it, and how, where it does not."""
        current, began, text = "", time.monotonic(), b""
        while True:
            limit = min(began + FILE_SECONDS, deadline)
            readable, _, _ = select.select([self._reports], [], [], max(0.0, limit - time.monotonic()))
            if not readable:
                seconds = min(FILE_SECONDS, time.monotonic() - began)
                return current, f"it was not done after {seconds:.0f} s"
            piece = os.read(self._reports, 4096)
            if not piece or len(text) > _MAX_REPORT_BYTES:
                return current, "it ended the process"
            text += piece
            while b"\n" in text:
                line, _, text = text.partition(b"\n")
                if self._pid is None:
                    self._pid = int(line)
                    continue
                current, began = line.decode(errors="replace"), time.monotonic()
                if current == READY:
                    return None

    def serve(self) -> int:
        """Wait for the worker to end, and pass on the signals that end this process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._signal(number))
        # The worker alone reads what the host sends, and knows when that ends.
        _leave_messages()
        _, status = os.waitpid(self._parent, 0)
        if os.WIFSIGNALED(status):  # code of a file did that, and the worker goes on without
            while os.read(self._reports, 4096):
                pass
        return os.waitstatus_to_exitcode(status) & 0xFF

    def kill(self) -> None:
        """End the worker and its parent."""
        self._signal(signal.SIGKILL)
        os.kill(self._parent, signal.SIGKILL)
        os.waitpid(self._parent, 0)
        os.close(self._reports)

    def _signal(self, number: int) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)


def _be_parent(archive: Archive, name: str, left_out: Mapping[str, str], reports: int) -> NoReturn:
    """Start the worker, answer it as long as it asks, and end with it."""
    own_end, workers_end = socket.socketpair()
    worker = os.fork()
    if not worker:
        own_end.close()
        _work(archive, name, left_out, WorkerLinks(reports=reports, parent=workers_end))
    workers_end.close()
    os.close(reports)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # they are for the worker
    _leave_messages()
    with suppress(OSError):
        while ping := own_end.recv(1):
            own_end.sendall(ping)
    _, status = os.waitpid(worker, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _leave_messages() -> None:
    """Close what the host sends and reads, which is for the worker alone."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)


def _work(archive: Archive, name: str, left_out: Mapping[str, str], links: WorkerLinks) -> NoReturn:
    """Run the worker. This process ends with it, and never goes on as the supervisor."""
    status = 1
    try:
        os.write(links.reports, f"{os.getpid()}\n".encode())
        run_worker(archive, name, left_out, links)
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException as exc:  # noqa: BLE001 - of a file, or ours: the supervisor learns it from the end
        sys.excepthook(type(exc), exc, exc.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
