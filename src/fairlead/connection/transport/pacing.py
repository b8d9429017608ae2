"""Paced reading of a stream: in small pieces, yielding to the event loop, at a bounded rate.

A server decides how much it sends, and a stream may never end. What it costs us is bounded here: no piece
takes long, between pieces other tasks and cancellation get their turn, and a token bucket per stream pauses
reading where more comes than was requested. The server then waits for us: TCP and pipes have flow control.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import aiohttp
import anyio

PIECE_BYTES: Final = 32 * 1024
"""How much is read at once. 32 KiB of blank lines take about 10 ms."""

# Units are about what a byte costs. Measured: a line costs 1 µs, an HTTP chunk 4 µs, a message 50 to 300 µs
# once it was validated, published to subscribers and passed to gateway clients.
LINE_UNITS: Final = 256
CHUNK_UNITS: Final = 256
MESSAGE_UNITS: Final = 4096

_BURST_UNITS: Final = 8.0 * 1024 * 1024
_UNITS_PER_SECOND: Final = 1024.0 * 1024
_BUSY_FACTOR: Final = 8.0
"""How much faster the bucket fills while calls wait for this stream."""
_BUSY_BYTES_PER_UNIT: Final = 16
_BUSY_MESSAGES_PER_UNIT: Final = 8
_MIN_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 0.25
"""How soon a paused stream is looked at again: a call may have begun that waits for it."""
_TURN_UNITS: Final = 16 * MESSAGE_UNITS
"""How much is worked on before the event loop gets its turn: 16 messages, each of which may start a task."""


class ReadPace:
    """Token bucket for one stream.

    A stream that no call waits for gets 256 messages or 1 MiB a second, after a burst of 2,048 messages or
    8 MiB; while calls wait for it, 16,384 messages or 128 MiB. Answers to calls cost nothing: a server
    cannot send more of them than we requested.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = _BURST_UNITS
        self._at = clock()

    def spend(self, size: int, extra: int = 0, *, busy: bool = False) -> None:
        """Count so many bytes, and what they cost besides."""
        self._left -= (size + extra) // _BUSY_BYTES_PER_UNIT if busy else size + extra

    def spend_on_messages(self, count: int, *, busy: bool = False) -> None:
        """Count messages that answer no request."""
        self._left -= count * (MESSAGE_UNITS // _BUSY_MESSAGES_PER_UNIT if busy else MESSAGE_UNITS)

    def refund(self, size: int) -> None:
        """Give back what the bytes of answers to calls cost."""
        self._left = min(self._left + size, _BURST_UNITS)

    def pause_seconds(self, *, busy: bool = False) -> float:
        """Seconds to pause reading now; 0 where reading may go on."""
        if self._left > 0:
            return 0.0
        now = self._clock()
        rate = _UNITS_PER_SECOND * (_BUSY_FACTOR if busy else 1.0)
        self._left = min(self._left + (now - self._at) * rate, _BURST_UNITS)
        self._at = now
        if self._left > 0:
            return 0.0
        return min(max(-self._left / rate, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)


class FairReader:
    """Reads the body of one response. Every await in it is a point where closing wins."""

    def __init__(self, content: aiohttp.StreamReader, pace: ReadPace, is_busy: Callable[[], bool]) -> None:
        self._content = content
        self._pace = pace
        self._is_busy = is_busy
        self._rest = b""
        self._since_turn = 0
        self._busy = False

    async def read(self) -> bytes:
        """The next piece; empty at the end. Raises what `aiohttp` raises where the stream breaks off."""
        await self._take_turn()
        while not self._rest:
            # Reading HTTP chunks one by one makes each of them count: many small ones are not cheap.
            self._rest, is_chunk_end = await self._content.readchunk()
            self._count(0, CHUNK_UNITS)
            if not self._rest:
                if not is_chunk_end:
                    return b""
                await self._take_turn()
        piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
        lines = piece.count(b"\n") + piece.count(b"\r")
        self._count(len(piece), lines * LINE_UNITS)
        return piece

    async def count_message(self, size: int, *, is_answer: bool) -> None:
        """Count a message that was handed on; where there were many, let others have their turn."""
        if is_answer:
            self._pace.refund(size)
        else:
            self._pace.spend_on_messages(1, busy=self._busy)
        self._since_turn += MESSAGE_UNITS
        if self._since_turn >= _TURN_UNITS:
            self._since_turn = 0
            await asyncio.sleep(0)

    def _count(self, size: int, extra: int) -> None:
        self._pace.spend(size, extra, busy=self._busy)
        self._since_turn += size + extra

    async def _take_turn(self) -> None:
        self._busy = self._is_busy()
        while pause := self._pace.pause_seconds(busy=self._busy):
            self._since_turn = 0
            await anyio.sleep(pause)
            self._busy = self._is_busy()
        if self._since_turn >= _TURN_UNITS:
            # Where data is always there, `readchunk` never suspends, and a cancelled task would go on.
            self._since_turn = 0
            await asyncio.sleep(0)
