"""A host to be killed or paused: it starts servers under a guardian, prints their pids as JSON, and waits.

Run as `python -m tests.connection.guarded_host FOLDER [fork] [leased]`; with `fork`, a process forked off it
lives on; with `leased`, its servers may run for `LEASE_SECONDS`, and it writes a line to stderr
whenever it renews that.
"""

import json
import os
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio

from fairlead.connection.process.child import ProcessLease
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.store.protocol import lease_now
from tests.connection.servers import call_tool, hostile, running

LEASE_SECONDS = 3.0
RENEW_SECONDS = 0.5


def fork() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


async def renew(lease: ProcessLease) -> None:
    while True:
        await anyio.sleep(RENEW_SECONDS)
        lease.extend(lease_now() + LEASE_SECONDS)
        os.write(2, b"renewed\n")


async def main(folder: Path, *, forks: bool, leased: bool) -> None:
    guardian = Guardian()
    lease = ProcessLease(lease_now() + LEASE_SECONDS) if leased else None
    commands = [
        hostile("ignore-sigterm", f"grandchild={folder / 'grandchild'}", "serve", "sleep=600", lease=lease),
        hostile(f"escaped-grandchild={folder / 'escaped'}", "serve", "sleep=600", lease=lease),
        hostile(lease=lease),
    ]
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        if lease is not None:
            tasks.start_soon(renew, lease)
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
    anyio.run(partial(main, Path(sys.argv[1]), forks="fork" in sys.argv, leased="leased" in sys.argv))
