"""Somebody at a real browser."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

COMMAND = [sys.executable, str(Path(__file__).with_name("browser_process.py"))]
MOST_BYTES = 1_000_000


class Browser:
    """Takes steps, one after the other."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def __call__(self, step: str, *words: str) -> Any:
        """Do one thing, and return what was seen. Raises what went wrong there."""
        await self._stdin.send(json.dumps([step, *words]).encode() + b"\n")
        answer = json.loads(await self._stdout.receive_until(b"\n", MOST_BYTES))
        assert "error" not in answer, answer["error"]
        return answer["seen"]


@asynccontextmanager
async def browsing(*options: str) -> AsyncGenerator[Browser]:
    """Run a browser for the length of the block, with these options of Chromium."""
    async with await anyio.open_process([*COMMAND, *options], stderr=None) as process:
        try:
            yield Browser(process)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                assert process.stdin is not None
                await process.stdin.aclose()
                await process.wait()
