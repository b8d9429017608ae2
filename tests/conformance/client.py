"""A client for the MCP conformance suite: plays one scenario with a `Host`, and fails if it did not go well.

    python client.py URL

The suite starts it, and says in the environment which scenario is played. It ends with 0 if the host did all
that the scenario is about, and with `NOT_PLAYED` if the scenario is none of these.
"""

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult

    from fairlead.catalog.entries import ToolEntry
    from fairlead.host.host import Host
    from fairlead.host.operator import FormAnswer, FormQuestion, SampleRequest
    from fairlead.host.skills import Skills

NOT_PLAYED = 64
SECONDS = 60
SERVER = "exam"


async def connect(host: "Host") -> None:
    await host.require([SERVER], seconds=SECONDS)


async def list_tools(host: "Host") -> None:
    await tools_of(host)


async def call_a_tool(host: "Host") -> None:
    await tools_of(host)
    result = await host.call(SERVER, "add_numbers", {"a": 2, "b": 3})
    assert result.text == "The sum of 2 and 3 is 5"


async def call_across_a_broken_stream(host: "Host") -> None:
    result = await host.call(SERVER, "test_reconnection")
    assert result.text == "Reconnection test completed successfully"
    await tools_of(host)


async def call_every_tool(host: "Host") -> None:
    for tool, entry in (await tools_of(host)).items():
        required = entry.read()["inputSchema"].get("required", [])
        result = await host.call(SERVER, tool, dict.fromkeys(required, "some text"))
        assert not result.is_error, tool


async def call_as_told(host: "Host") -> None:
    await tools_of(host)
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        result = await host.call(SERVER, call["name"], call["arguments"])
        assert not result.is_error, call["name"]


async def try_every_tool(host: "Host") -> None:
    """Call what is offered, and be refused what is not. The suite sees to it that no such call arrives."""
    from fairlead.errors import UnknownTool

    await call_every_tool(host)
    listing = host.listing(SERVER)
    assert listing is not None
    assert listing.rejected
    for rejected in listing.rejected:
        try:
            await host.call(SERVER, rejected.name)
        except UnknownTool:
            continue
        raise AssertionError(f"{rejected.name} was called")


async def hand_back_a_schema(host: "Host") -> None:
    tools = await tools_of(host)
    schema = tools["json_schema_2020_12_tool"].read()["inputSchema"]
    result = await host.call(SERVER, "json_schema_echo", {"schema": schema})
    assert result.text == "echoed"


async def use_everything(host: "Host") -> None:
    """Call, read and get whatever there is."""
    await call_every_tool(host)
    for resource in (await host.resources.list(SERVER)).items:
        await host.resources.read(SERVER, resource.uri)
    for prompt in (await host.prompts.list(SERVER)).items:
        await host.prompts.get(SERVER, prompt.name)


async def be_asked_for_defaults(host: "Host") -> None:
    result = await host.call(SERVER, "test_client_elicitation_defaults")
    assert not result.is_error


async def answer_in_rounds(host: "Host") -> None:
    """Call tools that ask, and others at the same time, so that nothing of one gets into another."""
    tools = await tools_of(host)
    results: dict[str, str] = {}

    async def call(tool: str) -> None:
        results[tool] = (await host.call(SERVER, tool)).text

    async with anyio.create_task_group() as calls:
        for tool in tools:
            calls.start_soon(call, tool)
    assert results == {
        "test_mrtr_echo_state": "echo-state-ok",
        "test_mrtr_no_state": "no-state-ok",
        "test_mrtr_unrelated": "unrelated-ok",
        "test_mrtr_no_result_type": "no-result-type-test-ok",
    }


async def list_skills(host: "Host") -> None:
    await connect(host)
    (skill,) = await skills_of(host).list()
    assert skill.frontmatter["name"] == "pdf-processing"


async def refuse_a_skill_that_is_not_what_was_listed(host: "Host") -> None:
    from fairlead.errors import CallFailed

    await connect(host)
    (skill,) = await skills_of(host).list()
    try:
        await skills_of(host).load(skill)
    except CallFailed:
        return
    raise AssertionError("a skill was loaded that is not what was listed")


SCENARIOS: dict[str, Callable[["Host"], Awaitable[None]]] = {
    "initialize": connect,
    "tools_call": call_a_tool,
    "sse-retry": call_across_a_broken_stream,
    "request-metadata": list_tools,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": try_every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": hand_back_a_schema,
    "elicitation-sep1034-client-defaults": be_asked_for_defaults,
    "sep-2322-client-request-state": answer_in_rounds,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": refuse_a_skill_that_is_not_what_was_listed,
    "sep-2640-client-verify-size": refuse_a_skill_that_is_not_what_was_listed,
    "sep-2640-client-verify-frontmatter": refuse_a_skill_that_is_not_what_was_listed,
}


async def tools_of(host: "Host") -> "dict[str, ToolEntry]":
    return {entry.key.tool: entry for entry in await host.tools_of(SERVER)}


def skills_of(host: "Host") -> "Skills":
    from fairlead.host.skills import Skills

    return Skills(host, SERVER)


async def accept_defaults(question: "FormQuestion") -> "FormAnswer":
    """Send every form as it is: what is not answered has its default."""
    from fairlead.host.operator import FormAnswer

    return FormAnswer(action="accept")


async def say_hello(request: "SampleRequest") -> "CreateMessageResult":
    """Be a model of few words."""
    from mcp_types import CreateMessageResult, TextContent

    return CreateMessageResult(role="assistant", content=TextContent(text="Hello"), model="none")


async def play(scenario: str, url: str) -> None:
    # Imported only where it is needed: in suite mode, dozens of these start at once to play nothing.
    from fairlead.host.custom import CustomCapabilities
    from fairlead.host.host import Host
    from fairlead.host.operator import Callbacks
    from fairlead.host.skills import EXTENSION

    servers: dict[str, Any] = {SERVER: {"url": url, "trust": "trusted", "sampling": {}, "roots": ["."]}}
    with tempfile.TemporaryDirectory() as home, anyio.fail_after(SECONDS):
        async with Host.open(
            overrides={"servers": servers},
            env={"HOME": home, "FAIRLEAD_BUILTINS": "off"},
            cwd=home,
            operator=Callbacks(on_form=accept_defaults, on_sample=say_hello),
            capabilities=CustomCapabilities(extensions={EXTENSION: {}}),
        ) as host:
            await SCENARIOS[scenario](host)
            (status,) = host.status()
        assert status.state == "ready", status
    sys.stdout.write(json.dumps({"version": status.version}))


def main() -> int:
    scenario, url = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1]
    if scenario not in SCENARIOS:
        return NOT_PLAYED
    anyio.run(play, scenario, url)
    return 0


if __name__ == "__main__":
    sys.exit(main())
