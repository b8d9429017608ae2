"""Messages between the supervisor and a worker besides connections: lines of JSON over a socket pair."""

import socket
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from fairlead.gateway.carried_errors import CommandFailed

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
SEND_SECONDS: Final = 5.0
"""How long the other process may leave a message unread that fits in no buffer any more."""

Question = str
"""What one worker asks all others: each name stands where its answer is made."""
DRAIN: Final[Question] = "drain"
"""The supervisor's request to say that the gateway is about to stop, and to serve on."""
RELOAD: Final[Question] = "reload"
"""The request to read the configuration again, which the supervisor follows too."""


class BeginWork(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """First message to a worker: its number, the key of this run, and the folder of the sockets."""

    number: int
    key: str
    """The key of this run, which is in no file, no argument and no environment."""
    folder: str
    """Where the workers' own sockets are; only this user can enter it."""


class LivingWorkers(msgspec.Struct, frozen=True, tag="living"):
    """The numbers of the workers that serve."""

    numbers: tuple[int, ...]


class PeerQuestion(msgspec.Struct, frozen=True, kw_only=True, tag="question"):
    """Question of another worker, or of the supervisor, to this one."""

    id: int
    about: Question
    payload: str


class PeerAnswers(msgspec.Struct, frozen=True, kw_only=True, tag="answers"):
    """Answers of the other workers to a worker's question: of those that answered."""

    id: int
    answers: list[str]


class WorkerReady(msgspec.Struct, frozen=True, tag="ready"):
    """A worker can be given connections."""


class WorkerFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A worker ends, because of this error."""

    error: CommandFailed


class AskPeers(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """A worker's question to all others."""

    id: int
    about: Question
    payload: str


class PeerAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """A worker's answer to another one's question."""

    id: int
    payload: str


ToWorker = BeginWork | LivingWorkers | PeerQuestion | PeerAnswers
FromWorker = WorkerReady | WorkerFailed | AskPeers | PeerAnswer

MessageT = TypeVar("MessageT")

_encode = msgspec.json.Encoder().encode
_decode_to_worker = msgspec.json.Decoder(ToWorker).decode
_decode_from_worker = msgspec.json.Decoder(FromWorker).decode


class MessageChannel(Generic[MessageT]):
    """One end of the socket pair."""

    def __init__(self, stream: UNIXSocketStream, decode: Callable[[bytes], MessageT]) -> None:
        """Speak over a stream; `decode` reads the messages that come."""
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._decode = decode
        self._sending = anyio.Lock()

    async def send(self, message: ToWorker | FromWorker) -> None:
        """Send a message. One to a process that is gone is lost: that is noticed elsewhere."""
        line = _encode(message) + b"\n"
        async with self._sending:
            # Whole or not at all: after half a message nothing that follows can be read.
            with anyio.move_on_after(SEND_SECONDS, shield=True) as limit:
                try:
                    await self._stream.send(line)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            if limit.cancelled_caught:
                await self.close()  # the other one reads nothing any more

    async def receive(self) -> MessageT | None:
        """The next message; None where no more will come, or what came is none."""
        try:
            return self._decode(await self._received.receive_until(b"\n", MAX_MESSAGE_BYTES))
        except (
            msgspec.DecodeError,
            anyio.IncompleteRead,
            anyio.DelimiterNotFound,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            return None

    async def close(self) -> None:
        """Close this end."""
        await self._stream.aclose()


async def channel_of_worker(end: socket.socket) -> MessageChannel[ToWorker]:
    """Open the worker's end of the socket pair."""
    return MessageChannel(await UNIXSocketStream.from_socket(end), _decode_to_worker)


async def channel_to_worker(end: socket.socket) -> MessageChannel[FromWorker]:
    """Open the supervisor's end of the socket pair."""
    return MessageChannel(await UNIXSocketStream.from_socket(end), _decode_from_worker)
