"""A host to be killed: it starts servers under a guardian, prints their pids as JSON, and waits.

Run as `python -m tests.connection.guarded_host FOLDER [fork]`; with `fork`, a process forked off it lives on.
"""

import json
import os
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio

from fairlead.connection.process.guardian import Guardian
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import call_tool, hostile, running


def fork() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


async def main(folder: Path, *, forks: bool) -> None:
    guardian = Guardian()
    commands = [
        hostile("ignore-sigterm", f"grandchild={folder / 'grandchild'}", "serve", "sleep=600"),
        hostile(f"escaped-grandchild={folder / 'escaped'}", "serve", "sleep=600"),
        hostile(),
    ]
    async with AsyncExitStack() as stack:
        dispatchers = [
            await stack.enter_async_context(StdioDispatcher(command, guardian=guardian))
            for command in commands
        ]
        await stack.enter_async_context(running(*dispatchers))
        for dispatcher in dispatchers:
            await call_tool(dispatcher, "echo")
        pids = {
            "guardian": guardian.pid,
            "forked": fork() if forks else None,
            "servers": [dispatcher.pid for dispatcher in dispatchers],
            "grandchildren": [int((folder / name).read_text()) for name in ("grandchild", "escaped")],
        }
        os.write(1, json.dumps(pids).encode() + b"\n")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(partial(main, Path(sys.argv[1]), forks="fork" in sys.argv))
