"""The same tool call made in every way that is compared: each opens a server and returns how to call it."""

import functools
import importlib
import json
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any, Protocol

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from benchmarks.measuring import ROOT, Cost, leave_out, machine
from benchmarks.peers import INSTALL, TOOLS, is_installed, name_installed, name_own
from fairlead.config.models import ServerLimits
from fairlead.connection.connection import Connection
from fairlead.connection.process.child import Command
from fairlead.connection.supervisor import Supervisor
from fairlead.connection.transport.dispatcher import Transport
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.host.host import Host
from fairlead.net.http import open_client

PATIENCE_SECONDS = 300.0
MAX_MESSAGE_BYTES = 256 * 1024 * 1024
TOOL = "tool_0"

# As a review writes it: exact names, the one that is called not the first.
ALLOWED = [f"tool_{number}" for number in range(19, -1, -1)]

Entry = dict[str, Any]
CallWithSize = Callable[[int], Awaitable[object]]


class Caller(Protocol):
    """Opens the server an entry describes, and gives a function that calls its tool for so much text."""

    def __call__(self, entry: Entry, /) -> AbstractAsyncContextManager[CallWithSize]: ...


def stdio_entry(tools: int = 1) -> Entry:
    """The fast server with that many tools, as a configuration would say it."""
    return {
        "command": sys.executable,
        "args": ["-m", "benchmarks.servers.stdio", str(tools)],
        "cwd": str(ROOT),
    }


def fastmcp_module() -> ModuleType | None:
    """The package, if it is there: it is no dependency of ours."""
    try:
        return importlib.import_module("fastmcp")
    except ImportError:
        return None


async def _no_progress(progress: float, total: float | None, message: str | None) -> None:
    return


def _transport(entry: Entry, client: aiohttp.ClientSession) -> Transport:
    if "url" in entry:
        return lambda: HttpDispatcher(entry["url"], client, max_message_bytes=MAX_MESSAGE_BYTES)
    command = Command(argv=(entry["command"], *entry["args"]), cwd=ROOT)
    return lambda: StdioDispatcher(command, max_line_bytes=MAX_MESSAGE_BYTES)


@asynccontextmanager
async def _connected(entry: Entry) -> AsyncGenerator[Connection]:
    async with open_client() as client, anyio.create_task_group() as tasks:
        supervisor = Supervisor("bench", ServerLimits(), [_transport(entry, client)], tasks=tasks)
        connection = Connection(supervisor)
        try:
            await connection.ready()
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()


