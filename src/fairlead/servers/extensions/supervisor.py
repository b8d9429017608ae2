"""The process of an extension that a host starts: it forks the worker, again without a file that stops it.

A file that raises costs the worker nothing. One that never ends, or ends the process, can only be told from
outside. The worker is forked, so that another one costs no time: everything but the files is loaded by then.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final, NoReturn

from fairlead.servers.extensions.worker import READY, Archive, run_worker

FILE_SECONDS: Final = 8.0
"""How long one file may take to be run at the start."""
ALL_SECONDS: Final = 20.0
"""How long all files together may take: a host does not wait for a start for ever."""
_MAX_REPORT_BYTES: Final = 64 * 1024


def main(argv: list[str]) -> int:
    """Serve the files of an archive until the host closes stdin. Returns the worker's exit status."""
    path, digest, name = argv
    archive = Archive.open(path, digest)
    if os.name != "posix":  # without `fork`, a file that never ends is not told from a slow one
        run_worker(archive, name, {}, None)
        return 0
    left_out: dict[str, str] = {}
    deadline = time.monotonic() + ALL_SECONDS
    while True:
        worker, reports = _fork(archive, name, left_out)
        try:
            stopped = _watch(reports, deadline)
        finally:
            os.close(reports)
        if stopped is None:
            return _end_with(worker)
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        file, reason = stopped
        if not file or file in left_out:
            sys.stderr.write("the process that runs the files ended by itself\n")
            return 1
        left_out[file] = reason


def _fork(archive: Archive, name: str, left_out: Mapping[str, str]) -> tuple[int, int]:
    """Start a worker without some files. Returns its process id, and where it reports."""
    read_end, write_end = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(read_end)
        _work(archive, name, left_out, write_end)
    os.close(write_end)
    return worker, read_end


def _work(archive: Archive, name: str, left_out: Mapping[str, str], reports: int) -> NoReturn:
    """Be the worker. Whatever happens, this process does not go on as the supervisor."""
    status = 1
    try:
        run_worker(archive, name, left_out, reports)
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException as exc:  # noqa: BLE001 - of a file, or ours: the supervisor learns it from the end
        sys.excepthook(type(exc), exc, exc.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _watch(reports: int, deadline: float) -> tuple[str, str] | None:
    """Wait until the worker serves. Returns the file that stopped it, and how, where it does not."""
    current, began, text = "", time.monotonic(), b""
    while True:
        limit = min(began + FILE_SECONDS, deadline)
        readable, _, _ = select.select([reports], [], [], max(0.0, limit - time.monotonic()))
        if not readable:
            seconds = min(FILE_SECONDS, time.monotonic() - began)
            return current, f"it was not done after {seconds:.0f} s"
        piece = os.read(reports, 4096)
        if not piece or len(text) > _MAX_REPORT_BYTES:
            return current, "it ended the process"
        text += piece
        while b"\n" in text:
            line, _, text = text.partition(b"\n")
            current, began = line.decode(errors="replace"), time.monotonic()
            if current == READY:
                return None


def _end_with(worker: int) -> int:
    """Wait for the worker, and pass on the signals that end this process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(worker, number))
    # The worker alone reads what the host sends, and knows when that ends.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    _, status = os.waitpid(worker, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
