"""A client for the MCP conformance suite: plays one scenario with a `Host`, and fails if it did not go well.

    python client.py URL

The suite starts it, and says in the environment which scenario is played. It ends with 0 if the host did all
that the scenario is about, and with `NOT_PLAYED` if the scenario is none of these.
"""

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from fairlead.catalog.entries import ToolEntry
    from fairlead.host.host import Host

NOT_PLAYED = 64
SECONDS = 60
SERVER = "exam"


async def connect(host: "Host") -> None:
    await host.require([SERVER], seconds=SECONDS)


async def list_tools(host: "Host") -> None:
    await tools_of(host)


async def call_a_tool(host: "Host") -> None:
    await tools_of(host)
    result = await host.call(SERVER, "add_numbers", {"a": 2, "b": 3})
    assert result.text == "The sum of 2 and 3 is 5"


async def call_across_a_broken_stream(host: "Host") -> None:
    result = await host.call(SERVER, "test_reconnection")
    assert result.text == "Reconnection test completed successfully"
    await tools_of(host)


async def call_every_tool(host: "Host") -> None:
    for tool in await tools_of(host):
        result = await host.call(SERVER, tool)
        assert not result.is_error, tool


async def call_as_told(host: "Host") -> None:
    await tools_of(host)
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        result = await host.call(SERVER, call["name"], call["arguments"])
        assert not result.is_error, call["name"]


async def try_every_tool(host: "Host") -> None:
    """Call what is offered, and be refused what is not. The suite sees to it that no such call arrives."""
    from fairlead.errors import UnknownTool

    await call_every_tool(host)
    listing = host.listing(SERVER)
    assert listing is not None
    assert listing.rejected
    for rejected in listing.rejected:
        try:
            await host.call(SERVER, rejected.name)
        except UnknownTool:
            continue
        raise AssertionError(f"{rejected.name} was called")


async def hand_back_a_schema(host: "Host") -> None:
    tools = await tools_of(host)
    schema = tools["json_schema_2020_12_tool"].read()["inputSchema"]
    result = await host.call(SERVER, "json_schema_echo", {"schema": schema})
    assert result.text == "echoed"


SCENARIOS: dict[str, Callable[["Host"], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": call_a_tool,
    "sse-retry": call_across_a_broken_stream,
    "request-metadata": list_tools,
    "http-standard-headers": call_every_tool,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": try_every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": hand_back_a_schema,
}


async def tools_of(host: "Host") -> "dict[str, ToolEntry]":
    return {entry.key.tool: entry for entry in await host.tools(SERVER)}


async def play(scenario: str, url: str) -> None:
    # Imported only where it is needed: in suite mode, dozens of these start at once to play nothing.
    from fairlead.host.host import Host

    servers = {SERVER: {"url": url, "trust": "trusted"}}
    with tempfile.TemporaryDirectory() as home, anyio.fail_after(SECONDS):
        async with Host.open(overrides={"servers": servers}, env={"HOME": home}, cwd=home) as host:
            await SCENARIOS[scenario](host)
            (status,) = host.status()
        assert status.state == "ready", status
    sys.stdout.write(json.dumps({"version": status.version}))


def main() -> int:
    scenario, url = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1]
    if scenario not in SCENARIOS:
        return NOT_PLAYED
    anyio.run(play, scenario, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
