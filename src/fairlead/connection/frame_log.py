"""The JSON-RPC frames of single requests, for a user who wants to see them."""

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from fairlead.jsonrpc.frames import Frame

MAX_FRAMES: Final = 20
MAX_FRAME_BYTES: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedFrame:
    """A message as it went over the wire, up to `MAX_FRAME_BYTES` of it."""

    direction: Literal["sent", "received"]
    data: bytes
    size: int
    at: float
    """In seconds since 1970."""


class FrameLog:
    """Keeps the requests that the present task sends, and their answers, for the length of a block."""

    def __init__(self) -> None:
        self.frames: list[LoggedFrame] = []

    def note_sent(self, frame: bytes) -> None:
        """Keep a request."""
        self._note("sent", frame)

    def note_received(self, frame: Frame) -> None:
        """Keep an answer. Its members are the bytes that came."""
        member = {"error": frame.error} if frame.error else {"result": frame.result}
        self._note("received", msgspec.json.encode({"jsonrpc": "2.0", "id": frame.id, **member}))

    def _note(self, direction: Literal["sent", "received"], data: bytes) -> None:
        if len(self.frames) < MAX_FRAMES:
            kept = LoggedFrame(
                direction=direction, data=data[:MAX_FRAME_BYTES], size=len(data), at=time.time()
            )
            self.frames.append(kept)


FRAME_LOG: ContextVar[FrameLog | None] = ContextVar("frame log", default=None)
"""Where the requests of the present task are kept; None for nowhere."""


def log_sent(frame: bytes) -> None:
    """Log a request, if the present task has a frame log. Called for every request."""
    if (log := FRAME_LOG.get()) is not None:
        log.note_sent(frame)


def log_received(frame: Frame) -> None:
    """Log an answer, if the present task has a frame log."""
    if (log := FRAME_LOG.get()) is not None:
        log.note_received(frame)
