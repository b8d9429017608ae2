"""A host whose servers start descendants. It prints the servers' pids as JSON, and ends as it is told.

Run as `python -m tests.connection.descendant_host FOLDER MARK END COUNT SHAPE…`: COUNT servers of each shape.
A line on stdin ends it: END is `close`, `exit` (which closes nothing) or `raise` (an unhandled error).
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from fairlead.connection.process.child import Command
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import SERVERS, Context, running


def server(shape: str, folder: Path, mark: str) -> Command:
    """A server that starts descendants in a certain way; they note themselves in the folder."""
    folder.mkdir(parents=True)
    arguments = (str(folder), mark)
    if shape == "node_detached":
        argv = ("node", str(SERVERS / "descendants.js"), *arguments)
    else:
        argv = (sys.executable, "-I", "-S", str(SERVERS / "descendants.py"), shape, *arguments)
    return Command(argv=argv, exit_seconds=0.3, terminate_seconds=0.3)


async def main(folder: Path, mark: str, count: int, shapes: list[str], close: bool) -> None:
    names = [(shape, number) for shape in shapes for number in range(count)]
    waiting = len(names)
    all_started = anyio.Event()

    async def on_notify(context: Context, method: str, params: Mapping[str, Any] | None) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            all_started.set()

    async with AsyncExitStack() as stack:
        guardian = Guardian()
        stack.callback(guardian.close)
        dispatchers = [
            StdioDispatcher(server(shape, folder / f"{shape}-{number}", mark), guardian=guardian)
            for shape, number in names
        ]
        for dispatcher in dispatchers:
            await stack.enter_async_context(dispatcher)
            await stack.enter_async_context(running(dispatcher, on_notify=on_notify))
        with anyio.fail_after(120):
            await all_started.wait()
        os.write(1, json.dumps([dispatcher.pid for dispatcher in dispatchers]).encode() + b"\n")
        if close:
            await anyio.to_thread.run_sync(sys.stdin.readline)
        else:
            await anyio.sleep_forever()


if __name__ == "__main__":
    where, its_mark, end, how_many, *ways = sys.argv[1:]
    run = partial(anyio.run, partial(main, Path(where), its_mark, int(how_many), ways, end == "close"))
    if end == "close":
        run()
    else:
        # The interpreter does not wait for such a thread, and so closes nothing.
        threading.Thread(target=run, daemon=True).start()
        sys.stdin.readline()
        if end == "raise":
            raise RuntimeError("nobody handles this")
        sys.exit(3)
