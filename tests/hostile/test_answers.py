"""Answers, questions and notifications as costly as the limits allow hold up neither host nor gateway."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.errors import CallFailed, FairleadError
from fairlead.testing import watch_loop
from fairlead.testing.fixtures import open_host
from tests.gateway.support import HANDSHAKE, Raw, serving
from tests.hostile import answer_program
from tests.hostile.exam import LIMIT_SECONDS

pytestmark = pytest.mark.requirement("HARD-66")

SECONDS = 60
ASKED: Mapping[str, dict[str, Any]] = {
    "prompts/list": {},
    "prompts/get": {"name": "x_p"},
    "resources/list": {},
    "resources/read": {"uri": "x:1"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "x_p"},
        "argument": {"name": "a", "value": ""},
    },
    "tools/call": {"name": "x_attack", "arguments": {}},
}
"""What a client of a gateway asks for."""


def entry_of(shape: str, **fields: Any) -> dict[str, Any]:
    arguments = ["-I", "-S", answer_program.__file__, shape]
    return {"command": sys.executable, "args": arguments, "trust": "trusted", **fields}


@pytest.mark.parametrize("shape", answer_program.SHAPES)
async def test_no_answer_holds_a_host_up(shape: str, tmp_path: Path) -> None:
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of(shape)) as host:
        with watch_loop(LIMIT_SECONDS):
            await host.connect("x")
            for _ in ("once", "and again"):
                await host.prompts.list()
                await host.resources.list()
            with suppress(FairleadError):
                (await host.prompts.get("x", "p")).messages  # noqa: B018 - it is read when asked for
            with suppress(FairleadError):
                (await host.resources.read("x", "x:1")).text  # noqa: B018 - as above
            with suppress(FairleadError):
                await host.prompts.complete("x", "p", "a", "")
            with suppress(FairleadError):
                (await host.call("x", "attack")).text  # noqa: B018 - as above


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("shape", answer_program.SHAPES)
async def test_no_answer_holds_a_gateway_up(shape: str, era: str, tmp_path: Path) -> None:
    config = {"policy": {"approval": "allow"}}
    async with (
        serving(tmp_path, config=config, seconds=SECONDS, x=entry_of(shape)) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, served.url + "/mcp")
        if era == "handshake":
            await client.begin()
        method = answer_program.SHAPES[shape][0]
        asked = ASKED.get(method)
        with watch_loop(LIMIT_SECONDS), anyio.fail_after(SECONDS):
            for each in ("tools/list", "prompts/list", "resources/list", *([method] if asked else [])):
                params = ASKED.get(each, {})
                if era == "modern":
                    answered = await client.modern_bytes(each, **params)
                else:
                    message = {"jsonrpc": "2.0", "id": 1, "method": each, "params": params}
                    headers = {**client.headers, "Mcp-Protocol-Version": HANDSHAKE}
                    async with http.post(client.url, json=message, headers=headers) as response:
                        answered = await response.read()
                assert b'"result":' in answered[:400] or b'"error":' in answered[:400], answered[:400]


async def test_an_answer_of_too_many_values_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("prompt messages")) as host:
        with pytest.raises(CallFailed, match="more than 20,000 values") as raised:
            await host.prompts.get("x", "p")
        assert raised.value.hint
        assert (await host.resources.read("x", "x:1")).text == "done"


async def test_an_answer_of_a_thousand_parts_arrives_whole(tmp_path: Path) -> None:
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("just enough prompt messages")) as host:
        assert len((await host.prompts.get("x", "p")).messages) == 1_500
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("just enough resource contents")) as host:
        assert len((await host.resources.read("x", "x:1")).parts) == 2_300
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("just enough completion values")) as host:
        assert (await host.prompts.complete("x", "p", "a", "")).values == ()


async def test_what_a_server_says_of_itself_is_cleaned_and_bounded(tmp_path: Path) -> None:
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("half hidden instructions")) as host:
        listing = await host.list_now("x")
        assert listing.instructions is not None
        assert set(listing.instructions) == {"a"}
        assert 60_000 < len(listing.instructions) <= 64 * 1024
        assert any("hidden in its instructions" in note for note in listing.notes)
        assert any("cut off" in note for note in listing.notes)
    async with open_host(tmp_path, seconds=SECONDS, x=entry_of("hidden names")) as host:
        server = (await host.describe("x")).name
        assert server is not None
        assert answer_program.HIDDEN not in server
        assert 0 < len(server.encode()) <= 2 * 1024 + 1