@asynccontextmanager
async def connection_raw(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """One supervised connection, its results as bytes."""
    async with _connected(entry) as connection:
        yield lambda size: connection.call_tool(TOOL, {"size": size}, on_progress=_no_progress)


@asynccontextmanager
async def connection_typed(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """The same, its results as the SDK's models."""

    async with _connected(entry) as connection:

        async def call(size: int) -> CallToolResult:
            raw = await connection.call_tool(TOOL, {"size": size}, on_progress=_no_progress)
            return CallToolResult.model_validate_json(bytes(raw))

        yield call


@asynccontextmanager
async def open_host(servers: Mapping[str, Entry]) -> AsyncGenerator[Host]:
    """A host with these servers, in an environment of its own."""
    entries = {
        name: {"allow_tools": ALLOWED, "approval": "allow", "max_message_bytes": MAX_MESSAGE_BYTES, **entry}
        for name, entry in servers.items()
    }
    with machine() as env:
        document = {"servers": entries, "policy": {"approval": "allow"}}
        async with Host.open(overrides=document, env=env, cwd=env["HOME"]) as host:
            yield host


@asynccontextmanager
async def host_raw(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`Host.call`, with policy, deadline and events; nobody reads the result."""
    async with open_host({"bench": entry}) as host:
        yield lambda size: host.call("bench", TOOL, {"size": size})


@asynccontextmanager
async def host_heard(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`Host.call` with somebody who listens to the host's events."""

    async def listen(host: Host, *, task_status: TaskStatus[None]) -> None:
        async with host.events() as events:
            task_status.started()
            async for _ in events:
                pass

    async with open_host({"bench": entry}) as host, anyio.create_task_group() as tasks:
        await tasks.start(listen, host)
        yield lambda size: host.call("bench", TOOL, {"size": size})
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def host_text(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`Host.call`, and its result's text is read."""
    async with open_host({"bench": entry}) as host:

        async def call(size: int) -> str:
            return (await host.call("bench", TOOL, {"size": size})).text

        yield call


@asynccontextmanager
async def host_typed(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`Host.call`, and its result is made the SDK's model."""
    async with open_host({"bench": entry}) as host:

        async def call(size: int) -> CallToolResult:
            return (await host.call("bench", TOOL, {"size": size})).to_sdk()

        yield call


def sdk_parameters(entry: Entry) -> StdioServerParameters | str:
    """An entry as the SDK's client takes it."""
    if "url" in entry:
        return str(entry["url"])
    return StdioServerParameters(command=entry["command"], args=entry["args"], cwd=entry.get("cwd"))


@asynccontextmanager
async def sdk(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """The SDK's `Client`."""
    async with Client(sdk_parameters(entry)) as client:
        yield lambda size: client.call_tool(TOOL, {"size": size})


def fastmcp_client(module: Any, entry: Entry) -> Any:  # noqa: ANN401 - it may not be installed
    """A `fastmcp.Client` for an entry."""
    transport: Any = entry.get("url")
    if transport is None:
        stdio: Any = importlib.import_module("fastmcp.client.transports").StdioTransport
        transport = stdio(entry["command"], entry["args"], cwd=entry["cwd"], keep_alive=False)
    return module.Client(transport)


@asynccontextmanager
async def fastmcp(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`fastmcp.Client`."""
    async with fastmcp_client(fastmcp_module(), entry) as client:
        yield lambda size: client.call_tool(TOOL, {"size": size})


class Elsewhere(Protocol):
    """Makes calls in another process, and returns what each cost there."""

    def __call__(self, count: int, concurrency: int, *, size: int) -> Awaitable[Cost]: ...


@functools.cache
def has_typescript() -> bool:
    """Whether the TypeScript SDK can be compared with."""
    if not is_installed("typescript") or shutil.which("node") is None:
        leave_out("TypeScript SDK Client", INSTALL)
        return False
    name_installed("typescript")
    return True


@asynccontextmanager
async def typescript(entry: Entry) -> AsyncGenerator[Elsewhere]:
    """The TypeScript SDK's client, in a Node process that measures the calls it makes."""
    folder = TOOLS / "typescript"
    program = folder / "caller.mjs"
    # Node looks for packages beside the program.
    program.write_text((ROOT / "benchmarks/clients/typescript.mjs").read_text(encoding="utf-8"))
    async with await anyio.open_process(
        ["node", str(program), json.dumps(entry), TOOL], cwd=ROOT, stderr=None
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = BufferedByteReceiveStream(process.stdout)
        stdin = process.stdin

        async def ask(count: int, concurrency: int, *, size: int) -> Cost:
            wanted = {"count": count // concurrency * concurrency, "concurrency": concurrency, "size": size}
            await stdin.send(json.dumps(wanted).encode() + b"\n")
            with anyio.fail_after(PATIENCE_SECONDS):
                return msgspec.json.decode(await answers.receive_until(b"\n", 1000), type=Cost)

        with anyio.fail_after(PATIENCE_SECONDS):
            await answers.receive_until(b"\n", 1000)  # it is connected
        try:
            yield ask
        finally:
            await stdin.aclose()  # which ends it, and its server
            with anyio.move_on_after(10, shield=True):
                await process.wait()


@functools.cache
def others() -> dict[str, Caller]:
    """The clients we are compared with."""
    if fastmcp_module() is None:
        leave_out(
            "fastmcp Client", "`uv run --with fastmcp==4.1.2 python -m benchmarks.…` compares with it too"
        )
        return {"SDK Client": sdk}
    name_own("fastmcp")
    return {"SDK Client": sdk, "fastmcp Client": fastmcp}
