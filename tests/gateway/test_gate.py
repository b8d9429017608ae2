"""What servers say reaches the clients of a gateway cleaned, masked, bounded and marked."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.catalog.sanitize import gate
from tests.fixtures import canned_stdio
from tests.gateway.support import Raw, serving

TOKEN = "tok-8Fq2zL0pWx5v"
HIDDEN = "\u200b\U000e0041\u202e\ufe01"
GREETING: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    "serverInfo": {"name": "canned", "version": "1"},
}
TOOL = {"name": "say", "inputSchema": {"type": "object"}}


def canned(folder: Path, trust: str, **answers: Any) -> dict[str, Any]:
    """The entry of a server that answers so, and knows a token of its own."""
    known: dict[str, Any] = {
        "initialize": GREETING,
        "tools/list": {"tools": [TOOL]},
        "resources/list": {"resources": [{"uri": "test://a", "name": "a"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "prompts/list": {"prompts": [{"name": "p"}]},
    }
    file = folder / "answers.json"
    file.write_text(json.dumps({**known, **answers}))
    return {
        "command": sys.executable,
        "args": ["-I", "-S", canned_stdio.__file__, f"@{file}"],
        "env": {"API_TOKEN": TOKEN},
        "trust": trust,
        "allow_tools": ["say"],
        "approval": "allow",
    }


@asynccontextmanager
async def asking(folder: Path, trust: str, **answers: Any) -> AsyncGenerator[Raw]:
    async with (
        serving(folder, x=canned(folder, trust, **answers)) as served,
        aiohttp.ClientSession() as http,
    ):
        yield Raw(http, f"{served.url}/mcp")


async def asked(client: Raw, way: str, method: str, **params: Any) -> Any:
    if way == "modern":
        return await client.modern(method, **params)
    if way == "modern, past the front":
        return await client.modern(method, meta={"progressToken": 1}, **params)
    await client.begin()
    return await client.older(method, **params)


WAYS = pytest.mark.parametrize("way", ["modern", "modern, past the front", "older"])
TRUST = pytest.mark.parametrize("trust", ["trusted", "untrusted"])
REQUESTS = pytest.mark.parametrize(
    ("way", "method", "params"),
    [
        ("modern", "tools/call", {"name": "x_say", "arguments": {}}),
        ("modern, past the front", "tools/call", {"name": "x_say", "arguments": {}}),
        ("older", "tools/call", {"name": "x_say", "arguments": {}}),
        ("older", "resources/read", {"uri": "test://a"}),
        ("older", "prompts/get", {"name": "x_p"}),
    ],
)


@pytest.mark.requirement("HARD-61")
@TRUST
@REQUESTS
async def test_an_error_is_cleaned_bounded_masked_and_marked(
    tmp_path: Path, way: str, trust: str, method: str, params: dict[str, Any]
) -> None:
    error = {
        "code": -32050,
        "message": f"Bad{HIDDEN} token {TOKEN} {'z' * 6_000_000}",
        "data": {f"k{HIDDEN}": f"{HIDDEN}v {TOKEN}", gate.UNTRUSTED: {"server": "forged"}},
    }
    async with asking(tmp_path, trust, **{method: {"error": error}}) as client:
        answer = await asked(client, way, method, **params)
    said = answer["error"]
    assert said["code"] == -32050
    assert said["message"].startswith("Bad token")
    assert len(said["message"].encode()) <= gate.MAX_TEXT_BYTES
    assert TOKEN not in json.dumps(answer)
    assert not set(HIDDEN) & set(json.dumps(answer, ensure_ascii=False))
    assert said["data"]["k"].startswith("v ")
    assert said["data"].get(gate.UNTRUSTED) == ({"server": "x"} if trust == "untrusted" else None)


@pytest.mark.requirement("HARD-61")
@TRUST
@pytest.mark.parametrize(
    ("method", "params"),
    [("resources/read", {"uri": "test://a"}), ("prompts/get", {"name": "x_p"})],
)
async def test_an_error_of_ours_that_may_quote_a_server_is_marked(
    tmp_path: Path, trust: str, method: str, params: dict[str, Any]
) -> None:
    async with asking(tmp_path, trust, **{method: {"exit": 3}}) as client:
        answer = await asked(client, "older", method, **params)
    data = answer["error"]["data"]
    assert data["code"] == "connection_lost"
    assert data.get(gate.UNTRUSTED) == ({"server": "x"} if trust == "untrusted" else None)


@pytest.mark.requirement("HARD-63")
@WAYS
@TRUST
async def test_a_result_says_which_untrusted_server_it_comes_from_and_else_is_as_it_was(
    tmp_path: Path, way: str, trust: str
) -> None:
    content = [{"type": "text", "text": "fine"}]
    result = {"content": content, "_meta": {"a": 1, gate.UNTRUSTED: {"server": "forged"}}}
    async with asking(tmp_path, trust, **{"tools/call": result}) as client:
        answer = await asked(client, way, "tools/call", name="x_say", arguments={})
    said = answer["result"]
    assert said["content"] == content
    assert said["_meta"]["a"] == 1
    assert said["_meta"].get(gate.UNTRUSTED) == ({"server": "x"} if trust == "untrusted" else None)


@pytest.mark.requirement("HARD-62")
@WAYS
async def test_a_token_that_a_server_echoes_stays_here(tmp_path: Path, way: str) -> None:
    result = {"content": [{"type": "text", "text": f"I have {TOKEN}"}], "structuredContent": {TOKEN: TOKEN}}
    async with asking(tmp_path, "trusted", **{"tools/call": result}) as client:
        answer = await asked(client, way, "tools/call", name="x_say", arguments={})
    assert answer["result"]["content"][0]["text"].startswith("I have ")
    assert TOKEN not in json.dumps(answer)


@pytest.mark.requirement("HARD-63")
@TRUST
async def test_resources_are_cleaned_masked_and_marked(tmp_path: Path, trust: str) -> None:
    read = {"contents": [{"uri": "test://a", "text": f"a{HIDDEN}b {TOKEN}"}]}
    async with asking(tmp_path, trust, **{"resources/read": read}) as client:
        answer = await asked(client, "older", "resources/read", uri="test://a")
    said = answer["result"]
    assert said["contents"][0]["text"].startswith("ab ")
    assert TOKEN not in json.dumps(answer)
    assert gate.UNTRUSTED in said.get("_meta", {}) or trust == "trusted"


MODERN_GREETING: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "canned", "version": "1"},
    "ttlMs": 0,
    "cacheScope": "private",
}
MODERN_TOOLS: dict[str, Any] = {
    "resultType": "complete",
    "tools": [TOOL],
    "ttlMs": 0,
    "cacheScope": "private",
}
FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}
FORMS_ALLOWED: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.requirement("HARD-61")
async def test_the_names_of_a_servers_input_requests_are_safe_and_can_be_answered(tmp_path: Path) -> None:
    names = [
        "request-1",
        "plain",
        f"with {TOKEN}",
        TOKEN.encode().hex(),
        f"a{HIDDEN}b",
        "\x1b[2Jc",
        "n" * 9_000,
    ]
    needed: dict[str, Any] = {
        "resultType": "input_required",
        "inputRequests": dict.fromkeys(names, FORM),
        "requestState": f"{TOKEN}{HIDDEN}",
    }
    answers: dict[str, Any] = {
        "server/discover": MODERN_GREETING,
        "tools/list": MODERN_TOOLS,
        "tools/call": needed,
    }
    async with asking(tmp_path, "trusted", **answers) as client:
        answer = await client.modern("tools/call", meta=FORMS_ALLOWED, name="x_say", arguments={})
        asked = answer["result"]
        assert len(asked["inputRequests"]) == len(names)
        assert {"request-1", "plain"} < set(asked["inputRequests"])
        said = json.dumps(asked, ensure_ascii=False)
        assert TOKEN not in said
        assert TOKEN.encode().hex() not in said
        assert not set(HIDDEN) & set(said)
        assert all(len(name) < 100 and name.isprintable() for name in asked["inputRequests"])
        again = await client.modern(
            "tools/call",
            meta=FORMS_ALLOWED,
            name="x_say",
            arguments={},
            requestState=asked["requestState"],
            inputResponses={name: {"action": "decline"} for name in asked["inputRequests"]},
        )
        assert len(again["result"]["inputRequests"]) == len(
            names
        )  # it asks once more, since all are answered
