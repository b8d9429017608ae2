# pyright: basic, reportMissingImports=false
"""The client of fastmcp, which has an environment of its own: URL, token, era, calls as JSON."""

import json
import sys

import anyio
from fastmcp import Client


async def main(url: str, token: str, era: str, calls: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with Client(url, auth=token, mode=mode) as client:
        tools = [tool.name for tool in await client.list_tools()]
        results = []
        for call in json.loads(calls):
            result = await client.call_tool_mcp(call["name"], call["arguments"])
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        version = client.protocol_version
    sys.stdout.write(json.dumps({"version": version, "tools": tools, "results": results}))


if __name__ == "__main__":
    _, *given = sys.argv
    anyio.run(main, given[0], given[1], given[2], given[3])
