"""A client for the MCP conformance suite: plays one scenario with a `Host`, and fails if it did not go well.

    python -m tests.conformance.client URL

The suite starts it, and says in the environment which scenario is played. It ends with 0 if the host did all
that the scenario is about, also where that is to refuse something.
"""

import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp_types import CreateMessageResult, TextContent

from fairlead.catalog.tools import ToolEntry
from fairlead.errors import AuthRequired, CallFailed, LoginFailed, UnknownTool
from fairlead.host.host import Host
from fairlead.host.offers.skills import EXTENSION, Skills
from fairlead.host.operator import Callbacks, FormAnswer, FormRequest, SampleRequest
from fairlead.host.server_peer import CustomCapabilities
from tests.conformance.logins import agree, context, oauth_for, visit

SECONDS = 60
SERVER = "exam"


async def connect(host: Host) -> None:
    await host.require([SERVER], seconds=SECONDS)


async def list_tools(host: Host) -> None:
    await tools_of(host)


async def call_a_tool(host: Host) -> None:
    await tools_of(host)
    result = await host.call(SERVER, "add_numbers", {"a": 2, "b": 3})
    assert result.text == "The sum of 2 and 3 is 5"


async def call_across_a_broken_stream(host: Host) -> None:
    result = await host.call(SERVER, "test_reconnection")
    assert result.text == "Reconnection test completed successfully"
    await tools_of(host)


async def call_every_tool(host: Host) -> None:
    for tool, entry in (await tools_of(host)).items():
        required = entry.read()["inputSchema"].get("required", [])
        result = await host.call(SERVER, tool, dict.fromkeys(required, "some text"))
        assert not result.is_error, tool


async def call_as_told(host: Host) -> None:
    await tools_of(host)
    for call in context()["toolCalls"]:
        result = await host.call(SERVER, call["name"], call["arguments"])
        assert not result.is_error, call["name"]


async def try_every_tool(host: Host) -> None:
    """Call what is offered, and be refused what is not. The suite sees to it that no such call arrives."""
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


async def hand_back_a_schema(host: Host) -> None:
    tools = await tools_of(host)
    schema = tools["json_schema_2020_12_tool"].read()["inputSchema"]
    result = await host.call(SERVER, "json_schema_echo", {"schema": schema})
    assert result.text == "echoed"


async def use_everything(host: Host) -> None:
    """Call, read and get whatever there is."""
    await call_every_tool(host)
    for resource in (await host.resources.list(SERVER)).items:
        await host.resources.read(SERVER, resource.uri)
    for prompt in (await host.prompts.list(SERVER)).items:
        await host.prompts.get(SERVER, prompt.name)


async def be_asked_for_defaults(host: Host) -> None:
    result = await host.call(SERVER, "test_client_elicitation_defaults")
    assert not result.is_error


async def answer_in_rounds(host: Host) -> None:
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


async def list_skills(host: Host) -> None:
    await connect(host)
    (skill,) = await skills_of(host).list()
    assert skill.frontmatter["name"] == "pdf-processing"


async def refuse_a_skill_that_is_not_what_was_listed(host: Host) -> None:
    await connect(host)
    (skill,) = await skills_of(host).list()
    try:
        await skills_of(host).load(skill)
    except CallFailed:
        return
    raise AssertionError("a skill was loaded that is not what was listed")


async def refuse_to_log_in(host: Host) -> None:
    """Come to know something on the way that speaks against it. The suite sees how far the host went."""
    try:
        await connect(host)
    except LoginFailed:
        return
    raise AssertionError("the host logged in")


async def give_up_on_more_rights(host: Host) -> None:
    """Have consent asked for again, as long as that makes sense."""
    try:
        await call_every_tool(host)
    except AuthRequired as exc:
        if exc.wants_more:
            return
        raise
    raise AssertionError("a server that never has enough was satisfied")


SCENARIOS: dict[str, Callable[[Host], Awaitable[None]]] = {
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
    "auth/metadata-default": call_every_tool,
    "auth/metadata-var1": call_every_tool,
    "auth/metadata-var2": call_every_tool,
    "auth/metadata-var3": call_every_tool,
    "auth/basic-cimd": call_every_tool,
    "auth/scope-from-www-authenticate": call_every_tool,
    "auth/scope-from-scopes-supported": call_every_tool,
    "auth/scope-omitted-when-undefined": call_every_tool,
    "auth/scope-step-up": call_every_tool,
    "auth/scope-retry-limit": give_up_on_more_rights,
    "auth/token-endpoint-auth-basic": call_every_tool,
    "auth/token-endpoint-auth-post": call_every_tool,
    "auth/token-endpoint-auth-none": call_every_tool,
    "auth/pre-registration": call_every_tool,
    "auth/2025-03-26-oauth-metadata-backcompat": call_every_tool,
    "auth/2025-03-26-oauth-endpoint-fallback": call_every_tool,
    "auth/resource-mismatch": refuse_to_log_in,
    "auth/offline-access-scope": call_every_tool,
    "auth/offline-access-not-supported": call_every_tool,
    "auth/authorization-server-migration": call_every_tool,
    "auth/iss-supported": call_every_tool,
    "auth/iss-not-advertised": call_every_tool,
    "auth/iss-supported-missing": refuse_to_log_in,
    "auth/iss-wrong-issuer": refuse_to_log_in,
    "auth/iss-unexpected": refuse_to_log_in,
    "auth/iss-normalized": refuse_to_log_in,
    "auth/metadata-issuer-mismatch": refuse_to_log_in,
    "auth/client-credentials-jwt": call_every_tool,
    "auth/client-credentials-basic": call_every_tool,
    "auth/enterprise-managed-authorization": call_every_tool,
    "auth/dpop": call_every_tool,
    "auth/dpop-nonce": call_every_tool,
    "auth/wif-jwt-bearer": call_every_tool,
}


REFUSALS = {
    scenario for scenario, part in SCENARIOS.items() if part in (refuse_to_log_in, give_up_on_more_rights)
}
"""The scenarios in which the host is right not to get in."""


async def tools_of(host: Host) -> dict[str, ToolEntry]:
    return {entry.key.tool: entry for entry in await host.tools_of(SERVER)}


def skills_of(host: Host) -> Skills:
    return host.skills(SERVER)


async def accept_defaults(question: FormRequest) -> FormAnswer:
    """Send every form as it is: what is not answered has its default."""
    return FormAnswer(action="accept")


async def say_hello(request: SampleRequest) -> CreateMessageResult:
    """Be a model of few words."""
    return CreateMessageResult(role="assistant", content=TextContent(text="Hello"), model="none")


async def play(scenario: str, url: str) -> None:
    entry: dict[str, Any] = {"url": url, "trust": "trusted", "sampling": {}, "roots": ["."]}
    entry["oauth"] = oauth_for(scenario)
    with tempfile.TemporaryDirectory() as home, anyio.fail_after(SECONDS):
        async with Host.open(
            overrides={"servers": {SERVER: entry}, "policy": {"approval": "allow"}},
            env={"HOME": home, "FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file"},
            cwd=home,
            operator=Callbacks(on_form=accept_defaults, on_sample=say_hello, on_url=agree, on_open_url=visit),
            capabilities=CustomCapabilities(extensions={EXTENSION: {}}),
        ) as host:
            await SCENARIOS[scenario](host)
            (status,) = host.status()
    asked = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    sys.stdout.write(json.dumps({"asked": asked, "state": status.state, "version": status.version}))


def main() -> None:
    anyio.run(play, os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1])


if __name__ == "__main__":
    main()
