"""Rules and reviews that change while calls wait for approval: what is in force when they end decides."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.config.load import LoadedConfig
from fairlead.errors import CallDenied, FairleadError
from fairlead.host.host import Host
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest, Callbacks
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS

ECHO: dict[str, Any] = {
    "name": "echo",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "mode": {"type": "string"}},
    },
}
DENY_ETC = {"action": "deny", "arguments": {"path": "/etc/**"}}
Rules = Sequence[dict[str, Any]]


class Asking:
    """An operator that holds every request until it is told an answer."""

    def __init__(self, *, interruptible: bool = True) -> None:
        self.requests: list[ApprovalRequest] = []
        self.asked = anyio.Event()
        self.operator = Callbacks(on_approve=self._approve)
        self._interruptible = interruptible
        self._answered = anyio.Event()
        self._answer: ApprovalAnswer = "no"

    async def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        self.asked.set()
        # As at a terminal, where a prompt stays until it is answered; bounded for the test.
        with anyio.move_on_after(5, shield=not self._interruptible):
            await self._answered.wait()
        return self._answer

    def answer(self, answer: ApprovalAnswer) -> None:
        self._answer = answer
        self._answered.set()


class Calls:
    """Calls of one caller at the same time, and what became of each."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.outcomes: list[str] = []

    async def call(self, arguments: dict[str, Any]) -> None:
        try:
            await self._host.call("x", "echo", arguments)
        except FairleadError as exc:
            self.outcomes.append(str(exc))
        else:
            self.outcomes.append("called")


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=[ECHO])


@pytest.fixture
def load(machine: Machine, server: ScriptedServer) -> Callable[..., LoadedConfig]:
    def load(rules: Rules = (), **fields: Any) -> LoadedConfig:
        entry = server.entry(**{"trust": "untrusted", "allow_tools": ["echo"], **fields})
        return machine.load(overrides={"servers": {"x": entry}, "policy": {"rules": [*rules]}})

    return load


@asynccontextmanager
async def waiting(
    machine: Machine, config: LoadedConfig, asking: Asking, *arguments: dict[str, Any]
) -> AsyncGenerator[tuple[Host, Calls]]:
    """Calls of which the first is shown to the user, in a block that ends when all have ended."""
    with anyio.fail_after(SECONDS):
        async with Host.open(config, env=machine.env, cwd=machine.project, operator=asking.operator) as host:
            calls = Calls(host)
            async with anyio.create_task_group() as tasks:
                for each in arguments:
                    tasks.start_soon(calls.call, each)
                await asking.asked.wait()
                await anyio.wait_all_tasks_blocked()
                yield host, calls


@pytest.mark.parametrize("interruptible", [True, False])
@pytest.mark.parametrize(
    "before",
    [
        [],
        [{"action": "ask", "arguments": {"path": "/srv/**"}}],
        [{"action": "ask", "arguments": {"mode": "*"}}],
    ],
    ids=["no earlier rule", "another glob", "another argument"],
)
async def test_a_rule_on_arguments_made_during_the_wait_decides_about_the_call_that_waits(
    machine: Machine,
    server: ScriptedServer,
    load: Callable[..., LoadedConfig],
    before: Rules,
    interruptible: bool,
) -> None:
    asking = Asking(interruptible=interruptible)
    arguments = {"path": "/etc/passwd", "mode": "r"}
    async with waiting(machine, load(before), asking, arguments) as (host, calls):
        await host.reload(load([*before, DENY_ETC]))
        asking.answer("once")
    assert "a policy rule says `deny`" in calls.outcomes[0]
    assert server.calls("echo") == 0


async def test_a_call_that_a_new_rule_is_not_about_is_asked_about_as_before(
    machine: Machine, server: ScriptedServer, load: Callable[..., LoadedConfig]
) -> None:
    asking = Asking()
    async with waiting(machine, load(), asking, {"path": "/srv/x"}) as (host, calls):
        await host.reload(load([DENY_ETC]))
        asking.answer("once")
    assert calls.outcomes == ["called"]
    assert server.calls("echo") == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"approval": {"tools": {"echo": "allow"}}}, "called"),
        ({"deny_tools": ["echo"]}, "`x.echo` may not be called: listed in deny_tools"),
    ],
    ids=["allow", "deny"],
)
async def test_every_call_that_waits_is_decided_again_after_a_review(
    machine: Machine,
    server: ScriptedServer,
    load: Callable[..., LoadedConfig],
    fields: dict[str, Any],
    expected: str,
) -> None:
    asking = Asking()
    async with waiting(machine, load(), asking, {"mode": "a"}, {"mode": "b"}, {"mode": "c"}) as (host, calls):
        await host.reload(load(**fields))
    assert [outcome.startswith(expected) for outcome in calls.outcomes] == [True] * 3, calls.outcomes
    assert len(asking.requests) == 1, "those in the queue are never shown"
    assert server.calls("echo") == (3 if expected == "called" else 0)


