"""A small process beside the host that ends the host's servers if the host dies without doing so itself."""

import logging
import os
import subprocess
import sys

from fairlead.connection import reaper

logger = logging.getLogger(__name__)

_EXIT_SECONDS = 1.0


class Guardian:
    """Watches over the process groups of one host. It starts with the first of them.

    It reads from a pipe whose other end only this process holds: when the host is gone, by SIGKILL or
    otherwise, the pipe ends, and the guardian terminates, then kills what it still watches. With nothing to
    watch it exits at once. On Windows it does nothing: there the servers' job objects die with the host.
    """

    def __init__(self) -> None:
        self._watched: dict[int, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's pid while it runs."""
        return self._process.pid if self._process else None

    def watch(self, pid: int) -> int:
        """Take a process that leads its own group under watch, and return by when it had started."""
        started_by = self._watched[pid] = reaper.latest_start()
        if self._process is None:
            self._start()
        else:
            self._tell(_line((pid, started_by)))
        return started_by

    def release(self, pid: int) -> None:
        """Forget a process whose group is gone."""
        if self._watched.pop(pid, None) is not None:
            self._tell(f"-{pid}\n")

    def close(self) -> None:
        """End the guardian, and with it whatever is still watched."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self._process is not None:
            self._wait(self._process)
            self._process = None

    def _start(self) -> None:
        if sys.platform == "win32" or not sys.executable:
            return
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__, str(os.getpid())],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            logger.warning("no guardian: servers may outlive a killed host", exc_info=True)
            os.close(writing)
            return
        finally:
            os.close(reading)
        os.set_blocking(writing, False)
        self._pipe = writing
        self._write("".join(map(_line, self._watched.items())))

    def _tell(self, line: str) -> None:
        if self._pipe is not None and not self._write(line):
            # Someone killed it. The next one learns at its start all that it has to know.
            self.close()
            self._start()

    def _write(self, lines: str) -> bool:
        assert self._pipe is not None
        try:
            os.write(self._pipe, lines.encode())
        except BrokenPipeError:
            return False
        except BlockingIOError:
            logger.warning("the guardian does not listen: servers may outlive a killed host")
        return True

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            # It has more to do than to exit only if something is still watched.
            process.wait(_EXIT_SECONDS + (reaper.TERMINATE_SECONDS if self._watched else 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line(watched: tuple[int, int]) -> str:
    pid, started_by = watched
    return f"+{pid} {started_by}\n"
