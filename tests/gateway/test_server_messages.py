"""What servers send on their own in malformed or newer forms: clients get it in a form that they know."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client

from fairlead.catalog.sanitize import gate
from fairlead.gateway.lists import OfferLists
from tests.gateway.support import HANDSHAKE, Raw, serving, text_of, until
from tests.host.asking import AskingServer

pytestmark = pytest.mark.requirement("HARD-87")

TOOLS = ["ask", "echo", "say"]
TEXT = {"type": "text", "text": "hi"}


def asking(tmp_path: Path, **script: Any) -> AskingServer:
    return AskingServer(tmp_path / "record", version=HANDSHAKE, tools=TOOLS, **script)


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"method": f"notifications/{method}", "params": params}


async def test_malformed_logs_and_progress_reach_the_client_and_cost_nothing_else(tmp_path: Path) -> None:
    logged: list[tuple[str, object]] = []
    reported: list[tuple[float, float | None]] = []
    messages = [
        notification("message", level="warn", data="one"),
        notification("message", level="error", message="two"),
        notification("message", level=None),
        notification("progress", progressToken="$token", progress="1", total="4"),
        notification("progress", progressToken="$token", progress="much"),
        notification("progress", progressToken="$token", progress=2, total=True, message=5),
        notification("resources/updated", uri=None),
        notification("resources/updated"),
        notification("tools/list_changed", _meta=None),
        {"method": "notifications/message", "params": None},
        {"method": "notifications/message"},
        {"method": "notifications/unheard/of", "params": {"a": 1}},
    ]

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total))

    async with (
        serving(tmp_path, a=asking(tmp_path).entry()) as served,
        Client(f"{served.url}/mcp", mode="legacy", logging_callback=on_log) as client,
    ):
        await client.list_tools()
        said = await client.call_tool("a_say", {"messages": messages}, progress_callback=on_progress)
        assert said.content[0].model_dump()["text"] == "said"
        await until(lambda: ("error", "two") in logged and (2.0, None) in reported)
        assert ("warning", "one") in logged
        assert not (await client.call_tool("a_echo", {})).is_error


@asynccontextmanager
async def asked_in_session(client: Raw, name: str, arguments: Any) -> AsyncGenerator[Any]:
    """Call a tool, and the request that comes on the stream before the result, as the client gets it."""
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    async with client.http.post(client.url, json=message, headers=client.headers) as response:
        yield _events(response)


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any]]:
    async for line in response.content:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


@pytest.mark.parametrize(("version", "count"), [("2025-03-26", 2), ("2025-06-18", 2), ("2025-11-25", 1)])
async def test_sampling_with_several_blocks_comes_as_the_clients_version_has_it(
    tmp_path: Path, version: str, count: int
) -> None:
    sample = {"method": "sampling/createMessage", "params": {"messages": [{"content": [TEXT, "more"]}]}}
    entry = asking(tmp_path).entry(sampling={"max_tokens": 10_000})
    answer = {"role": "assistant", "content": {"type": "text", "text": "Kiel"}, "model": "m"}
    async with serving(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"sampling": {}}, version=version)
        arguments = {"questions": {"q": sample}}
        async with asked_in_session(client, "a_ask", arguments) as events:
            asked = await anext(events)
            assert asked["method"] == "sampling/createMessage", asked
            messages = asked["params"]["messages"]
            assert len(messages) == count
            assert all(isinstance(each["content"], dict) for each in messages) == (count == 2)
            assert "more" in json.dumps(messages)
            await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
            assert "Kiel" in text_of(await anext(events))


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_titled_choices_come_as_the_clients_version_has_them(tmp_path: Path, version: str) -> None:
    choices = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    schema = {"properties": {"x": {"type": "string", "oneOf": choices}}}
    form = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}}
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"elicitation": {}}, version=version)
        async with asked_in_session(client, "a_ask", {"questions": {"q": form}}) as events:
            asked = await anext(events)
            [field] = asked["params"]["requestedSchema"]["properties"].values()
            if version == "2025-06-18":
                assert (field["enum"], field["enumNames"]) == (["a", "b"], ["A", "B"])
                assert "oneOf" not in field
            else:
                assert field["oneOf"] == choices
            accepted = {"action": "accept", "content": {"x": "b"}}
            await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": accepted})
            assert '"b"' in text_of(await anext(events))


@pytest.mark.requirement("HARD-85")
async def test_a_default_that_does_not_fit_its_field_costs_no_form(tmp_path: Path) -> None:
    several: dict[str, Any] = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    fields: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "flag": ({"type": "boolean"}, "perhaps", None),
        "word": ({"type": "boolean"}, "yes", True),
        "text": ({"type": "string"}, 5, None),
        "count": ({"type": "integer"}, 1.5, None),
        "one": (several, "a", ["a"]),
        "none": (several, ["z"], None),
        "sound": ({"type": "string"}, "x", "x"),
        "hidden": ({"type": "string"}, "x\u200b", None),
    }
    properties = {name: {**field, "default": default} for name, (field, default, _) in fields.items()}
    schema = {"type": "object", "properties": properties}
    form = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}}
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"elicitation": {}})
        async with asked_in_session(client, "a_ask", {"questions": {"q": form}}) as events:
            asked = await anext(events)
            shown = asked["params"]["requestedSchema"]["properties"]
            assert {name: field.get("default") for name, field in shown.items()} == {
                name: default for name, (_, _, default) in fields.items()
            }
            await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
            assert "decline" in text_of(await anext(events))


async def test_a_choice_of_several_that_an_older_client_cannot_show_is_refused(tmp_path: Path) -> None:
    items = {"type": "string", "enum": ["a", "b"]}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": items}}}
    form = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}}
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"elicitation": {}}, version="2025-06-18")
        answer = await client.older("tools/call", name="a_ask", arguments={"questions": {"q": form}})
        assert "code" in text_of(answer)


@pytest.mark.requirement("HARD-85")
async def test_a_resource_whose_uri_is_none_is_listed_and_read_under_one(tmp_path: Path) -> None:
    uris = ["notes.txt", "test://my file", "/var/data"]
    resources = [{"uri": uri, "name": uri} for uri in uris]
    entry = asking(tmp_path, resources=resources, templates=[]).entry()
    async with serving(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        listed = (await client.older("resources/list"))["result"]["resources"]
        assert {each["uri"] for each in listed} == {
            "fairlead://server/a/notes.txt",
            "fairlead://server/a/test://my%20file",
            "fairlead://server/a//var/data",
        }
        for each in listed:
            read = (await client.older("resources/read", uri=each["uri"]))["result"]["contents"]
            assert [(part["uri"], part["text"]) for part in read] == [(each["uri"], each["name"])]
    assert OfferLists({}, "gateway").owners.public_uri("a", "a b") == "fairlead://server/a/a%20b"


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("kind", ["form", "url", "sample"])
async def test_a_request_of_a_server_says_whether_it_is_an_untrusted_one(
    tmp_path: Path, kind: str, trust: str
) -> None:
    questions: dict[str, dict[str, Any]] = {
        "form": {
            "method": "elicitation/create",
            "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
        },
        "url": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Go", "url": "https://e.test/", "elicitationId": "1"},
        },
        "sample": {"method": "sampling/createMessage", "params": {"messages": [{"content": [TEXT]}]}},
    }
    question = questions[kind]
    forged = {"_meta": {gate.UNTRUSTED: {"server": "other"}}}
    asked_for = {**question, "params": {**question["params"], **forged}}
    entry = asking(tmp_path).entry(
        sampling={"max_tokens": 10_000}, elicitation=True, trust=trust, allow_tools=["ask"], approval="allow"
    )
    async with serving(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin({"sampling": {}, "elicitation": {"form": {}, "url": {}}})
        async with asked_in_session(client, "a_ask", {"questions": {"q": asked_for}}) as events:
            asked = await anext(events)
            assert asked["method"] == question["method"], asked
            marks = {gate.UNTRUSTED: {"server": "a"}} if trust == "untrusted" else {}
            assert asked["params"].get("_meta", {}) == marks
            no = {"code": -1, "message": "no"}
            answer = {"error": no} if kind == "sample" else {"result": {"action": "decline"}}
            await client.post({"jsonrpc": "2.0", "id": asked["id"], **answer})
            await anext(events)