async def test_a_review_between_two_calls_of_one_tool_decides_about_the_second(
    machine: Machine, server: ScriptedServer, load: Callable[..., LoadedConfig]
) -> None:
    asking = Asking(interruptible=False)  # at a terminal the prompt stays
    async with waiting(machine, load(), asking, {"mode": "a"}, {"mode": "b"}) as (host, calls):
        await host.reload(load(deny_tools=["echo"]))
        asking.answer("always")
    assert len(asking.requests) == 1
    assert all("listed in deny_tools" in outcome for outcome in calls.outcomes)
    assert server.calls("echo") == 0


async def test_a_rule_made_while_an_earlier_answer_is_looked_up_decides(
    machine: Machine,
    server: ScriptedServer,
    load: Callable[..., LoadedConfig],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Asking()
    asking.answer("always")
    with anyio.fail_after(SECONDS):
        async with Host.open(load(), env=machine.env, cwd=machine.project, operator=asking.operator) as host:
            await host.call("x", "echo", {"path": "/etc/x"})
            look_up = host.approvals.look_up

            async def slowly(approval: Any) -> bool:
                found = await look_up(approval)
                await host.reload(load([DENY_ETC]))
                return found

            monkeypatch.setattr(host.approvals, "look_up", slowly)
            with pytest.raises(CallDenied, match="a policy rule says `deny`"):
                await host.call("x", "echo", {"path": "/etc/x"})
    assert server.calls("echo") == 1


async def test_calls_of_a_server_that_is_replaced_while_they_wait_end_without_a_prompt(
    machine: Machine, server: ScriptedServer, load: Callable[..., LoadedConfig]
) -> None:
    asking = Asking()
    async with waiting(machine, load(), asking, {"mode": "a"}, {"mode": "b"}) as (host, calls):
        await host.reload(load(enabled=False))
    assert len(asking.requests) == 1
    assert all("its server was disabled or changed" in outcome for outcome in calls.outcomes), calls.outcomes
    assert server.calls("echo") == 0


@asynccontextmanager
async def in_bundle(
    machine: Machine, server: ScriptedServer, asking: Asking, call: Callable[[Host], Any]
) -> AsyncGenerator[tuple[Host, Callable[..., LoadedConfig]]]:
    """A call through a bundle that waits for approval, in a block that ends when it has ended."""

    def load(bundles: dict[str, Any], **gateway: Any) -> LoadedConfig:
        entry = server.entry(trust="trusted", approval="ask")
        return machine.load(overrides={"servers": {"x": entry}, "bundles": bundles, "gateway": gateway})

    config = load({"b": {"servers": {"x": {}}}})
    opened = Host.open(config, env=machine.env, cwd=machine.project, operator=asking.operator)
    with anyio.fail_after(SECONDS):
        async with opened as host, anyio.create_task_group() as tasks:
            tasks.start_soon(call, host)
            await asking.asked.wait()
            await anyio.wait_all_tasks_blocked()
            yield host, load


@pytest.mark.parametrize(
    "bundles",
    [{}, {"b": {"servers": {}}}, {"b": {"servers": {"x": {"deny_tools": ["echo"]}}}}],
    ids=["no bundle", "without the server", "without the tool"],
)
async def test_a_call_that_is_taken_out_of_its_bundle_while_it_waits_is_not_made(
    machine: Machine, server: ScriptedServer, bundles: dict[str, Any]
) -> None:
    asking = Asking(interruptible=False)
    outcomes: list[str] = []

    async def call(host: Host) -> None:
        try:
            tools = host.toolset("b")
            (echo,) = await tools.list()
            outcomes.append((await tools.call(echo.name)).text)
        except FairleadError as exc:
            outcomes.append(str(exc))

    async with in_bundle(machine, server, asking, call) as (host, load):
        await host.reload(load(bundles))
        asking.answer("once")
    assert "was not called" in outcomes[0] or "may not be called" in outcomes[0], outcomes
    assert server.calls("echo") == 0
