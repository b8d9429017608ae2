"""Passing of a connection from one worker to another, with the request that came on it.

A request may belong to what another worker keeps. Rather than be relayed, the whole connection moves: its
descriptor goes to the owner over that one's Unix socket, with the bytes that were read of the request. From
then on the client is served where its session is, without another process in between, and streams, progress
and hanging up are what they always are.
"""

import hmac
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup, UNIXSocketStream

from fairlead.net.listen import MAX_BODY_BYTES, MAX_HEAD_BYTES, DetachedConnection, bind_unix

PASSING_SECONDS: Final = 5.0
"""How long one worker waits for another to take a connection."""
_MAX_BYTES: Final = 2 * (MAX_BODY_BYTES + MAX_HEAD_BYTES)
_SIZE_BYTES: Final = 4
_TAKEN: Final = b"+"
_PAUSE_SECONDS: Final = 0.1

logger = logging.getLogger(__name__)

Adopt = Callable[[socket.socket, bytes], Awaitable[None]]


def socket_of(folder: str, number: int) -> Path:
    """The socket on which a worker takes connections of others."""
    return Path(folder) / f"{number}"


PassingOutcome = Literal["taken", "refused", "gone", "unknown"]
"""What became of a connection: a worker took it, or one that lives, or is gone, did not. Where it is unknown,
who had it may not use it any more."""


async def pass_connection(path: Path, proof: bytes, connection: DetachedConnection) -> PassingOutcome:
    """Give a connection to the worker that listens there."""
    try:
        with anyio.fail_after(PASSING_SECONDS):
            async with await anyio.connect_unix(str(path)) as peer:
                size = len(connection.received).to_bytes(_SIZE_BYTES, "big")
                await peer.send_fds(proof + size, [connection.socket.fileno()])
                await peer.send(connection.received)
                return "taken" if await peer.receive(1) == _TAKEN else "refused"
    except TimeoutError:
        logger.warning("another worker does not answer", extra={"worker": path.name})
        return "unknown"
    except (ConnectionRefusedError, FileNotFoundError):
        return "gone"
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        logger.info("another worker took no connection", extra={"worker": path.name}, exc_info=True)
        return "refused"  # it has no free descriptor, say


@asynccontextmanager
async def taking_connections(path: Path, proof: bytes, adopt: Adopt) -> AsyncGenerator[None]:
    """Take connections of other workers, for the length of the block.

    Args:
        path: Where to listen, in a folder that only this user can enter.
        proof: What another worker shows first.
        adopt: Serves a connection of which some bytes were read before.
    """
    with bind_unix(path) as listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, tasks, proof, adopt)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()


async def _accept(listener: socket.socket, tasks: TaskGroup, proof: bytes, adopt: Adopt) -> None:
    while True:
        await anyio.wait_readable(listener)
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            continue
        except OSError:  # no descriptor is free: the other one serves its connection itself
            await anyio.sleep(_PAUSE_SECONDS)
            continue
        tasks.start_soon(_take_one, await UNIXSocketStream.from_socket(peer), proof, adopt)


async def _take_one(peer: UNIXSocketStream, proof: bytes, adopt: Adopt) -> None:
    with suppress(OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
        with anyio.fail_after(PASSING_SECONDS):
            async with peer:
                await _take(peer, proof, adopt)


async def _take(peer: UNIXSocketStream, proof: bytes, adopt: Adopt) -> None:
    head, descriptors = await peer.receive_fds(len(proof) + _SIZE_BYTES, 1)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    is_adopted = False
    try:
        while len(head) < len(proof) + _SIZE_BYTES:
            head += await peer.receive(len(proof) + _SIZE_BYTES - len(head))
        shown, size = head[: len(proof)], int.from_bytes(head[len(proof) :], "big")
        # The folder keeps other users out. This keeps out what else the user runs, by mistake.
        if not hmac.compare_digest(shown, proof) or not sockets or size > _MAX_BYTES:
            return
        received = bytearray()
        while len(received) < size:
            received += await peer.receive(size - len(received))
        # First answered, then served: a sender that gets no answer serves the connection itself.
        await peer.send(_TAKEN)
        is_adopted = True
        with anyio.CancelScope(shield=True):
            await adopt(sockets[0], bytes(received))
    finally:
        if not is_adopted:
            for each in sockets:
                each.close()
