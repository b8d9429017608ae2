"""A fake clock, a host that sees nothing of the machine, and folders written down as dictionaries."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import anyio

from fairlead.host.host import Host
from fairlead.servers.framework.server import McpServer


class FakeClock:
    """A clock that stands still until it is advanced. Call it for the time, like `time.monotonic`."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock by so many seconds.

        Args:
            seconds: How far.
        """
        self.now += seconds


@asynccontextmanager
async def open_host(
    folder: Path, *, seconds: float = 30.0, **servers: McpServer | dict[str, Any]
) -> AsyncGenerator[Host]:
    """Run an isolated host for the length of the block. Calls need no approval, unless an entry says so.

    Args:
        folder: Its home, state and current folder are below it.
        seconds: How long the block may take.
        servers: The servers by id: entries as in a configuration file, or `McpServer`s, which run in this
            process.

    Yields:
        The host.

    Raises:
        TimeoutError: The block took longer.
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


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link in a tree, and its target."""

    target: str
    """Where it leads: a path as a link has it, such as `../other`."""


Tree = Mapping[str, Union[str, bytes, Link, "Tree"]]


def write_tree(folder: Path, tree: Tree) -> Path:
    """Write files, links and folders.

    Args:
        folder: The folder to write to; it is created.
        tree: Content by name: text or bytes for a file, a `Link`, or another tree for a folder.

    Returns:
        The folder.

    ```python
    write_tree(tmp_path / "repo", {"README.md": "# Hello", "src": {"main.py": "print()"}, "here": Link(".")})
    ```
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        path = folder / name
        match content:
            case Link(target):
                path.symlink_to(target)
            case str():
                path.write_text(content, encoding="utf-8")
            case bytes():
                path.write_bytes(content)
            case _:
                write_tree(path, content)
    return folder
