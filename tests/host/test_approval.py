from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.load import LoadedConfig
from fairlead.errors import ApprovalRequired, CallDenied, RunCancelled
from fairlead.events import McpToolsChanged
from fairlead.host.host import Host
from fairlead.host.model.provider_tools import ProviderTools
from fairlead.host.operator import UNATTENDED, ApprovalAnswer, ApprovalRequest, Callbacks, Operator
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, write
from tests.host.support import SECONDS

ECHO: dict[str, Any] = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


class Person:
    """Answers what they are told to, and remembers what they were asked."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self._answers = list(answers)
        self.asked: list[ApprovalRequest] = []
        self.operator = Callbacks(on_approve=self._answer)

    async def _answer(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        await anyio.lowlevel.checkpoint()
        return self._answers.pop(0)


@asynccontextmanager
async def hosting(
    machine: Machine, operator: Operator, server: ScriptedServer, **document: Any
) -> AsyncGenerator[Host]:
    fields = {"trust": "untrusted", "allow_tools": ["*"], **document.pop("fields", {})}
    overrides = {"servers": {"x": server.entry(**fields)}, **document}
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=overrides, env=machine.env, cwd=machine.project, operator=operator
        ) as host:
            yield host


def named(tools: ProviderTools, tool: str) -> str:
    return next(name for name in (each.name for each in tools.tools) if tool in name)


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=[ECHO])


async def test_where_nobody_can_be_asked_nothing_is_called(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, UNATTENDED, server) as host:
        with pytest.raises(ApprovalRequired, match="there is no one to ask") as caught:
            await host.call("x", "echo")
    assert "`fairlead review x --allow echo`" in (caught.value.hint or "")
    assert server.calls("echo") == 0


@pytest.mark.requirement("HARD-47")
async def test_a_person_is_shown_the_server_the_tool_and_all_arguments(
    machine: Machine, server: ScriptedServer
) -> None:
    person = Person("once")
    arguments = {"path": "/etc/passwd", "more": [1, {"deep": True}]}
    async with hosting(machine, person.operator, server) as host:
        await host.call("x", "echo", arguments)
    (question,) = person.asked
    assert (question.server_id, question.tool, question.arguments) == ("x", "echo", arguments)
    assert question.claims == ("read-only",)  # claimed, and asked about all the same
    assert server.calls("echo") == 1


@pytest.mark.requirement("HARD-47")
async def test_what_was_approved_is_what_is_sent(machine: Machine, server: ScriptedServer) -> None:
    arguments = {"path": "/harmless"}

    async def approve(question: ApprovalRequest) -> ApprovalAnswer:
        arguments["path"] = "/etc/passwd"
        question.arguments["path"] = "/etc/shadow"
        return "once"

    async with hosting(machine, Callbacks(on_approve=approve), server) as host:
        result = await host.call("x", "echo", arguments)
    assert "/harmless" in result.text


async def test_once_is_once(machine: Machine, server: ScriptedServer) -> None:
    person = Person("once", "no")
    async with hosting(machine, person.operator, server) as host:
        await host.call("x", "echo", {"path": "a"})
        with pytest.raises(CallDenied, match="the user denied it"):
            await host.call("x", "echo", {"path": "a"})
    assert len(person.asked) == 2


async def test_an_answer_for_the_session_ends_with_it(machine: Machine, server: ScriptedServer) -> None:
    person = Person("session", "no")
    async with hosting(machine, person.operator, server) as host:
        await host.call("x", "echo", {"path": "a"})
        await host.call("x", "echo", {"path": "b"})
    async with hosting(machine, person.operator, server) as host:
        with pytest.raises(CallDenied):
            await host.call("x", "echo")
    assert len(person.asked) == 2


async def test_an_answer_for_good_holds_in_every_later_host(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, Person("always").operator, server) as host:
        await host.call("x", "echo")
    async with hosting(machine, UNATTENDED, server) as host:
        await host.call("x", "echo", {"path": "b"})
        with pytest.raises(ApprovalRequired):
            await host.call("x", "echo", principal="somebody else")
    assert server.calls("echo") == 2


@pytest.mark.requirement("HARD-47")
@pytest.mark.parametrize("change", [{"description": "now it deletes"}, {"annotations": {}}])
async def test_an_answer_does_not_hold_for_a_tool_that_changed(
    machine: Machine, tmp_path: Path, change: dict[str, Any]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[ECHO, "change_tools"])
    person = Person("always", "no")
    async with hosting(
        machine, person.operator, server, fields={"trust": "trusted", "approval": "ask"}
    ) as host:
        await host.call("x", "echo")
        async with host.events() as events:
            await host.call("x", "change_tools", {"tools": [{**ECHO, **change}]}, confirmed=True)
            async for event in events:
                if isinstance(event, McpToolsChanged):
                    break
        with pytest.raises(CallDenied):
            await host.call("x", "echo")
    assert len(person.asked) == 2


async def test_cancel_ends_the_run_and_not_only_the_call(machine: Machine, server: ScriptedServer) -> None:
    person = Person("cancel")
    async with hosting(machine, person.operator, server) as host:
        tools = await host.tools.for_openai()
        with pytest.raises(RunCancelled):
            await tools.call(named(tools, "echo"), {})


async def test_a_no_is_a_result_that_the_model_can_read(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, Person("no").operator, server) as host:
        tools = await host.tools.for_openai()
        result = await tools.call(named(tools, "echo"), {})
    assert result.is_error
    assert "the user denied it" in result.text


async def test_calls_at_once_are_one_question(machine: Machine, server: ScriptedServer) -> None:
    person = Person("session")
    async with hosting(machine, person.operator, server) as host, anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(host.call, "x", "echo")
    assert len(person.asked) == 1
    assert server.calls("echo") == 8


async def test_a_rule_about_arguments_is_asked_about_though_the_tool_was_allowed_for_good(
    machine: Machine, server: ScriptedServer
) -> None:
    person = Person("always", "always", "no")
    rule = {"action": "ask", "arguments": {"path": "/etc/**"}}
    async with hosting(machine, person.operator, server, policy={"rules": [rule]}) as host:
        await host.call("x", "echo", {"path": "/tmp/a"})
        await host.call("x", "echo", {"path": "/tmp/b"})
        await host.call("x", "echo", {"path": "/etc/a"})
        with pytest.raises(CallDenied):
            await host.call("x", "echo", {"path": "/etc/a"})
    assert [question.remember for question in person.asked] == [True, False, False]


@pytest.mark.parametrize("said", [{"deny_tools": ["echo"]}, {"approval": "deny"}])
async def test_what_is_denied_nobody_can_allow(
    machine: Machine, server: ScriptedServer, said: dict[str, Any]
) -> None:
    async with hosting(machine, Person().operator, server, fields=said) as host:
        with pytest.raises(CallDenied):
            await host.call("x", "echo", confirmed=True)
        assert await host.tools.list() == ()
    assert server.calls("echo") == 0


async def test_a_typed_call_is_a_persons_yes(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, UNATTENDED, server, fields={"allow_tools": None}) as host:
        await host.call("x", "echo", confirmed=True)
    assert server.calls("echo") == 1


async def test_a_question_is_asked_through_the_meta_tools_too(
    machine: Machine, server: ScriptedServer
) -> None:
    person = Person("no", "once")
    async with hosting(machine, person.operator, server, tools={"mode": "meta"}) as host:
        refused = await host.tools.answer("mcp_call_tool", {"name": "x.echo", "arguments": {}})
        allowed = await host.tools.answer("mcp_call_tool", {"name": "x.echo", "arguments": {}})
    assert (refused.is_error, allowed.is_error) == (True, False)
    assert len(person.asked) == 2


@pytest.mark.requirement("HARD-76")
@pytest.mark.parametrize(
    "path",
    ["/etc/x", "../" * 40 + "etc/x", "file:///etc/x", "~/" + "../" * 40 + "etc/x", "/proc/self/root/etc/x"],
)
async def test_no_spelling_of_a_path_gets_past_a_rule(
    machine: Machine, server: ScriptedServer, path: str
) -> None:
    policy = {"rules": [{"action": "deny", "arguments": {"path": "/etc/**"}}]}
    fields = {"approval": "allow"}
    async with hosting(machine, UNATTENDED, server, fields=fields, policy=policy) as host:
        with pytest.raises(CallDenied):
            await host.call("x", "echo", {"path": path})
        assert not (await host.call("x", "echo", {"path": "notes.txt"})).is_error


@pytest.mark.requirement("HARD-76")
async def test_a_link_in_the_servers_folder_does_not_lead_past_a_rule(
    machine: Machine, server: ScriptedServer
) -> None:
    (machine.project / "notes").symlink_to("/etc")
    policy = {"rules": [{"action": "deny", "arguments": {"path": "/etc/**"}}]}
    fields = {"approval": "allow", "cwd": str(machine.project)}
    async with hosting(machine, UNATTENDED, server, fields=fields, policy=policy) as host:
        for path in ("notes/passwd", "./notes", f"{machine.project}/notes/passwd"):
            with pytest.raises(CallDenied):
                await host.call("x", "echo", {"path": path})


@pytest.mark.requirement("HARD-76")
async def test_in_a_container_a_relative_path_may_be_any(machine: Machine, server: ScriptedServer) -> None:
    policy = {"rules": [{"action": "deny", "arguments": {"path": "/etc/**"}}]}
    docker = write(machine.home / "bin" / "docker", '#!/bin/sh\nexec "$@"\n')
    docker.chmod(0o755)
    entry = server.entry()
    fields = {"approval": "allow", "command": str(docker), "args": [entry["command"], *entry["args"]]}
    async with hosting(machine, UNATTENDED, server, fields=fields, policy=policy) as host:
        for path in ("etc/passwd", "passwd", "/ETC/passwd"):
            with pytest.raises(ApprovalRequired):
                await host.call("x", "echo", {"path": path})
        assert not (await host.call("x", "echo", {"path": "/data/etc/passwd"})).is_error


@pytest.mark.requirement("HARD-76")
async def test_where_a_rule_may_apply_the_user_is_asked_about_every_such_call(
    machine: Machine, server: ScriptedServer
) -> None:
    policy = {"rules": [{"action": "deny", "arguments": {"path": "/etc/**"}}]}
    person = Person("always", "no")
    fields = {"approval": "allow"}
    async with hosting(machine, person.operator, server, fields=fields, policy=policy) as host:
        await host.call("x", "echo", {"path": "$WHERE/x"})
        with pytest.raises(CallDenied):
            await host.call("x", "echo", {"path": "$WHERE/x"})
    assert ["may apply" in asked.reason for asked in person.asked] == [True, True]
    assert not any(asked.remember for asked in person.asked)


@pytest.mark.requirement("HARD-76")
async def test_a_doubt_is_a_no_where_the_user_cannot_be_asked(
    machine: Machine, server: ScriptedServer
) -> None:
    policy = {"rules": [{"action": "deny", "arguments": {"path": "/etc/**"}}]}
    async with hosting(machine, UNATTENDED, server, fields={"approval": "allow"}, policy=policy) as host:
        with pytest.raises(ApprovalRequired):
            await host.call("x", "echo", {"path": "/e*/x"})


@pytest.mark.parametrize("answer", ["once", "session", "always"])
async def test_an_answer_to_what_was_denied_meanwhile_calls_nothing_and_is_not_remembered(
    machine: Machine, tmp_path: Path, answer: Any
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])

    def configured(**policy: Any) -> LoadedConfig:
        servers = {"x": server.entry(trust="trusted", approval="ask")}
        return machine.load(overrides={"servers": servers, "policy": policy})

    asked: list[str] = []

    async def approve(question: Any) -> Any:
        asked.append(question.tool)
        if len(asked) == 1:
            with anyio.CancelScope(shield=True):  # one that cannot be interrupted, as at a terminal
                await host.reload(configured(rules=[{"action": "deny", "tool": "echo"}]))
        return answer

    with anyio.fail_after(30):
        async with Host.open(configured(), env=machine.env, operator=Callbacks(on_approve=approve)) as host:
            with pytest.raises(CallDenied, match="a policy rule says `deny`"):
                await host.call("x", "echo")
            await host.reload(configured())
            await host.call("x", "echo")
    assert len(asked) == 2, "the first answer was not remembered"
    assert server.calls("echo") == 1
