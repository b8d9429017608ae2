"""How a call gets from the socket to the host: few functions, and one lookup."""

import inspect
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.catalog.catalog import Catalog, CatalogTool
from fairlead.catalog.results import ToolResult
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.gateway.support import Raw, serving

MAX_FRAMES = 8


class Observer:
    """Notes which functions of ours a call passes on its way to the host, and which tools are looked up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[list[str]] = []
        self.lookups: list[str] = []
        call, called = Host.call, Catalog.find_tool

        def observed_call(host: Host, *args: Any, **options: Any) -> Awaitable[ToolResult]:
            self.paths.append(_frames_of_ours())
            return call(host, *args, **options)

        def observed_lookup(catalog: Catalog, name: str) -> CatalogTool | None:
            self.lookups.append(name)
            return called(catalog, name)

        monkeypatch.setattr(Host, "call", observed_call)
        monkeypatch.setattr(Catalog, "find_tool", observed_lookup)


def _frames_of_ours() -> list[str]:
    frame, found = inspect.currentframe(), list[str]()
    while frame is not None:
        if frame.f_globals["__name__"].startswith("fairlead."):
            found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found


@pytest.mark.parametrize("wire", ["modern", "older"])
async def test_a_call_passes_few_functions_on_its_way_to_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    server = ScriptedServer(tmp_path / "record").entry(trust="trusted", approval="allow")
    async with serving(tmp_path, s=server) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        send = client.modern if wire == "modern" else client.older
        await send("tools/list")
        await send("tools/call", 2, name="s_echo", arguments={})
        observer = Observer(monkeypatch)
        answer = await send("tools/call", 3, name="s_echo", arguments={})
        assert not answer["result"].get("isError")
        (path,) = observer.paths
        assert len(path) <= MAX_FRAMES, path
        assert observer.lookups == ["s_echo"]


async def test_a_tool_that_is_not_known_is_looked_for_again_once_its_server_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(tmp_path / "record").entry(trust="trusted", approval="allow")
    async with serving(tmp_path, s=server) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        observer = Observer(monkeypatch)
        answer = await client.modern("tools/call", 1, name="s_echo", arguments={})
        assert not answer["result"].get("isError")
        assert observer.lookups == ["s_echo", "s_echo"]
