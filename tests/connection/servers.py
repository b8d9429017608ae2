"""Servers to test against, and how to talk to them."""

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnRequest
from mcp.shared.transport_context import TransportContext

from fairlead.connection.process.child import Command
from fairlead.connection.transport.dispatcher import WireDispatcher

SERVERS = Path(__file__).parent.parent / "fixtures"

Context = DispatchContext[TransportContext]


def hostile(*behaviours: str, **options: Any) -> Command:
    """The server that misbehaves on request; see `tests/fixtures/hostile_stdio.py` for what it can do."""
    return Command(
        argv=(sys.executable, "-I", "-S", str(SERVERS / "hostile_stdio.py"), *behaviours), **options
    )


async def answer_nothing(context: Context, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {}


async def ignore(context: Context, method: str, params: Mapping[str, Any] | None) -> None:
    return None


@asynccontextmanager
async def running(
    *dispatchers: WireDispatcher, on_request: OnRequest = answer_nothing, on_notify: OnNotify = ignore
) -> AsyncGenerator[None]:
    """Run dispatchers with the same handlers for as long as this lasts."""
    async with anyio.create_task_group() as tasks:
        for dispatcher in dispatchers:
            await tasks.start(dispatcher.run, on_request, on_notify)
        yield
        tasks.cancel_scope.cancel()


async def call_tool(
    dispatcher: WireDispatcher,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    opts: CallOptions | None = None,
) -> str:
    """Call a tool and return the first text of its result."""
    params = {"name": name, "arguments": arguments or {}}
    result = await dispatcher.send_raw_request("tools/call", params, opts or {"timeout": 20})
    content = result["content"]
    return content[0]["text"] if content else ""


async def call_json(dispatcher: WireDispatcher, name: str, **arguments: Any) -> Any:
    """Call a tool whose text is JSON and return what it says."""
    return json.loads(await call_tool(dispatcher, name, arguments))


async def call_large(dispatcher: WireDispatcher, name: str, **arguments: Any) -> Any:
    """The same as the host calls tools: the result stays bytes, and so it may be large."""
    raw = await dispatcher.call_raw("tools/call", {"name": name, "arguments": arguments}, {"timeout": 20})
    return json.loads(json.loads(bytes(raw))["content"][0]["text"])
