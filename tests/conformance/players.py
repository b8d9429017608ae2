"""Plays scenarios for the programs that the suite starts: what clients import is imported once, for all.

    python -m tests.conformance.players DESCRIPTOR

The suite starts dozens of clients at the same time, and most of what each costs is its imports. So it starts
`player.py`, which is small and sends its scenario to the socket that this listens on. Each is played in a
process of its own, forked before anything was done; as many at once as there are processors, and one more.
"""

import json
import os
import socket
import sys
from typing import Any

import anyio

from tests.conformance.client import play

AT_ONCE = 1 + (os.cpu_count() or 1)


def next_player(listener: socket.socket) -> tuple[socket.socket, dict[str, Any], list[int]]:
    """Return in a new process for each that asks: who asks, what for, and where output is to go."""
    players = 0
    while True:
        if players == AT_ONCE:
            os.wait()
            players -= 1
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return caller, *received(caller)
        caller.close()
        players += 1


def received(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    message, outputs, _, _ = socket.recv_fds(caller, 65536, 2)
    while not message.endswith(b"\n"):
        message += caller.recv(65536)
    return json.loads(message), outputs


def main() -> None:
    caller, request, outputs = next_player(socket.socket(fileno=int(sys.argv[1])))
    for output, own in zip(outputs, (1, 2), strict=True):
        os.dup2(output, own)
        os.close(output)
    os.environ.update(request["environment"])
    with caller:
        anyio.run(play, os.environ["MCP_CONFORMANCE_SCENARIO"], request["url"])
        sys.stdout.flush()
        caller.send(b"\0")  # it went well


if __name__ == "__main__":
    main()
