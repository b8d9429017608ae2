# pyright: basic, reportMissingImports=false
"""The client of fastmcp, in its own environment: URL, token, era, calls as JSON, `all` for more lists.

With `cases`, the calls are in a file, and each says what it asks for, as `test_result_clients` writes them.
"""

import json
import sys
from pathlib import Path

import anyio
from fastmcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference


async def ask(client, case) -> dict:
    """What came of one request; an error of the server has a code, one of the client has none."""
    try:
        match case["kind"]:
            case "tool":
                result = await client.call_tool_mcp(case["name"], {"case": case["case"]})
            case "prompt":
                result = await client.get_prompt_mcp(case["name"], {"case": str(case["case"])})
            case "resource":
                result = await client.read_resource_mcp(f"case://{case['case']}")
            case _:
                reference = PromptReference(type="ref/prompt", name=case["name"])
                result = await client.complete_mcp(reference, {"name": "case", "value": str(case["case"])})
    except Exception as exc:  # noqa: BLE001 - which one is what the test asks
        return {"failed": repr(exc), "code": getattr(getattr(exc, "error", None), "code", None)}
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main(url: str, token: str, era: str, calls: str, more: str) -> None:
    mode = "2026-07-28" if era == "modern" else era
    async with Client(url, auth=token, mode=mode) as client:
        tools = [tool.name for tool in await client.list_tools()]
        if more == "cases":
            answers = [await ask(client, case) for case in json.loads(calls)]
            sys.stdout.write(json.dumps({"version": client.protocol_version, "results": answers}))
            return
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
    more = given[4] if len(given) > 4 else ""
    calls = Path(given[3]).read_text(encoding="utf-8") if more == "cases" else given[3]
    anyio.run(main, given[0], given[1], given[2], calls, more)
