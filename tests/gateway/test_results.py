"""Results of any shape and size arrive at clients of either protocol family, or become errors they accept."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from tests.fixtures import results_stdio
from tests.gateway.support import HANDSHAKE, MODERN, Raw, serving

LIMIT = 4 * 1024 * 1024
OBJECT = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
TEXT = '"content":[{"type":"text","text":"hello"}]'
VERSIONS = (HANDSHAKE, MODERN)

pytestmark = pytest.mark.requirement("HARD-87")


def tool(result: str, schema: Any = None) -> dict[str, Any]:
    return {"definition": {} if schema is None else {"outputSchema": schema}, "result": result}


def entry(folder: Path, version: str, tools: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    script = folder / f"script-{version}.json"
    script.write_text(json.dumps({"version": version, "tools": tools}), encoding="utf-8")
    return {
        "command": sys.executable,
        "args": ["-I", "-S", results_stdio.__file__, str(script)],
        "trust": "trusted",
        "approval": "allow",
        **fields,
    }


class Calls:
    """What clients of both families get for the tools of one server, and whether they would take it."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._clients = {HANDSHAKE: Raw(http, f"{url}/mcp", "older"), MODERN: Raw(http, f"{url}/mcp")}
        self._schemas: dict[str, dict[str, Any]] = {}
        self._has_begun = False

    async def call(self, version: str, name: str) -> dict[str, Any]:
        client = self._clients[version]
        if not self._has_begun:
            await self._clients[HANDSHAKE].begin()
            self._has_begun = True
        request = client.modern if version == MODERN else client.older
        if version not in self._schemas:
            listed = (await request("tools/list"))["result"]["tools"]
            self._schemas[version] = {each["name"]: each.get("outputSchema") for each in listed}
        public = next(known for known in self._schemas[version] if known.endswith(f"_{name}"))
        answer = await request("tools/call", 7, name=public, arguments={})
        assert "result" in answer, (version, name, answer)
        result = answer["result"]
        check(version, result, self._schemas[version][public])
        return result


def check(version: str, result: dict[str, Any], schema: Any) -> None:
    """Would the SDKs take the result? The strictest of them in every point."""
    assert all(block["type"] == "text" or "data" in block for block in result["content"])
    if version == MODERN:
        assert result["resultType"] == "complete"
    else:
        assert "resultType" not in result
        assert isinstance(result.get("structuredContent", {}), dict)
        if schema is not None and schema.get("type") != "object":
            schema = None  # it is not listed for this version
    if schema is None:
        return
    if "structuredContent" in result:
        jsonschema.validate(result["structuredContent"], schema)
    else:
        assert result["isError"] is True


