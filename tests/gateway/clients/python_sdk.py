"""The client of the Python SDK: URL, token, era, calls as JSON, and `all` to list more than tools.

With `cases`, the calls are in a file, and each says what it asks for, as `test_result_clients` writes them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference


async def ask(client: Client, case: dict[str, Any]) -> dict[str, Any]:
    """What came of one request; an error of the server has a code, one of the client has none."""
    try:
        match case["kind"]:
            case "tool":
                result = await client.call_tool(case["name"], {"case": case["case"]})
            case "prompt":
                result = await client.get_prompt(case["name"], {"case": str(case["case"])})
            case "resource":
                result = await client.read_resource(f"case://{case['case']}")
            case _:
                reference = PromptReference(name=case["name"])
                result = await client.complete(reference, {"name": "case", "value": str(case["case"])})
    except Exception as exc:  # noqa: BLE001 - which one is what the test asks
        return {"failed": repr(exc), "code": getattr(getattr(exc, "error", None), "code", None)}
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(url: str, token: str, era: str, calls: str, more: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        if more == "cases":
            answers = [await ask(client, case) for case in json.loads(calls)]
            sys.stdout.write(json.dumps({"version": client.session.protocol_version, "results": answers}))
            return
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
    more = given[4] if len(given) > 4 else ""
    calls = Path(given[3]).read_text(encoding="utf-8") if more == "cases" else given[3]
    anyio.run(main, given[0], given[1], given[2], calls, more)
