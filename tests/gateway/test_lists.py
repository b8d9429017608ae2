"""The merged list of tools, as clients get it."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.testing import ScriptedServer
from tests.gateway.support import Raw, serving


@pytest.mark.parametrize("era", ["modern", "older"])
async def test_the_origin_of_a_tool_stands_in_its_description(tmp_path: Path, era: str) -> None:
    """Seed 003, 7.1: the description always includes the origin, `MCP server/tool`."""
    said = {"name": "echo", "description": 'Says "it"\nagain.', "inputSchema": {"type": "object"}}
    odd = {"name": 'od"d\u00e9', "inputSchema": {"type": "object"}}
    server = ScriptedServer(tmp_path / "record", tools=[said, odd])
    bundles: dict[str, Any] = {"own": {"servers": {"x": {}}, "names": "plain"}}
    async with (
        serving(tmp_path, config={"bundles": bundles}, x=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):

        async def descriptions(path: str) -> dict[str, str | None]:
            client = Raw(http, f"{served.url}{path}")
            if era == "older":
                await client.begin()
            answer = await (client.modern if era == "modern" else client.older)("tools/list")
            return {tool["name"]: tool.get("description") for tool in answer["result"]["tools"]}

        found = await descriptions("/mcp")
        assert found["x_echo"] == '[x/echo] Says "it"\nagain.'
        assert '[x/od"d\u00e9]' in found.values()
        assert not (found["mcp_read_artifact"] or "").startswith("[")
        plain = await descriptions("/mcp/own")  # as if there were no gateway in between
        assert plain["echo"] == said["description"]
        for entry in await served.gateway.host.tools_of("x"):
            assert b"[x/" not in entry.definition  # what is pinned is what the server said
