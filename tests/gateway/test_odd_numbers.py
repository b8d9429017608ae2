"""A number that no float holds, or that is no JSON, costs no more of a result than itself."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import Machine
from tests.gateway.support import HANDSHAKE, MODERN, Raw, serving
from tests.gateway.test_results import TEXT, entry, tool
from tests.host.support import hosting

pytestmark = pytest.mark.requirement("HARD-87")

NUMBER = {"type": "object", "properties": {"a": {"type": "number"}}}
TOOLS = {
    "structured": tool(f'{{{TEXT},"structuredContent":{{"a":1e999}}}}'),
    "negative": tool(f'{{{TEXT},"structuredContent":{{"a":[-1e400]}}}}'),
    "promised": tool(f'{{{TEXT},"structuredContent":{{"a":1e999}}}}', NUMBER),
    "meta": tool(f'{{{TEXT},"_meta":{{"k":1e999,"other":1}}}}'),
    "both": tool(f'{{{TEXT},"_meta":{{"k":1e999}},"structuredContent":{{"a":1e999}}}}'),
    "extra": tool(f'{{{TEXT},"extra":{{"k":1e999}}}}'),
    "block": tool('{"content":[{"type":"text","text":"hello","_meta":{"k":1e999}}]}'),
    "priority": tool('{"content":[{"type":"text","text":"hello","annotations":{"priority":1e999}}]}'),
    "error": tool(f'{{{TEXT},"isError":true,"structuredContent":{{"a":1e999}}}}'),
    "nested": tool(f'{{{TEXT},"structuredContent":{{"a":{{"b":[1,2,{{"c":1E+400}}]}}}}}}'),
    "hidden": tool('{"content":[{"type":"text","text":"hello\\u200b"}],"structuredContent":{"a":1e999}}'),
    "nan": tool(f'{{{TEXT},"structuredContent":{{"a":NaN,"b":Infinity,"c":-Infinity,"d":"NaN"}}}}'),
    "nan_meta": tool(f'{{{TEXT},"_meta":{{"k":NaN}}}}'),
    "nan_block": tool(
        '{"content":[{"type":"text","text":"hello \\"NaN\\"","annotations":{"priority":NaN}}]}'
    ),
    "nan_array": tool(f'{{"structuredContent":{{"a":[NaN,1,-Infinity]}},{TEXT}}}'),
}
PAD = '"pad":"{text:400000}"'
LARGE = {
    "nan_large": tool(f'{{{TEXT},"structuredContent":{{"a":NaN,"b":-Infinity,"c":"NaN",{PAD}}}}}'),
    "nan_first": tool(f'{{"structuredContent":{{{PAD},"a":[NaN,1,Infinity]}},{TEXT}}}'),
    "nan_last": tool(f'{{{TEXT},"structuredContent":{{{PAD}}},"_meta":{{"k":NaN}}}}'),
    "nan_text": tool('{"content":[{"type":"text","text":"hello {text:300000}","_meta":{"k":Infinity}}]}'),
    "nan_blocks": tool(
        '{"content":[{"type":"text","text":"hello"},{"type":"text","text":"{text:70000}","_meta":{"k":NaN}}]}'
    ),
    "nan_escaped": tool(f'{{{TEXT},"structuredContent":{{"a\\\\":"\\"NaN","b":NaN,{PAD}}}}}'),
    "nan_many": tool(f'{{{TEXT},"structuredContent":{{"a":[{"NaN," * 60_000}1]}}}}'),
    "nan_huge": tool(f'{{{TEXT},"structuredContent":{{"a":NaN,"pad":"{{text:3000000}}"}}}}'),
    "nan_beyond": tool(f'{{{TEXT},"structuredContent":{{"a":NaN,"pad":"{{text:7000000}}"}}}}'),
    "word_large": tool(f'{{{TEXT},"structuredContent":{{"a":"NaN, Infinity",{PAD}}}}}'),
}
ELICITATION: dict[str, Any] = {"elicitation": {}}


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_number_beyond_floats_costs_no_text_on_any_way_to_a_client(
    tmp_path: Path, version: str, trust: str
) -> None:
    async with (
        serving(tmp_path, a=entry(tmp_path, version, TOOLS, trust=trust, allow_tools=["*"])) as served,
        aiohttp.ClientSession() as http,
    ):
        plain, asking, modern = (Raw(http, f"{served.url}/mcp", name) for name in ("ann", "ben", "cem"))
        await plain.begin()
        await asking.begin(capabilities=ELICITATION)
        meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        for name in TOOLS:
            public: dict[str, Any] = {"name": f"a_{name}", "arguments": {}}
            for way, answer in (
                ("plain", await plain.older("tools/call", 7, **public)),
                ("asking", await asking.older("tools/call", 7, **public)),
                ("modern", await modern.modern("tools/call", 7, **public)),
                ("modern asking", await modern.modern("tools/call", 7, meta=meta, **public)),
            ):
                assert "result" in answer, (name, way, answer)
                assert "hello" in text_of(answer["result"]), (name, way, answer)
                if name.startswith("nan"):
                    assert "null stands in" in text_of(answer["result"]), (name, way, answer)


async def test_a_number_beyond_floats_costs_no_text_in_the_library(machine: Machine, tmp_path: Path) -> None:
    async with hosting(machine, a=entry(tmp_path, HANDSHAKE, TOOLS)) as host:
        for name in TOOLS:
            result = await host.call("a", name, {})
            assert "hello" in result.text, name
        assert (await host.call("a", "nan", {})).structured == {"a": None, "b": None, "c": None, "d": "NaN"}
        assert (await host.call("a", "structured", {})).structured == {"a": float("inf")}
        assert "null stands in" in (await host.call("a", "nan", {})).text


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_large_results_are_json_for_strict_clients(tmp_path: Path, version: str, trust: str) -> None:
    fields: dict[str, Any] = {"trust": trust, "allow_tools": ["*"], "max_result_bytes": 20_000_000}
    async with (
        serving(tmp_path, a=entry(tmp_path, version, LARGE, **fields)) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        for name in LARGE:
            request: dict[str, Any] = {
                "method": "tools/call",
                "params": {"name": f"a_{name}", "arguments": {}},
            }
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, **request}
            async with http.post(client.url, json=message, headers=client.headers) as response:
                text = await response.text()
            data = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
            result = strictly(data[-1] if data else text)["result"]
            assert "hello" in text_of(result), name
            has_note = "null stands in" in text_of(result)
            assert has_note == name.startswith("nan"), name


async def test_large_results_are_json_in_the_library(machine: Machine, tmp_path: Path) -> None:
    async with hosting(machine, a=entry(tmp_path, HANDSHAKE, LARGE)) as host:
        for name in LARGE:
            for whole in (True, False):
                result = await host.call("a", name, {}, full_result=whole)
                strictly(result.raw.decode())
        large = (await host.call("a", "nan_large", {}, full_result=True)).structured
        assert (large["a"], large["b"], large["c"]) == (None, None, "NaN")
        escaped = (await host.call("a", "nan_escaped", {}, full_result=True)).structured
        assert (escaped["a\\"], escaped["b"]) == ('"NaN', None)


@pytest.mark.parametrize("size", [10, 400_000])
async def test_one_number_in_a_schema_costs_no_list(machine: Machine, tmp_path: Path, size: int) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number", "default": float("nan")}}}
    tools = {
        "odd": {"definition": {"inputSchema": schema, "description": "x" * size}, "result": f"{{{TEXT}}}"},
        "plain": tool(f"{{{TEXT}}}"),
    }
    async with hosting(machine, a=entry(tmp_path, HANDSHAKE, tools)) as host:
        assert {tool.key.tool for tool in await host.tools_of("a")} == {"odd", "plain"}
        assert "hello" in (await host.call("a", "plain", {})).text
