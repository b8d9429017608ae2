"""Lists that are as costly as the limits allow hold up neither a host nor the clients of a gateway."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.errors import ListFailed
from fairlead.testing import watch_loop
from fairlead.testing.fixtures import open_host
from tests.gateway.support import HANDSHAKE, Raw, serving
from tests.hostile import list_program
from tests.hostile.exam import LIMIT_SECONDS, neighbour

SECONDS = 60
PINNED: dict[str, Any] = {"trust": "untrusted", "allow_tools": ["*"]}


def entry_of(shape: str, **fields: Any) -> dict[str, Any]:
    arguments = ["-I", "-S", list_program.__file__, shape]
    return {"command": sys.executable, "args": arguments, "trust": "trusted", **fields}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("shape", list_program.SHAPES)
async def test_no_list_holds_a_host_up(shape: str, tmp_path: Path) -> None:
    for _ in ("new", "with its snapshot"):
        async with open_host(tmp_path, seconds=SECONDS, lists=entry_of(shape, **PINNED)) as host:
            with watch_loop(LIMIT_SECONDS):
                await host.connect("lists")
                await host.tools.ready(seconds=SECONDS)
                await host.tools.search("anything")
                await host.tools.definitions()
                with suppress(ListFailed):  # a page may have more parts than are read at all
                    assert (await host.call("lists", "echo")).text == "done"


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("shape", list_program.SHAPES)
async def test_no_list_holds_a_gateway_up(shape: str, tmp_path: Path) -> None:
    servers: dict[str, Any] = {"lists": entry_of(shape), "neighbour": neighbour()}
    config = {"policy": {"approval": "allow"}}
    async with (
        serving(tmp_path, config=config, seconds=SECONDS, **servers) as served,
        aiohttp.ClientSession() as http,
    ):
        client, older = Raw(http, served.url + "/mcp"), Raw(http, served.url + "/mcp")
        with watch_loop(LIMIT_SECONDS), anyio.fail_after(SECONDS):
            await older.begin()
            for method in list_program.FIELDS:
                assert b'"result":' in (await client.modern_bytes(method))[:200]
                message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
                headers = {**older.headers, "Mcp-Protocol-Version": HANDSHAKE}
                async with http.post(older.url, json=message, headers=headers) as response:
                    await response.read()
            answered = await client.modern("tools/call", name="neighbour_answer", arguments={})
            assert "result" in answered
