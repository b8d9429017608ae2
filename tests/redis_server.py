"""A Redis of the tests' own, on a free port, which they can kill, pause and start again."""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from fairlead.config.store_location import KEY_VARIABLE, RedisLocation
from fairlead.store.cluster_key import new_cluster_key

PATIENCE = 20.0
KEY = new_cluster_key()


class RedisServer:
    """One `redis-server` process, with its files in a folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def location(self) -> RedisLocation:
        return self.location_at(self.url)

    def location_at(self, url: str, *, keys: str = KEY) -> RedisLocation:
        return RedisLocation(template=url, env={KEY_VARIABLE: keys})

    def start_from_snapshot(self) -> None:
        """Start with what `SAVE` wrote: what came after it is lost."""
        self._options = (*self._options, "--appendonly", "no")
        self.start()

    def start(self) -> None:
        command = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dir",
            str(self.folder),
        ]
        self._process = subprocess.Popen(
            [*command, "--save", "", "--appendonly", "yes", "--appendfsync", "always", *self._options],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        for _ in itertools.count():
            with contextlib.suppress(OSError), self.connect() as client:
                client.sendall(b"PING\r\n")
                if client.recv(100).startswith((b"+PONG", b"-NOAUTH")):
                    return
            assert time.monotonic() < deadline, "redis-server does not start"
            assert self._process.poll() is None, "redis-server ended"
            time.sleep(0.02)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def run(self, *words: str | bytes) -> bytes:
        """Send one command and return what comes first: enough for what tests tell a server."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        with self.connect() as client:
            client.sendall(
                b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
            )
            return client.recv(65536)

    def pause(self) -> None:
        self._running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._running.kill()
        self._running.wait(PATIENCE)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGCONT)
            self.kill()


@contextlib.contextmanager
def redis_server(folder: Path, *options: str) -> Generator[RedisServer]:
    """A running Redis for the length of the block; the test is skipped where none is installed."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server")
    server = RedisServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
