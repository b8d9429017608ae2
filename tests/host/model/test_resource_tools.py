"""What a model can do with resources and prompts."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.host.host import Host
from tests.conftest import Machine
from tests.host.asking import AskingServer
from tests.host.support import SECONDS, unasked

RESOURCES = ["mcp_resources_list", "mcp_resource_templates_list", "mcp_resource_read"]
PROMPTS = ["mcp_prompts_list", "mcp_prompt_get"]


@pytest.fixture
def server(tmp_path: Path) -> AskingServer:
    blob = {"uri": "test://a", "name": "a", "mimeType": "text/plain"}
    return AskingServer(tmp_path / "record", resources=[blob], texts={"test://a": "what is in it"})


def opened(machine: Machine, server: AskingServer, **document: Any) -> Any:
    document = unasked({"x": server.entry()}, **document)
    return Host.open(overrides=document, env=machine.env, cwd=machine.project)


@pytest.mark.requirement("NEED-36")
async def test_a_model_lists_and_reads_what_servers_have_to_read(
    machine: Machine, server: AskingServer
) -> None:
    with anyio.fail_after(SECONDS):
        async with opened(machine, server) as host:
            tools = await host.tools.for_anthropic()
            names = [definition["name"] for definition in tools.definitions]
            assert [name for name in names if name in RESOURCES + PROMPTS] == RESOURCES
            listed = await tools.call("mcp_resources_list", {})
            templates = await tools.call("mcp_resource_templates_list", {"server": "x"})
            read = await tools.call("mcp_resource_read", {"server": "x", "uri": "test://a"})
            wrong = await tools.call("mcp_resource_read", {"server": "y", "uri": "test://a"})

    assert listed.structured["items"] == [
        {"server": "x", "uri": "test://a", "name": "a", "mimeType": "text/plain"}
    ]
    assert templates.structured["items"][0]["uriTemplate"] == "test://{name}"
    assert read.text == "what is in it"
    assert wrong.is_error
    assert "there is no server `y`" in wrong.text


async def test_prompts_are_for_models_only_where_that_is_wanted(
    machine: Machine, server: AskingServer
) -> None:
    with anyio.fail_after(SECONDS):
        async with opened(machine, server, tools={"prompts": True, "resources": False}) as host:
            tools = await host.tools.for_openai()
            listed = await tools.call("mcp_prompts_list")
            asked = {"server": "x", "name": "greet", "arguments": {"who": "Ada"}}
            filled = await tools.call("mcp_prompt_get", asked)

    assert not listed.is_error, listed.text
    assert listed.structured["items"][0]["name"] == "greet"
    assert "Ada" in filled.text
    assert filled.structured is None


async def test_where_there_is_nothing_to_read_nothing_is_offered_for_it(
    machine: Machine, tmp_path: Path
) -> None:
    plain = AskingServer(tmp_path / "record", capabilities={"tools": {}})
    with anyio.fail_after(SECONDS):
        async with opened(machine, plain) as host:
            names = [name for name, _ in await host.tools.definitions()]
    assert not set(names) & set(RESOURCES + PROMPTS)


async def test_a_server_that_declares_more_than_it_has_is_noted(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", refused={"resources/list": -32601, "prompts/list": -32601})
    with anyio.fail_after(SECONDS):
        async with opened(machine, server) as host:
            assert await host.connect("x") == {}
            assert host.status()[0].notes == (
                "it declares resources, and does not list them",
                "it declares prompts, and does not list them",
            )
            assert host.status()[0].state == "ready"


async def test_a_bundle_keeps_a_model_from_what_other_servers_have_to_read(
    machine: Machine, server: AskingServer, tmp_path: Path
) -> None:
    other = AskingServer(tmp_path / "other", texts={"test://a": "not for everybody"})
    document: dict[str, Any] = {
        "servers": {"x": server.entry(), "other": other.entry()},
        "bundles": {"some": {"servers": {"x": {}}, "prompts": True}},
    }
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            some = host.toolset("some")
            listed = await some.call("mcp_resources_list", {})
            read = await some.call("mcp_resource_read", {"server": "other", "uri": "test://a"})
            named = await some.call("mcp_prompts_list", {"server": "other"})
            prompt = await some.call("mcp_prompt_get", {"server": "other", "name": "greet"})

    assert listed.structured is not None
    assert {item["server"] for item in listed.structured["items"]} == {"x"}
    for refused in (read, named, prompt):
        assert refused.is_error
        assert refused.text == "there is no server `other` here"
    assert other.starts == 0


async def test_what_is_switched_off_cannot_be_called_either(machine: Machine, server: AskingServer) -> None:
    with anyio.fail_after(SECONDS):
        async with opened(machine, server, tools={"resources": False}) as host:
            result = await host.tools.answer("mcp_resource_read", {"server": "x", "uri": "test://a"})
    assert result.is_error
    assert "no tool is called" in result.text


@pytest.mark.requirement("NEED-31")
async def test_a_model_reads_nothing_of_an_untrusted_server_that_nobody_reviewed(
    machine: Machine, server: AskingServer
) -> None:
    document: dict[str, Any] = {
        "servers": {"x": server.entry(trust="untrusted")},
        "bundles": {"granted": {"servers": {"x": {"allow_tools": ["*"]}}}},
        "tools": {"prompts": True},
    }
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            listed = await host.tools.call("mcp_resources_list", {})
            named = await host.tools.call("mcp_resources_list", {"server": "x"})
            read = await host.tools.call("mcp_resource_read", {"server": "x", "uri": "test://a"})
            prompt = await host.tools.call("mcp_prompt_get", {"server": "x", "name": "greet"})
            assert server.starts == 0
            granted = await host.toolset("granted").call(
                "mcp_resource_read", {"server": "x", "uri": "test://a"}
            )

    assert listed.structured == {
        "items": [],
        "more": 0,
        "unavailable": {"x": "it is untrusted and has not been reviewed"},
    }
    for refused in (named, read, prompt):
        assert refused.is_error
        assert "fairlead review x" in refused.text
    assert granted.text == "what is in it"
    assert granted.untrusted
