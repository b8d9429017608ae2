"""Whatever a server defines or says, nothing hidden in it reaches a model, an event or an error."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fairlead.catalog.sanitize.text import clean
from fairlead.errors import CallRejected, ConnectFailed, ListFailed
from fairlead.host.host import Host
from tests.catalog.sanitize.test_text import CASES, HIDDEN
from tests.conftest import Machine
from tests.fixtures import canned_stdio
from tests.host.offers.test_skills import server_with, skills_of
from tests.host.support import hosting

pytestmark = pytest.mark.requirement("HARD-41")

Answers = dict[str, Any]

GREETING: Answers = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
    "serverInfo": {"name": "canned", "version": "1"},
}
ZERO_WIDTH = "\u200b"
each_text = pytest.mark.parametrize("text", [pytest.param(case["text"], id=case["name"]) for case in CASES])


def tool(name: str, **rest: Any) -> Answers:
    return {"name": name, "inputSchema": {"type": "object"}, **rest}


def server(**answers: Any) -> Answers:
    """The entry of a server that answers so; `tools` and its kin are the lists."""
    kinds = {"tools": "tools", "resources": "resources", "templates": "resources/templates"}
    canned: Answers = {"initialize": GREETING, "tools/list": {"tools": []}, "prompts/list": {"prompts": []}}
    canned |= {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
    for kind, answer in answers.items():
        field = "resourceTemplates" if kind == "templates" else kind
        method = f"{kinds.get(kind, kind)}/list"
        canned |= {method: {field: answer}} if isinstance(answer, list) else {kind: answer}
    arguments = ["-I", "-S", canned_stdio.__file__, json.dumps(canned)]
    return {"command": sys.executable, "args": arguments, "trust": "trusted"}


def hiding(text: str) -> Answers:
    """The entry of a server that puts a text wherever there is room for words."""
    argument = {
        "type": "string",
        "title": text,
        "description": f"A number. {text}",
        "enum": ["plain", text],
        "default": text,
        "examples": [text],
    }
    schema = {"type": "object", "title": text, "description": text, "properties": {"a": argument}}
    words = {"title": text, "description": f"Adds numbers. {text}"}
    return server(
        **{
            "initialize": GREETING | {"serverInfo": {"name": text, "version": text}, "instructions": text},
            "tools": [
                tool(
                    "add" + text, **words, inputSchema=schema, annotations={"title": text}, _meta={"m": text}
                )
            ],
            "resources": [{"uri": "test://a", "name": text, "mimeType": text, **words}],
            "templates": [{"uriTemplate": "test://{b}", "name": text, **words}],
            "prompts": [{"name": "greet", **words, "arguments": [{"name": "who", "description": text}]}],
            "tools/call": {"error": {"code": -32000, "message": f"It failed. {text}"}},
            "completion/complete": {"completion": {"values": ["plain", text]}},
        }
    )


def characters(value: Any) -> set[str]:
    """Every character in the texts of a value, names included."""
    return {character for text in strings(value) for character in text}


def strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from strings(name)
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from strings(item)


async def what_models_get(host: Host) -> list[Any]:
    tools = host.tools
    provided = [await tools.for_openai(), await tools.for_openai(strict=True), await tools.for_anthropic()]
    provided.append(await tools.for_gemini())
    frameworks = [[each.name, each.description, each.args_schema] for each in await tools.for_langchain()]
    (listed,) = json.loads((await tools.call("mcp_list_tools")).raw)["structuredContent"]["tools"]
    asked = [
        await tools.call("mcp_search_tools", {"queries": ["add numbers"]}),
        await tools.call("mcp_list_tools"),
        await tools.call("mcp_get_tool_schema", {"names": [listed]}),
        await tools.call("mcp_call_tool", {"name": listed, "arguments": {"a": "plain"}}),
        await tools.call("mcp_resources_list"),
        await tools.call("mcp_resource_templates_list"),
    ]
    return [[each.definitions for each in provided], frameworks, [json.loads(each.raw) for each in asked]]


@each_text
async def test_what_a_server_hides_reaches_no_model(machine: Machine, text: str) -> None:
    async with hosting(machine, x=hiding(text)) as host:
        given = await what_models_get(host)
        assert not characters(given) & HIDDEN
        said = json.dumps(given)
        assert "Adds numbers." in said
        assert "It failed." in said  # so the call reached the server by the name that was shown
        assert '"plain"' in said


@each_text
async def test_what_a_server_hides_reaches_no_person(machine: Machine, text: str) -> None:
    async with hosting(machine, x=hiding(text)) as host:
        info = await host.describe("x")
        offers = [
            *(await host.resources.list()).items,
            *(await host.resources.templates()).items,
            *(await host.prompts.list()).items,
        ]
        assert len(offers) == 3
        suggested = await host.prompts.complete("x", "greet", "who")
        with pytest.raises(CallRejected, match="It failed") as failure:
            await host.call("x", "add" + text, {"a": "plain"})
        listing = host.listing("x")
        assert listing is not None
        assert listing.instructions == clean(text)
        shown = [info.name, info.instructions, [*map(words_of, offers)], suggested.values, str(failure.value)]
        assert not characters([*shown, listing.notes]) & HIDDEN
        assert bool(listing.notes) == (clean(text) != text)
        assert "plain" in suggested.values


def words_of(offer: Any) -> list[Any]:
    return [getattr(offer, name) for name in offer.__struct_fields__ if name not in ("size", "arguments")] + [
        [argument.name, argument.description or ""] for argument in getattr(offer, "arguments", ())
    ]


async def test_a_tool_goes_to_its_server_under_its_own_name(machine: Machine) -> None:
    async with hosting(machine, x=server(tools=[tool("a" + ZERO_WIDTH), tool("b")])) as host:
        names = [known.key.tool for known in await host.tools.list()]
        assert names == ["a" + ZERO_WIDTH, "b"]
        hidden = host.tools.catalog.tools[0]
        listed = json.loads((await host.tools.call("mcp_list_tools")).raw)["structuredContent"]["tools"]
        assert listed == ["x.a", "x.b"]
        assert host.tools.catalog.find_tool("x.a") is hidden
        assert host.tools.catalog.find_tool("x.a" + ZERO_WIDTH) is hidden


async def test_of_two_tools_that_look_the_same_each_is_shown_by_a_name_of_its_own(machine: Machine) -> None:
    twins = [tool("read" + ZERO_WIDTH + "File"), tool("readFile")]
    async with hosting(machine, x=server(tools=twins)) as host:
        listed = json.loads((await host.tools.call("mcp_list_tools")).raw)["structuredContent"]["tools"]
        catalog = host.tools.catalog
        assert sorted(listed)[1] == "x.readFile"
        assert {found.key.tool for name in listed if (found := catalog.find_tool(name))} == {
            twin["name"] for twin in twins
        }
        plain = catalog.find_tool("x.readFile")
        assert plain is not None
        assert plain.key.tool == "readFile"


async def test_what_hides_something_in_what_its_server_goes_by_is_not_offered(machine: Machine) -> None:
    entry = server(
        resources=[{"uri": "test://a" + ZERO_WIDTH, "name": "a"}, {"uri": "test://b", "name": "b"}],
        prompts=[
            {"name": "p" + ZERO_WIDTH},
            {"name": "q", "arguments": [{"name": ZERO_WIDTH}]},
            {"name": "r", "description": ZERO_WIDTH},
        ],
    )
    async with hosting(machine, x=entry) as host:
        assert [resource.uri for resource in (await host.resources.list("x")).items] == ["test://b"]
        assert [prompt.name for prompt in (await host.prompts.list("x")).items] == ["r"]


@each_text
async def test_why_there_is_no_connection_or_no_list_hides_nothing(machine: Machine, text: str) -> None:
    error = {"error": {"code": -32603, "message": f"It failed. {text}"}}
    entries = {"mute": server(initialize=error), "listless": server(**{"tools/list": error})}
    async with hosting(machine, **entries) as host:
        failures = await host.connect("mute")
        assert isinstance(failures["mute"], ConnectFailed)
        with pytest.raises(ListFailed, match="It failed") as failure:
            await host.list_now("listless")
        said = [str(failures["mute"]), str(failure.value)]
        assert all("It failed." in each for each in said)
        last = [status.last_error or "" for status in host.status()]
        assert not characters([said, last]) & HIDDEN


async def test_a_skill_hides_nothing_and_is_still_what_was_listed(machine: Machine, tmp_path: Path) -> None:
    text = f'---\nname: sums\nabout: "A\\u200bdd{ZERO_WIDTH} up"\n---\nAdd{ZERO_WIDTH} them up.\n'
    head = {"name": "sums", "about": f"A{ZERO_WIDTH}dd{ZERO_WIDTH} up"}
    async with skills_of(machine, server_with(tmp_path / "record", text, head=head)) as skills:
        (skill,) = await skills.list()
        assert skill.frontmatter == {"name": "sums", "about": "Add up"}
        loaded = await skills.load(skill)
        assert loaded.endswith("Add them up.\n")
        assert not characters([skill.frontmatter, loaded]) & HIDDEN


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
async def test_definitions_that_a_program_gets_hide_nothing_and_hold_no_secret(
    machine: Machine, trust: str
) -> None:
    token = "tok-8Fq2zL0pWx5v"
    entry = hiding(f"\u200b\U000e0041\u202e\ufe01\x1b[31m {token}")
    entry |= {"env": {"API_TOKEN": token}, "trust": trust}
    listed = json.loads(entry["args"][-1])
    listed["tools/list"]["tools"] = [
        {**definition, "name": name, "outputSchema": definition["inputSchema"]}
        for definition in listed["tools/list"]["tools"]
        for name in ("add", f"hidden{ZERO_WIDTH}")
    ]
    entry["args"][-1] = json.dumps(listed)
    async with hosting(machine, x=entry) as host:
        tools = await host.tools_of("x")
        assert [tool.key.tool for tool in tools] == ["add", f"hidden{ZERO_WIDTH}"]
        for entry_ in tools:
            said = json.dumps([entry_.read(), entry_.input_schema, entry_.output_schema, entry_.description])
            assert token not in said
            assert not characters(json.loads(said)) & HIDDEN
            assert entry_.input_schema["properties"]["a"]["enum"] == ["plain"]
