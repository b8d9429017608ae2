"""Answers that are too large for an event of a stream, in a client of the Python SDK that can be asked.

Over Streamable HTTP they are no events, unless something came before them. Over HTTP+SSE everything is one.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError

from tests.gateway.support import HANDSHAKE, MODERN, serving
from tests.gateway.test_results import OBJECT, TEXT, entry, tool
from tests.host.asking import AskingServer

SIZE = 1_500_000
IMAGE = f'{{"type":"image","mimeType":"image/png","data":"{{text:{SIZE}}}"}}'
BLOB = f'{{"uri":"test://b","mimeType":"application/zip","blob":"{{text:{SIZE}}}"}}'

pytestmark = pytest.mark.requirement("HARD-87")


async def no_roots(context: Any) -> types.ListRootsResult:
    """A client that declares this is not answered by the fast path."""
    return types.ListRootsResult(roots=[])


def words(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize(
    ("result", "schema", "left", "kept"),
    [
        (f'{{"content":[{{"type":"text","text":"see"}},{IMAGE}]}}', None, ["text", "text"], 1),
        (f'{{"content":[{IMAGE},{{"type":"text","text":"see"}},{IMAGE}]}}', None, ["text"] * 3, 2),
        (
            f'{{"content":[{{"type":"resource","resource":{BLOB}}},{{"type":"text","text":"see"}}]}}',
            None,
            ["text", "text"],
            1,
        ),
        (
            f'{{"content":[{{"type":"text","text":"see"}},{IMAGE}],"structuredContent":{{"result":"kept"}}}}',
            OBJECT,
            ["text", "text"],
            1,
        ),
    ],
    ids=["image", "images", "blob", "structured"],
)
async def test_the_largest_blocks_of_a_result_become_artifacts(
    tmp_path: Path, result: str, schema: Any, left: list[str], kept: int
) -> None:
    tools = {"large": tool(result, schema), "small": tool(f"{{{TEXT}}}")}
    results = entry(tmp_path, HANDSHAKE, tools)
    async with (
        serving(tmp_path, results=results) as served,
        Client(sse_client(f"{served.url}/sse"), mode="legacy", list_roots_callback=no_roots) as client,
    ):
        got = await client.call_tool("results_large", {})
        assert not got.is_error
        assert [block.type for block in got.content] == left
        assert "see" in words(got)
        handles = re.findall(r"artifact://[^ \]]+", words(got))
        assert len(set(handles)) == 1
        assert len(handles) == kept
        assert got.structured_content == ({"result": "kept"} if schema else None)
        page = await served.gateway.host.artifacts.read(handles[0])
        assert page.data == base64.b64decode("x" * SIZE)
        # Read whole, it is as large as it was: the client is told so, and loses no connection.
        again = await client.call_tool("mcp_read_artifact", {"handle": handles[0]})
        assert len(json.dumps(again.model_dump(mode="json"))) < 1_000_000
        assert words(await client.call_tool("results_small", {})) == "hello"


async def test_a_resource_is_an_error_with_a_handle(tmp_path: Path) -> None:
    uri, text = "test://large", "all of it "
    server = AskingServer(
        tmp_path / "record",
        version=HANDSHAKE,
        resources=[{"uri": uri, "name": "large"}, {"uri": "test://small", "name": "small"}],
        texts={uri: text, "test://small": ""},
        copies=200_000,
    )
    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(sse_client(f"{served.url}/sse"), mode="legacy", list_roots_callback=no_roots) as client,
    ):
        with pytest.raises(MCPError, match="too large for an event of a stream") as raised:
            await client.read_resource(uri)
        (handle,) = re.findall(r"artifact://[^ \]]+", str(raised.value))
        assert raised.value.error.data["fairlead/delivery"] == "done"
        assert (await served.gateway.host.artifacts.read(handle)).total == 200_000 * len(text)
        page = await client.call_tool("mcp_read_artifact", {"handle": handle})
        assert words(page).startswith("all of it")
        contents = (await client.read_resource("test://small")).contents
        assert contents[0].model_dump()["text"] == ""


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_an_answer_that_nothing_comes_before_arrives_whole(tmp_path: Path, version: str) -> None:
    tools = {"large": tool(f'{{"content":[{{"type":"text","text":"see"}},{IMAGE}]}}')}
    server = AskingServer(
        tmp_path / "record",
        version=HANDSHAKE,
        resources=[{"uri": "test://large", "name": "large"}],
        texts={"test://large": "all of it "},
        copies=200_000,
    )
    mode = "legacy" if version == HANDSHAKE else "auto"
    async with (
        serving(tmp_path, a=server.entry(), results=entry(tmp_path, HANDSHAKE, tools)) as served,
        Client(f"{served.url}/mcp", mode=mode, list_roots_callback=no_roots) as client,
    ):
        got = await client.call_tool("results_large", {})
        assert [block.type for block in got.content] == ["text", "image"]
        (contents,) = (await client.read_resource("test://large")).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text == "all of it " * 200_000


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_an_answer_after_progress_is_an_event_and_its_largest_block_an_artifact(
    tmp_path: Path, version: str
) -> None:
    large = tool(f'{{"content":[{{"type":"text","text":"see"}},{IMAGE}]}}')
    results = entry(tmp_path, HANDSHAKE, {"large": {**large, "progress": True}})
    reported: list[float] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    mode = "legacy" if version == HANDSHAKE else "auto"
    async with (
        serving(tmp_path, results=results) as served,
        Client(f"{served.url}/mcp", mode=mode, list_roots_callback=no_roots) as client,
    ):
        got = await client.call_tool("results_large", {}, progress_callback=report)
        assert reported == [1]
        assert [block.type for block in got.content] == ["text", "text"]
        assert "artifact://" in words(got)
