"""A gateway in a process of its own that tests kill, pause, stop and start again at the same port."""

import json
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.gateway_support import command
from tests.redis_server import free_port

START_SECONDS = 120.0
STOP_SECONDS = 60.0


class GatewayProcess:
    """`fairlead gateway`, with the arguments and the environment of one machine.

    Args:
        env: Its environment.
        arguments: What follows `fairlead gateway`.
        program: What is run instead of `python -m fairlead`, if so.
    """

    def __init__(self, env: Mapping[str, str], *arguments: str, program: list[str] | None = None) -> None:
        self.port = free_port()
        self.log = Path(env["HOME"]) / "gateway.log"
        self.environ = dict(env)
        words = ("gateway", "--port", str(self.port), "--json", *arguments)
        self._command = [*program, *words] if program is not None else command(*words)
        self._process: subprocess.Popen[str] | None = None
        self.said: dict[str, object] = {}

    @property
    def pid(self) -> int:
        """Of the process that runs, or ran last."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()  # of the process before, which was killed
        with self.log.open("a") as log:
            self._process = process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.environ["HOME"],
                env=self.environ,
            )
        limit = threading.Timer(START_SECONDS, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            text, self.said = "", {}
            while not self.said:
                line = process.stdout.readline()
                assert line, f"the gateway does not start: {self.log.read_text()[-2000:]}"
                text += line
                with suppress(ValueError):
                    self.said = json.loads(text)
        finally:
            limit.cancel()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self.wait()

    def pause(self) -> None:
        """Have it run no further, as a machine that is suspended."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self._send(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        assert self._process is not None
        status = self._process.wait(STOP_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def _send(self, which: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(which)

    def close(self) -> None:
        """End it, politely where it runs."""
        if self._process is None:
            return
        if self.is_running:
            self.resume()
            self.terminate()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextmanager
def gateway_process(env: Mapping[str, str], *arguments: str) -> Generator[GatewayProcess]:
    """Run a gateway for the length of the block."""
    process = GatewayProcess(env, *arguments)
    try:
        process.start()
        yield process
    finally:
        process.close()
