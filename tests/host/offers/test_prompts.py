"""The prompts of all servers, in both eras: listed, filled in, completed."""

from pathlib import Path

import pytest

from fairlead.catalog.tools import PromptArgument
from fairlead.errors import CallFailed, CallRejected
from tests.conftest import Machine
from tests.host.asking import BOTH_ERAS, HANDSHAKE, MODERN, AskingServer, hosting

pytestmark = pytest.mark.requirement("NEED-36")


@pytest.fixture(params=BOTH_ERAS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=request.param)


async def test_prompts_of_all_servers_are_listed_together(machine: Machine, tmp_path: Path) -> None:
    arguments = [{"name": "who", "description": "a name", "required": True}, {"name": "how"}]
    older = AskingServer(
        tmp_path / "1", version=HANDSHAKE, prompts=[{"name": "greet", "arguments": arguments}]
    )
    modern = AskingServer(tmp_path / "2", version=MODERN, prompts=[{"name": "greet", "title": "Hello"}, {}])
    async with hosting(machine, older=older.entry(), modern=modern.entry()) as host:
        found = await host.prompts.list()
    assert not found.failures
    assert [(item.server_id, item.name, item.label) for item in found.items] == [
        ("older", "greet", "greet"),
        ("modern", "greet", "Hello"),
    ]
    assert found.items[0].arguments == (
        PromptArgument(name="who", description="a name", required=True),
        PromptArgument(name="how"),
    )


async def test_a_null_says_nothing_and_costs_no_prompt(machine: Machine, tmp_path: Path) -> None:
    arguments = [{"name": "who", "description": None, "required": None}]
    prompts = [{"name": "bare", "title": None, "arguments": None}, {"name": "greet", "arguments": arguments}]
    server = AskingServer(tmp_path / "record", prompts=prompts)
    async with hosting(machine, x=server.entry()) as host:
        bare, greet = (await host.prompts.list("x")).items
    assert bare.arguments == ()
    assert greet.arguments == (PromptArgument(name="who"),)


async def test_a_prompt_is_filled_in(machine: Machine, server: AskingServer) -> None:
    async with hosting(machine, x=server.entry()) as host:
        result = await host.prompts.get("x", "greet", {"who": "Ada"})
    assert result.description is None
    assert result.messages == [{"role": "user", "content": {"type": "text", "text": '{"who": "Ada"}'}}]


async def test_an_argument_is_completed_with_regard_to_the_others(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.prompts.complete("x", "greet", "who")).values == ("alpha", "beta")
        found = await host.prompts.complete("x", "greet", "who", "b", others={"how": "boldly"})
        assert (found.values, found.total, found.has_more) == (("beta", "boldly"), 2, False)
    asked = server.heard("completion/complete")[0]["params"]
    assert asked["ref"] == {"type": "ref/prompt", "name": "greet"}
    assert "context" not in asked


async def test_a_server_without_suggestions_has_none(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "1", refused={"completion/complete": -32601})
    broken = AskingServer(tmp_path / "2", refused={"completion/complete": -32603})
    async with hosting(machine, x=server.entry(), y=broken.entry()) as host:
        assert (await host.prompts.complete("x", "greet", "who")).values == ()
        with pytest.raises(CallRejected):
            await host.prompts.complete("y", "greet", "who")


async def test_a_prompt_that_is_none_is_an_error(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", refused={"prompts/get": -32602})
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(CallFailed):
            await host.prompts.get("x", "nothing")
