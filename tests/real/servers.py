"""The real servers: how each is started, what it offers, and one call whose answer is known.

All are made from a machine and the URL of a page, which only the one that fetches pages needs.
"""

import json
import math
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from fairlead.host.host import Host
from tests.conftest import Machine
from tests.real.processes import MARK

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"

TEST_TOOLS = Path(__file__).parents[2] / ".test-tools"
NPM = TEST_TOOLS / "npm"
NPM_BIN = NPM / "node_modules" / ".bin"
PYTHON_BIN = TEST_TOOLS / "servers" / "bin"

EVERYTHING_TOOLS = frozenset(
    {
        "echo",
        "get-annotated-message",
        "get-env",
        "get-resource-links",
        "get-resource-reference",
        "get-structured-content",
        "get-sum",
        "get-tiny-image",
        "gzip-file-as-resource",
        "simulate-research-query",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
        "trigger-long-running-operation",
    }
)

LONG_OPERATION = "trigger-long-running-operation"
"""The tool of `everything` that takes its time and reports progress."""


@dataclass(frozen=True, kw_only=True)
class RealServer:
    """A server's entry in a configuration, and what is known about it."""

    server_id: str
    entry: dict[str, Any]
    version: str
    tools: frozenset[str]
    tool: str
    arguments: Mapping[str, Any]
    answer: str

    def open_host(self, machine: Machine) -> AbstractAsyncContextManager[Host]:
        """A host that knows this server and no other."""
        return open_host(machine, {self.server_id: self.entry})

    async def check_answer(self, host: Host) -> None:
        """Call its tool, and see that it brings what it should."""
        result = await host.call(self.server_id, self.tool, self.arguments)
        assert not result.is_error
        assert self.answer in result.text


def open_host(
    machine: Machine, servers: Mapping[str, Mapping[str, Any]]
) -> AbstractAsyncContextManager[Host]:
    document = {"servers": servers, "policy": {"approval": "allow"}}
    return Host.open(overrides=document, env=machine.env, cwd=machine.project)


async def seconds_to_give_up(host: Host, server_id: str) -> float:
    """Cancel a long call once it is under way, and return how long the caller had to wait for that."""
    cancelled_at = math.inf

    async def give_up(progress: float, total: float | None, message: str | None) -> None:
        nonlocal cancelled_at
        if not caller.cancel_called:
            cancelled_at = anyio.current_time()
            caller.cancel()

    with anyio.CancelScope() as caller:
        await host.call(server_id, LONG_OPERATION, {"duration": 600, "steps": 6000}, on_progress=give_up)
    assert caller.cancelled_caught
    return anyio.current_time() - cancelled_at


def mark_of(machine: Machine, server_id: str) -> str:
    return f"{machine.home}/{server_id}"


def stdio_entry(
    machine: Machine, server_id: str, argv: list[str], env: Mapping[str, str] | None = None, **rest: Any
) -> dict[str, Any]:
    """An entry for a program, whose processes can be told from all others by their mark."""
    marked = {MARK: mark_of(machine, server_id), **(env or {})}
    return {"command": argv[0], "args": argv[1:], "trust": "trusted", "env": marked, **rest}


def everything(machine: Machine, page: str = "") -> RealServer:
    """Does something of all that MCP knows."""
    return RealServer(
        server_id="everything",
        entry=stdio_entry(machine, "everything", [str(NPM_BIN / "mcp-server-everything")]),
        version=HANDSHAKE,
        tools=EVERYTHING_TOOLS,
        tool="get-sum",
        arguments={"a": 17, "b": 25},
        answer="42",
    )


def filesystem(machine: Machine, page: str = "") -> RealServer:
    """Reads and writes files, here those of the project."""
    note = machine.project / "note.txt"
    note.write_text("a line on disk\n", encoding="utf-8")
    argv = [str(NPM_BIN / "mcp-server-filesystem"), str(machine.project)]
    return RealServer(
        server_id="filesystem",
        entry=stdio_entry(machine, "filesystem", argv),
        version=HANDSHAKE,
        tools=frozenset(
            {
                "create_directory",
                "directory_tree",
                "edit_file",
                "get_file_info",
                "list_allowed_directories",
                "list_directory",
                "list_directory_with_sizes",
                "move_file",
                "read_file",
                "read_media_file",
                "read_multiple_files",
                "read_text_file",
                "search_files",
                "write_file",
            }
        ),
        tool="read_text_file",
        arguments={"path": str(note)},
        answer="a line on disk",
    )


def memory(machine: Machine, page: str = "") -> RealServer:
    """Remembers things in a file."""
    file = machine.home / "memory.jsonl"
    ada = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    file.write_text(json.dumps(ada) + "\n", encoding="utf-8")
    argv, env = [str(NPM_BIN / "mcp-server-memory")], {"MEMORY_FILE_PATH": str(file)}
    return RealServer(
        server_id="memory",
        entry=stdio_entry(machine, "memory", argv, env),
        version=HANDSHAKE,
        tools=frozenset(
            {
                "add_observations",
                "create_entities",
                "create_relations",
                "delete_entities",
                "delete_observations",
                "delete_relations",
                "open_nodes",
                "read_graph",
                "search_nodes",
            }
        ),
        tool="read_graph",
        arguments={},
        answer="wrote programs",
    )


def git(machine: Machine, page: str = "") -> RealServer:
    """Works on a repository, here the project, which gets one commit."""
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for command in (["init", "--quiet"], [*author, "commit", "--quiet", "--allow-empty", "-m", "begin"]):
        subprocess.run(["git", *command], cwd=machine.project, env=machine.env, check=True, timeout=20)
    repository = str(machine.project)
    argv = [str(PYTHON_BIN / "mcp-server-git"), "--repository", repository]
    return RealServer(
        server_id="git",
        entry=stdio_entry(machine, "git", argv),
        version=MODERN,
        tools=frozenset(
            {
                "git_add",
                "git_branch",
                "git_checkout",
                "git_commit",
                "git_create_branch",
                "git_diff",
                "git_diff_staged",
                "git_diff_unstaged",
                "git_log",
                "git_reset",
                "git_show",
                "git_status",
            }
        ),
        tool="git_log",
        arguments={"repo_path": repository},
        answer="begin",
    )


def time(machine: Machine, page: str = "") -> RealServer:
    """Knows what time it is elsewhere."""
    argv = [str(PYTHON_BIN / "mcp-server-time"), "--local-timezone", "UTC"]
    return RealServer(
        server_id="time",
        entry=stdio_entry(machine, "time", argv),
        version=MODERN,
        tools=frozenset({"convert_time", "get_current_time"}),
        tool="convert_time",
        arguments={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        answer="T21:00:00+09:00",
    )


def fetch(machine: Machine, page: str) -> RealServer:
    """Fetches pages, here one of the test's own; it asks the site's `robots.txt` first."""
    argv = [str(PYTHON_BIN / "mcp-server-fetch"), "--allow-private-ips"]
    return RealServer(
        server_id="fetch",
        entry=stdio_entry(machine, "fetch", argv),
        version=MODERN,
        tools=frozenset({"fetch"}),
        tool="fetch",
        arguments={"url": page},
        answer="a page of the test",
    )


SERVERS: dict[str, Callable[[Machine, str], RealServer]] = {
    "everything": everything,
    "filesystem": filesystem,
    "memory": memory,
    "git": git,
    "time": time,
    "fetch": fetch,
}
