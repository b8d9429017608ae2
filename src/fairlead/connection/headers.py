"""Headers that a program prints, such as a token that lives in a password store."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.abc
import msgspec
from multidict import CIMultiDict
from yarl import URL

from fairlead.config.masking import SECRETS
from fairlead.config.redact import header_secrets
from fairlead.connection.endpoint import Challenge
from fairlead.connection.http_outcomes import HeadersUnavailable
from fairlead.connection.tail import Tail

MAX_SECONDS = 10.0
MAX_OUTPUT_BYTES = 64 * 1024

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

_decode_object = msgspec.json.Decoder(dict[str, str]).decode


class HeadersHelper:
    """A source of headers that runs a program for them, and again when a server refuses what it printed.

    The program is run as it is, never through a shell. `fixed` headers are given too, unless it prints others
    of the same name. `before` is awaited each time it is to run, and raises where it may not.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        fixed: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        before: Callable[[], Awaitable[object]] | None = None,
        seconds: float = MAX_SECONDS,
    ) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._fixed = dict(fixed or {})
        self._cwd = cwd
        self._before = before
        self._seconds = seconds
        self._headers: CIMultiDict[str] | None = None
        self._running = anyio.Lock()

    async def __call__(
        self, _method: str, _url: URL, challenge: Challenge | None = None, /
    ) -> Mapping[str, str]:
        """Return the headers. Raises `HeadersUnavailable`, which never tells what was printed."""
        if self._headers is None or (challenge is not None and challenge.status == 401):
            async with self._running:
                # Of many requests that were refused the same headers, only the first has new ones printed.
                if self._headers is None or (challenge is not None and challenge.refused == self._headers):
                    headers = CIMultiDict(self._fixed)
                    printed = parse_headers(await self._output())
                    SECRETS.learn(*header_secrets(printed))
                    headers.update(printed)
                    self._headers = headers
        return self._headers

    async def _output(self) -> bytes:
        if self._before is not None:
            await self._before()
        try:
            process = await anyio.open_process(
                self._argv,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._cwd,
                start_new_session=True,
            )
        except OSError as exc:
            raise self._failure(f"cannot be run: {exc.strerror}") from exc
        complaints = Tail()
        output = b""
        try:
            with anyio.move_on_after(self._seconds) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_drain, process.stderr, complaints)
                    output = await _read(process.stdout)
                    if len(output) > MAX_OUTPUT_BYTES:
                        tasks.cancel_scope.cancel()
                    await process.wait()
        finally:
            await _end(process)
        if len(output) > MAX_OUTPUT_BYTES:
            raise self._failure(f"printed more than {MAX_OUTPUT_BYTES} bytes")
        if limit.cancelled_caught:
            raise self._failure(f"was not done within {self._seconds:g} s")
        if process.returncode != 0:
            last_words = "".join(f": {line}" for line in complaints.lines[-1:])
            raise self._failure(f"exited with code {process.returncode}{last_words}")
        return output

    def _failure(self, what: str) -> HeadersUnavailable:
        return HeadersUnavailable(f"the headers helper {self._argv[0]!r} {what}")


async def _read(stream: anyio.abc.ByteReceiveStream | None) -> bytes:
    """Return what is printed, as far as it can be used and a little further."""
    output = bytearray()
    if stream is not None:
        async for chunk in stream:
            output += chunk
            if len(output) > MAX_OUTPUT_BYTES:
                break
    return bytes(output)


async def _drain(stream: anyio.abc.ByteReceiveStream | None, tail: Tail) -> None:
    if stream is not None:
        async for chunk in stream:
            tail.add(chunk)


async def _end(process: anyio.abc.Process) -> None:
    """Leave nothing of the program behind."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with anyio.CancelScope(shield=True):
        await process.aclose()


def parse_headers(output: bytes) -> dict[str, str]:
    """Return the headers in what a program printed: lines of `Name: value`, or a JSON object of strings.

    Raises `HeadersUnavailable` where it is neither.
    """
    text = output.decode(errors="replace").strip()
    if text.startswith("{"):
        try:
            headers = _decode_object(text)
        except ValueError as exc:
            raise HeadersUnavailable("the headers helper printed no JSON object of strings") from exc
    else:
        lines = (line.partition(":") for line in text.splitlines() if line.strip())
        headers = {name.strip(): value.strip() if colon else "\0" for name, colon, value in lines}
    if not headers:
        raise HeadersUnavailable("the headers helper printed no headers")
    for number, (name, value) in enumerate(headers.items(), start=1):
        if not _NAME.fullmatch(name) or _UNPRINTABLE.search(value):
            raise HeadersUnavailable(f"header {number} of the headers helper is none")
    return headers
