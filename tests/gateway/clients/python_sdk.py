"""The client of the Python SDK: URL, token, era, calls as JSON, and `all` to list more than tools."""

import json
import sys
from typing import Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError


async def main(url: str, token: str, era: str, calls: str, more: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        results: list[dict[str, Any]] = []
        for call in json.loads(calls):
            try:
                result = await client.call_tool(call["name"], call["arguments"])
            except MCPError as exc:
                results.append({"error": str(exc)})
                continue
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        said: dict[str, Any] = {
            "version": client.session.protocol_version,
            "tools": tools,
            "results": results,
        }
        if more:
            said["resources"] = [str(each.uri) for each in (await client.list_resources()).resources]
            templates = (await client.list_resource_templates()).resource_templates
            said["templates"] = [each.uri_template for each in templates]
            said["prompts"] = [each.name for each in (await client.list_prompts()).prompts]
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    _, *given = sys.argv
    anyio.run(main, given[0], given[1], given[2], given[3], given[4] if len(given) > 4 else "")
