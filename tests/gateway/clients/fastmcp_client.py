# pyright: basic, reportMissingImports=false
"""The client of fastmcp, in its own environment: URL, token, era, calls as JSON, `all` for more lists."""

import json
import sys

import anyio
from fastmcp import Client
from mcp.shared.exceptions import MCPError


async def main(url: str, token: str, era: str, calls: str, more: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with Client(url, auth=token, mode=mode) as client:
        tools = [tool.name for tool in await client.list_tools()]
        results = []
        for call in json.loads(calls):
            try:
                result = await client.call_tool_mcp(call["name"], call["arguments"])
            except MCPError as exc:
                results.append({"error": str(exc)})
                continue
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        said = {"version": client.protocol_version, "tools": tools, "results": results}
        if more:
            said["resources"] = [str(each.uri) for each in await client.list_resources()]
            templates = await client.list_resource_templates()
            said["templates"] = [each.model_dump(by_alias=True)["uriTemplate"] for each in templates]
            said["prompts"] = [each.name for each in await client.list_prompts()]
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    _, *given = sys.argv
    anyio.run(main, given[0], given[1], given[2], given[3], given[4] if len(given) > 4 else "")
