"""A client for the MCP conformance suite: plays one scenario with a `Host`, and fails if it did not go well.

    python client.py URL

The suite starts it, and says in the environment which scenario is played, in which version of the protocol. It
ends with 0 if the host did all the scenario is about, and with `NOT_PLAYED` if nobody here knows the scenario.
"""

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from fairlead.catalog.entries import ToolEntry
    from fairlead.host.host import Host

NOT_PLAYED = 64
SECONDS = 50
SERVER = "exam"


async def connect(host: "Host") -> None:
    await host.require([SERVER], seconds=SECONDS)


async def list_tools(host: "Host") -> None:
    await tools_of(host)


async def call_a_tool(host: "Host") -> None:
    await tools_of(host)
    result = await host.call(SERVER, "add_numbers", {"a": 2, "b": 3})
    expect(result.text == "The sum of 2 and 3 is 5", result.text)


async def call_across_a_broken_stream(host: "Host") -> None:
    result = await host.call(SERVER, "test_reconnection")
    expect("completed" in result.text, result.text)


async def call_every_tool(host: "Host") -> None:
    for tool in await tools_of(host):
        result = await host.call(SERVER, tool, {"region": "us-west1"})
        expect(not result.is_error, result.text)


async def call_as_told(host: "Host") -> None:
    await tools_of(host)
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        result = await host.call(SERVER, call["name"], call["arguments"])
        expect(not result.is_error, result.text)


async def leave_out_invalid_tools(host: "Host") -> None:
    tools = await tools_of(host)
    listing = host.listing(SERVER)
    expect(list(tools) == ["valid_tool"], f"offered: {list(tools)}")
    expect(listing is not None and len(listing.rejected) > 1, "no tool was rejected")
    await call_every_tool(host)


async def hand_back_a_schema(host: "Host") -> None:
    tools = await tools_of(host)
    schema = tools["json_schema_2020_12_tool"].read()["inputSchema"]
    await host.call(SERVER, "json_schema_echo", {"schema": schema})


SCENARIOS: dict[str, Callable[["Host"], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": call_a_tool,
    "sse-retry": call_across_a_broken_stream,
    "request-metadata": list_tools,
    "http-standard-headers": call_every_tool,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": leave_out_invalid_tools,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": hand_back_a_schema,
}


async def tools_of(host: "Host") -> "dict[str, ToolEntry]":
    return {entry.key.tool: entry for entry in await host.tools(SERVER)}


def expect(fact: bool, otherwise: str) -> None:
    if not fact:
        raise SystemExit(f"not as it should be: {otherwise}")


async def play(scenario: str, url: str) -> None:
    # Imported for a scenario that is played only: a suite starts many at once that are not.
    from fairlead.host.host import Host

    servers: dict[str, Any] = {SERVER: {"url": url, "trust": "trusted"}}
    with tempfile.TemporaryDirectory() as home, anyio.fail_after(SECONDS):
        async with Host.open(overrides={"servers": servers}, env={"HOME": home}, cwd=home) as host:
            await SCENARIOS[scenario](host)
            (status,) = host.status()
        expect(status.state == "ready", f"{status.state}: {status.last_error}")
        print(json.dumps({"version": status.version}))  # noqa: T201 - the suite keeps what a client says


def main() -> int:
    scenario, url = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1]
    if scenario not in SCENARIOS:
        return NOT_PLAYED
    anyio.run(play, scenario, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
