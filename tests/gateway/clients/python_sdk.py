"""The client of the Python SDK: URL, token, era, calls as JSON."""

import json
import sys
from typing import Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str, era: str, calls: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        results: list[dict[str, Any]] = []
        for call in json.loads(calls):
            result = await client.call_tool(call["name"], call["arguments"])
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        version = client.session.protocol_version
    sys.stdout.write(json.dumps({"version": version, "tools": tools, "results": results}))


if __name__ == "__main__":
    _, *given = sys.argv
    anyio.run(main, given[0], given[1], given[2], given[3])
