"""A host to be killed: it starts a sandboxed server that starts another process, says so, and waits.

Run as `python -m tests.connection.boxed_host HOME MARKER`; the marker is in the arguments of both processes.
"""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from fairlead.connection.process.child import Command
from fairlead.connection.process.guardian import Guardian
from fairlead.connection.process.sandbox import SandboxRequest, wrap_in_sandbox
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import Context, running

SERVER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], start_new_session=True)
print('{"jsonrpc": "2.0", "method": "notifications/started"}', flush=True)
time.sleep(600)
"""


def stubborn(home: Path, marker: str) -> Command:
    """A sandboxed server that ends neither by itself nor when told to; its child has left its group."""
    command = Command(argv=(sys.executable, "-c", SERVER, marker), exit_seconds=0.1, terminate_seconds=0.5)
    return wrap_in_sandbox("stubborn", command, SandboxRequest(home=home))


@asynccontextmanager
async def started(dispatcher: StdioDispatcher) -> AsyncGenerator[None]:
    """Run the block once the server says that it is there, and its child too."""
    said = anyio.Event()

    async def on_notify(context: Context, method: str, params: Mapping[str, Any] | None) -> None:
        said.set()

    async with dispatcher, running(dispatcher, on_notify=on_notify):
        await said.wait()
        yield


async def main(home: Path, marker: str) -> None:
    async with started(StdioDispatcher(stubborn(home, marker), guardian=Guardian())):
        os.write(1, b"started\n")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
