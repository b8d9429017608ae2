"""A host for tests that sees nothing of the machine it runs on."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from fairlead.host.host import Host
from fairlead.servers.server import McpServer


@asynccontextmanager
async def open_host(
    folder: Path, *, seconds: float = 30.0, **servers: McpServer | dict[str, Any]
) -> AsyncGenerator[Host]:
    """Run a host whose home, state and current folder are below `folder`, for at most `seconds`.

    A server is an entry as in a configuration file, or an `McpServer`, which then runs in this process. Calls
    are not asked about, unless an entry says so.
    """
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True, exist_ok=True)
    project.mkdir(exist_ok=True)
    env = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "FAIRLEAD_BUILTINS": "off",
    }
    entries = {name: server for name, server in servers.items() if not isinstance(server, McpServer)}
    own = {name: server for name, server in servers.items() if isinstance(server, McpServer)}
    with anyio.fail_after(seconds):
        overrides = {"servers": entries, "policy": {"approval": "allow"}}
        async with Host.open(overrides=overrides, servers=own, env=env, cwd=project) as host:
            yield host
