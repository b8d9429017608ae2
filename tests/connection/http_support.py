"""What the tests of the HTTP transports share."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions

from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.net.http import open_client
from tests.fixtures.hostile_http import HostileServer

LEGACY: CallOptions = {"headers": {"mcp-protocol-version": "2025-11-25"}}
MODERN: CallOptions = {"headers": {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}}

SECONDS = 30
"""How long a test may take at most, on a machine with much else to do."""


@asynccontextmanager
async def running(dispatcher: WireDispatcher) -> AsyncGenerator[ClientSession]:
    """Run a dispatcher, without a word to its server."""
    with anyio.fail_after(SECONDS):
        async with ClientSession(dispatcher=dispatcher) as session:
            yield session


@asynccontextmanager
async def connected(server: HostileServer, **options: Any) -> AsyncGenerator[HttpDispatcher]:
    """Connect to a server and begin a session with it."""
    async with (
        open_client() as client,
        HttpDispatcher(server.url, client, **options) as dispatcher,
        running(dispatcher) as session,
    ):
        await session.initialize()
        yield dispatcher


async def call(
    dispatcher: WireDispatcher, tool: str, opts: CallOptions = LEGACY, /, **arguments: Any
) -> msgspec.Raw:
    return await dispatcher.call_raw("tools/call", {"name": tool, "arguments": arguments}, opts)


async def call_text(
    dispatcher: WireDispatcher, tool: str, opts: CallOptions = LEGACY, /, **arguments: Any
) -> str:
    return json.loads(bytes(await call(dispatcher, tool, opts, **arguments)))["content"][0]["text"]