def words(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


SHAPES = {
    "nested": tool(f'{{{TEXT},"structuredContent":{{"resultType":"task"}}}}'),
    "nested_deep": tool(f'{{"structuredContent":{{"a":[{{"resultType":1}}]}},{TEXT}}}'),
    "in_text": tool('{"content":[{"type":"text","text":"hello \\"resultType\\": \\"task\\""}]}'),
    "own": tool(f'{{"resultType":"complete",{TEXT}}}'),
    "forged": tool(f'{{{TEXT},"resultType":"input_required","inputRequests":{{}}}}'),
    "twice": tool(f'{{"resultType":"complete",{TEXT},"resultType":"input_required"}}'),
    "escaped": tool(f'{{{TEXT},"result\\u0054ype":"task","taskId":"1","status":"working"}}'),
    "spaced": tool(f' {{ "resultType" : "complete" , {TEXT} }} '),
    "pretty": tool(f"{{ {TEXT} }}"),
    "null_type": tool(f'{{{TEXT},"resultType":null}}'),
    "meta": tool(f'{{{TEXT},"_meta":{{"a":1}}}}'),
    "null_meta": tool(f'{{{TEXT},"_meta":null}}'),
    "no_error": tool(f'{{{TEXT},"isError":null}}'),
    "related": tool(f'{{{TEXT},"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"1"}}}}}}'),
    "claims": tool(f'{{{TEXT},"_meta":{{"fairlead/delivery":"not_sent"}}}}'),
}


@pytest.mark.parametrize("upstream", VERSIONS)
async def test_fields_inside_of_a_result_are_never_taken_for_its_own(tmp_path: Path, upstream: str) -> None:
    # Of a modern server these are questions, and not results.
    questions = () if upstream == HANDSHAKE else ("forged", "twice", "escaped")
    tools = {name: shape for name, shape in SHAPES.items() if name not in questions}
    async with (
        serving(tmp_path, results=entry(tmp_path, upstream, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for name in tools:
            for version in VERSIONS:
                result = await calls.call(version, name)
                assert "hello" in words(result), (version, name)
                assert not result.get("isError"), (version, name)
                said = json.loads(_unescaped(tools[name]["result"])).get("structuredContent")
                assert result.get("structuredContent") == said
                meta: dict[str, Any] = result.get("_meta") or {}
                assert meta.get("a") == (1 if name == "meta" else None)
                assert not any("task" in key or "delivery" in key for key in meta)


def _unescaped(result: str) -> str:
    return result.strip()


VALUES = ["[1,2]", '"words"', "7", "1.5", "true", "false", "null", "[]", '""', "0", "{}", '[{"a":null}]']


@pytest.mark.parametrize("listed", [False, True], ids=["without-schema", "with-schema"])
@pytest.mark.parametrize("upstream", VERSIONS)
async def test_structured_content_of_any_type_arrives(tmp_path: Path, upstream: str, listed: bool) -> None:
    schemas = [{"type": ["array", "string", "number", "boolean", "null", "object"]} if listed else None]
    tools = {
        f"v{number}": tool(f'{{{TEXT},"structuredContent":{value}}}', schemas[0])
        for number, value in enumerate(VALUES)
    }
    async with (
        serving(tmp_path, results=entry(tmp_path, upstream, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for number, value in enumerate(VALUES):
            modern = await calls.call(MODERN, f"v{number}")
            assert not modern.get("isError"), modern
            assert modern["structuredContent"] == json.loads(value)
            older = await calls.call(HANDSHAKE, f"v{number}")
            assert not older.get("isError"), older
            if isinstance(json.loads(value), dict):
                assert older["structuredContent"] == {}
            else:
                texts = [block["text"] for block in older["content"]]
                assert "structuredContent" not in older
                assert texts == ["hello", value]  # nothing is lost


BROKEN = {
    "missing": tool(f"{{{TEXT}}}", OBJECT),
    "invalid": tool(f'{{{TEXT},"structuredContent":{{"result":5}}}}', OBJECT),
    "array": tool(f'{{{TEXT},"structuredContent":[1]}}', OBJECT),
    "null": tool(f'{{{TEXT},"structuredContent":null}}', OBJECT),
    "error_with_other": tool(f'{{{TEXT},"structuredContent":{{"why":"x"}},"isError":true}}', OBJECT),
    "escaped_key": tool(f'{{{TEXT},"structured\\u0043ontent":{{"result":5}}}}', OBJECT),
    "twice": tool(
        f'{{"structuredContent":{{"result":"a"}},{TEXT},"structuredContent":{{"result":5}}}}', OBJECT
    ),
    **{
        f"invalid_with_{name}": tool(f'{{{TEXT},"structuredContent":{{"result":5}}}}', {**OBJECT, **more})
        for name, more in {
            "draft": {"$schema": "http://json-schema.org/draft-07/schema#"},
            "comment": {"$comment": "c"},
            "extension": {"x-wrapped": True},
            "discriminator": {"discriminator": {"propertyName": "result"}},
        }.items()
    },
    "missing_without_type": tool(f"{{{TEXT}}}", {"properties": OBJECT["properties"]}),
    "invalid_without_type": tool(
        f'{{{TEXT},"structuredContent":{{"result":5}}}}', {"properties": OBJECT["properties"]}
    ),
    "required_with_default": tool(
        f'{{{TEXT},"structuredContent":{{}}}}',
        {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]},
    ),
    "next_to_reference": tool(
        f'{{{TEXT},"structuredContent":{{"a":"x"}}}}',
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/text", "minLength": 3}},
            "$defs": {"text": {"type": "string"}},
        },
    ),
}


@pytest.mark.parametrize("upstream", VERSIONS)
async def test_a_result_that_breaks_its_promise_arrives_as_an_error_with_all_it_says(
    tmp_path: Path, upstream: str
) -> None:
    async with (
        serving(tmp_path, results=entry(tmp_path, upstream, BROKEN)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for name in BROKEN:
            for version in VERSIONS:
                result = await calls.call(version, name)
                assert result["isError"] is True
                assert "hello" in words(result)
                if name.startswith("invalid"):
                    assert '{"result":5}' in words(result)
                if name == "error_with_other":
                    assert '{"why":"x"}' in words(result)


MALFORMED = {
    "list": "[1,2]",
    "string": '"words"',
    "empty": "{}",
    "null_content": '{"content":null}',
    "words": '{"content":"hello"}',
    "one_block": '{"content":{"type":"text","text":"hello"}}',
    "strings": '{"content":["hello"]}',
    "no_text": '{"content":[{"type":"text"},{"type":"text","text":"hello"}]}',
    "odd_text": '{"content":[{"type":"text","text":7}]}',
    "unknown": '{"content":[{"type":"video","data":"AA=="},{"type":"text","text":"hello"}]}',
    "no_type": '{"content":[{"text":"hello"}]}',
    "no_mime": '{"content":[{"type":"image","data":"AA=="}]}',
    "no_uri": '{"content":[{"type":"resource_link","name":"a"}]}',
    "odd_error": f'{{{TEXT},"isError":"yes"}}',
    "odd_meta": f'{{{TEXT},"_meta":[1]}}',
}


@pytest.mark.parametrize("upstream", VERSIONS)
async def test_answers_that_are_no_tool_results_are_made_into_some(tmp_path: Path, upstream: str) -> None:
    tools = {name: tool(result) for name, result in MALFORMED.items()}
    async with (
        serving(tmp_path, results=entry(tmp_path, upstream, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for name, result in MALFORMED.items():
            for version in VERSIONS:
                got = await calls.call(version, name)
                assert ("hello" in words(got)) == ("hello" in result), (name, got)


SIZES = {
    "small": '{{"content":[{{"type":"text","text":"t"}}],"structuredContent":{{"result":"{{text:{}}}"}}}}',
    "both": '{{"content":[{{"type":"text","text":"{{words:{}}}"}}],'
    '"structuredContent":{{"result":"{{text:{}}}"}}}}',
}


@pytest.mark.parametrize("upstream", VERSIONS)
@pytest.mark.parametrize("size", [60_000, 100_001, 1_000_000, LIMIT - 20, LIMIT + 1, 7 * 1024 * 1024])
async def test_structured_content_is_whole_up_to_its_limit_and_an_error_with_a_handle_above(
    tmp_path: Path, upstream: str, size: int
) -> None:
    tools = {
        "text_small": tool(SIZES["small"].format(size), OBJECT),
        "text_large": tool(SIZES["both"].format(60_000, size), OBJECT),
    }
    async with (
        serving(tmp_path, results=entry(tmp_path, upstream, tools)) as served,
        aiohttp.ClientSession(read_bufsize=2**24) as http,
    ):
        calls = Calls(http, served.url)
        for name in tools:
            for version in VERSIONS:
                result = await calls.call(version, name)
                if size < LIMIT:
                    assert not result.get("isError")
                    assert len(result["structuredContent"]["result"]) == size
                else:
                    assert "artifact://" in words(result)
                    assert len(words(result)) > 1  # a preview
                assert len(words(result)) < 110_000


@pytest.mark.parametrize("dense", ["[" + "0," * 60_000 + "0]", "[" + "{}," * 60_000 + "{}]"], ids=["n", "o"])
async def test_structured_content_with_very_many_values_is_delivered_whole(
    tmp_path: Path, dense: str
) -> None:
    tools = {"dense": tool(f'{{{TEXT},"structuredContent":{{"all":{dense}}}}}', {"type": "object"})}
    async with (
        serving(tmp_path, results=entry(tmp_path, HANDSHAKE, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for version in VERSIONS:
            result = await calls.call(version, "dense")
            assert len(result["structuredContent"]["all"]) == 60_001
            assert words(result) == "hello"


async def test_a_message_over_the_limit_of_a_connection_is_an_error_that_clients_accept(
    tmp_path: Path,
) -> None:
    tools = {"huge": tool(SIZES["both"].format(2_000_000, 17 * 1024 * 1024), OBJECT)}
    async with (
        serving(tmp_path, results=entry(tmp_path, HANDSHAKE, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        for version in VERSIONS:
            result = await Calls(http, served.url).call(version, "huge")
            assert result["isError"] is True
            assert result["_meta"]["fairlead/delivery"] == "done"


async def test_the_limit_is_the_configurations(tmp_path: Path) -> None:
    large = SIZES["small"].format(200_000)
    tools = {"any": tool(large, OBJECT), "free": tool(large)}
    config = {"gateway": {"max_structured_bytes": 150_000}}
    async with (
        serving(tmp_path, config=config, results=entry(tmp_path, HANDSHAKE, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        calls = Calls(http, served.url)
        for version in VERSIONS:
            assert (await calls.call(version, "any"))["isError"] is True
            # Where no schema is listed, no client misses what is left out.
            free = await calls.call(version, "free")
            assert not free.get("isError")
            assert "artifact://" in words(free)


async def test_hidden_text_in_large_structured_content_is_taken_out(tmp_path: Path) -> None:
    hidden = "\U000e0049\U000e0067"
    structured = json.dumps({"result": f"{hidden}clean", "pad": "x" * 120_000, f"k{hidden}": 1})
    tools = {"any": tool(f'{{{TEXT},"structuredContent":{structured}}}', {"type": "object"})}
    async with (
        serving(tmp_path, results=entry(tmp_path, HANDSHAKE, tools)) as served,
        aiohttp.ClientSession() as http,
    ):
        result = await Calls(http, served.url).call(MODERN, "any")
        assert result["structuredContent"]["result"] == "clean"
        assert hidden not in json.dumps(result, ensure_ascii=False)
        assert "k" in result["structuredContent"]
