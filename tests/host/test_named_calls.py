"""Calls by one name, `server.tool`, with the tool's arguments by keyword or as a mapping."""

from pathlib import Path
from typing import Any

import pytest

from fairlead import ApprovalRequired, Callbacks, Host, UnknownServer, UnknownTool, WrongType
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting


async def test_a_tool_is_called_by_server_and_name_in_one(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        apart = (await host.call("a", "echo", {"x": 1})).text
        assert (await host.call("a.echo", x=1)).text == apart
        assert (await host.call("a/echo", x=1)).text == apart
        assert (await host.call("a.echo", {"x": 1})).text == apart
        (tool,) = await host.tools.list()
        assert (await host.call(tool.name, x=1)).text == apart
        assert (await host.call("a.echo")).text == (await host.call("a", "echo")).text
    assert server.calls("echo") == 7


async def test_a_name_that_is_none_is_told_before_anything_starts(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, alpha=server.entry()) as host:
        with pytest.raises(UnknownServer) as caught:
            await host.call("alhpa.echo")
        assert "alpha" in str(caught.value.hint)
        with pytest.raises(WrongType, match="`tool`") as refused:
            await host.call("alpha")
        assert refused.value.hint == "write `alpha.TOOL`, with the tool's name"
        assert server.starts == 0
        with pytest.raises(UnknownTool):
            await host.call("mcp_alpha_nothing")


@pytest.mark.parametrize(
    "given",
    [
        {"confirmed": True},
        {"confirmed": True, "x": 1},
        {"arguments": {"x": 1}, "confirmed": True},
        {"tool": {"x": 1}, "confirmed": True},
        {"principal": "root"},
        {"groups": frozenset({"admins"})},
        {"default_mode": "allow"},
        {"full_result": True},
        {"request_timeout_ms": 5},
        {"tool": {"x": 1}, "y": 2},
    ],
)
async def test_arguments_that_a_model_chose_cannot_be_options(
    machine: Machine, tmp_path: Path, given: dict[str, Any]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry(approval="ask")) as host:
        with pytest.raises(WrongType, match="nothing was done"):
            await host.call("a.echo", **given)
        with pytest.raises(ApprovalRequired):
            await host.call("a.echo", {**given})
    assert server.calls("echo") == 0


async def test_keywords_that_are_no_options_are_refused_with_server_and_tool_apart(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        anything: Any = host
        with pytest.raises(WrongType, match="no option `x`"):
            await anything.call("a", "echo", x=1)
    assert server.calls("echo") == 0


async def test_a_call_by_name_is_asked_about_like_any_other(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    asked: list[str] = []

    async def approve(request: Any) -> Any:
        asked.append(f"{request.server_id}.{request.tool}")
        return "once"

    document = {"servers": {"a": server.entry(approval="ask")}}
    async with Host.open(
        overrides=document, env=machine.env, cwd=machine.project, operator=Callbacks(on_approve=approve)
    ) as host:
        await host.call("a.echo", x=1)
    assert asked == ["a.echo"]
