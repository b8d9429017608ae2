"""A model that carries out tasks: a scripted API that speaks the real wire formats, and real processes."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import ImageContent

from fairlead.events import Event, McpToolCallEnd, McpToolCallProgress
from fairlead.host.host import Host
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest, Callbacks
from fairlead.loop.events import StepFinished, ToolCalled, ToolReturned, Usage
from fairlead.loop.provider import Message, Provider
from fairlead.loop.run import RunLimits, run_task
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import Reply as ToolReply
from fairlead.servers.framework.tools import ToolContext, ToolDefinition, ToolModel
from fairlead.testing import ScriptedServer, open_host
from tests.conftest import Machine
from tests.host.support import is_running
from tests.loop.model_server import Reply, results_in, says, serving, tool_names
from tests.loop.support import PROVIDERS, ending, next_of, of_kind, played, said

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)


class Nothing(ToolModel):
    """No arguments, or no result."""


class Name(ToolModel):
    """Whose turn it is."""

    name: str


async def test_what_a_model_says_arrives_as_it_is_said_and_whole(tmp_path: Path, provider: Provider) -> None:
    text = 'Grüße 👋🏽, “so” \\u00e9 \n\t und {"mehr": [1]}'
    with serving(says(provider, text, cut=1)) as api:
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model(provider), "grüße")
    assert said(events) == text
    assert len(events) > len(text)
    finished = ending(events)
    assert (finished.text, finished.outcome, finished.steps) == (text, "finished", 1)
    assert finished.usage == Usage(input_tokens=100, output_tokens=10, cached_tokens=40)
    assert (api.bodies[0]["model"], api.bodies[0]["stream"]) == ("m", True)
    assert "grüße" in json.dumps(api.bodies[0]["messages"][-1], ensure_ascii=False)
    assert "tools" not in api.bodies[0]  # an empty list would be refused


async def test_a_task_takes_steps_over_several_servers(tmp_path: Path, provider: Provider) -> None:
    one, two = (ScriptedServer(tmp_path / name) for name in ("one", "two"))

    def first(body: dict[str, Any]) -> Reply:
        name = next(name for name in tool_names(provider, body) if "one" in name)
        return says(provider, "Looking.", [("c1", name, {"word": "é"})])

    def second(body: dict[str, Any]) -> Reply:
        word = json.loads(results_in(provider, body)["c1"])["word"]
        name = next(name for name in tool_names(provider, body) if "two" in name)
        return says(provider, calls=[("c2", name, {"got": word})])

    def third(body: dict[str, Any]) -> Reply:
        return says(provider, f"It is {json.loads(results_in(provider, body)['c2'])['got']}.")

    with serving(first, second, third) as api:
        async with open_host(tmp_path, one=one.entry(), two=two.entry()) as host:
            events = await played(host.tools, api.model(provider))
    assert (one.calls("echo"), two.calls("echo")) == (1, 1)
    assert [event.tool for event in of_kind(events, ToolCalled)] == ["one/echo", "two/echo"]
    assert said(events) == "Looking.It is é."
    assert (ending(events).text, ending(events).steps, ending(events).usage.total) == ("It is é.", 3, 330)
    assert api.raw[0].partition(b'"tools":')[2] == api.raw[2].partition(b'"tools":')[2]  # caches stay warm


async def test_calls_of_one_step_run_at_once_and_their_results_keep_the_order(
    tmp_path: Path, provider: Provider
) -> None:
    last_came, first_may_end = anyio.Event(), anyio.Event()

    async def meet(context: ToolContext, asked: Name) -> Name:
        if asked.name == "first":
            await last_came.wait()  # which would be for ever, one after the other
            await first_may_end.wait()
        else:
            last_came.set()
        return asked

    tool = ToolDefinition(name="meet", description="Meet.", input=Name, output=Name, handler=meet)
    calls = [("c1", "x.meet", {"name": "first"}), ("c2", "x.meet", {"name": "last"})]
    returned: list[str] = []
    with serving(says(provider, calls=calls), says(provider, "met")) as api:
        async with (
            open_host(tmp_path, x=McpServer("x", version="1", tools=[tool])) as host,
            run_task(host.tools, api.model(provider), "meet") as events,
        ):
            async for event in events:
                if isinstance(event, ToolReturned):
                    returned.append(event.call_id)
                    first_may_end.set()
    assert returned == ["c2", "c1"]
    assert [*results_in(provider, api.bodies[1])] == ["c1", "c2"]


async def test_no_more_than_a_few_calls_run_at_once(tmp_path: Path, provider: Provider) -> None:
    running, most = 0, 0

    async def work(context: ToolContext, asked: Name) -> Name:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return asked

    tool = ToolDefinition(name="work", description="Work.", input=Name, output=Name, handler=work)
    calls = [(f"c{number}", "x.work", {"name": str(number)}) for number in range(30)]
    with serving(says(provider, calls=calls, cut=4096), says(provider, "done")) as api:
        async with open_host(tmp_path, x=McpServer("x", version="1", tools=[tool])) as host:
            events = await played(host.tools, api.model(provider))
    assert most <= 8
    assert [*results_in(provider, api.bodies[1])] == [call_id for call_id, _, _ in calls]
    assert len(of_kind(events, ToolReturned)) == 30


async def test_what_goes_wrong_with_a_call_is_for_the_model_to_read(
    tmp_path: Path, provider: Provider
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "crash", "refuse", "unreadable"])
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("c1", "x.echo", {}),  # which it was not even shown
        ("c2", "x.refuse", {}),
        ("c3", "x.nothing_like_it", {}),
        ("c4", "x.unreadable", {}),
    ]
    replies = says(provider, calls=calls), says(provider, calls=[("c5", "x.crash", {})]), says(provider, "ok")
    with serving(*replies) as api:
        async with open_host(tmp_path, x=server.entry(deny_tools=["echo"])) as host:
            events = await played(host.tools, api.model(provider))
    returned = {event.call_id: event for event in of_kind(events, ToolReturned)}
    assert {call_id: event.error for call_id, event in returned.items()} == {
        "c1": "call_denied",
        "c2": "call_rejected",
        "c3": "unknown_tool",
        "c4": "call_failed",
        "c5": "connection_lost",
    }
    told = results_in(provider, api.bodies[-1])
    assert "`x.echo` may not be called: listed in deny_tools" in told["c1"]
    assert not any("echo" in name for name in tool_names(provider, api.bodies[0]))
    assert "nothing_like_it" in told["c3"]
    assert all(event.result.is_error for event in returned.values())
    assert ending(events).outcome == "finished"
    assert server.calls("echo") == 0


async def test_arguments_that_are_no_json_are_sent_back_and_nothing_is_called(
    tmp_path: Path, provider: Provider
) -> None:
    server = ScriptedServer(tmp_path / "record")
    broken = says(provider, calls=[("c1", "x.echo", {"a": 1})])
    broken = Reply(
        body=broken.body.replace(b'": "}"', b'": "]"').replace(b'"arguments": "}"', b'"arguments": "]"')
    )
    with serving(broken, says(provider, "sorry")) as api:
        async with open_host(tmp_path, x=server.entry()) as host:
            events = await played(host.tools, api.model(provider))
    assert of_kind(events, ToolCalled)[0].arguments is None
    assert of_kind(events, ToolReturned)[0].error == "arguments_invalid"
    assert "no JSON object" in results_in(provider, api.bodies[1])["c1"]
    assert server.calls("echo") == 0


async def test_images_reach_the_model(tmp_path: Path, provider: Provider) -> None:
    async def draw(context: ToolContext, asked: Nothing) -> ToolReply[Nothing]:
        return ToolReply(output=Nothing(), content=(ImageContent(data="aGk=", mime_type="image/png"),))

    tool = ToolDefinition(name="draw", description="Draw.", input=Nothing, output=Nothing, handler=draw)
    calls: list[tuple[str, str, dict[str, Any]]] = [("c1", "x.draw", {}), ("c2", "x.draw", {})]
    with serving(says(provider, calls=calls), says(provider, "nice")) as api:
        async with open_host(tmp_path, x=McpServer("x", version="1", tools=[tool])) as host:
            await played(host.tools, api.model(provider))
    messages = api.bodies[1]["messages"]
    assert json.dumps(messages).count("aGk=") == 2
    if provider == "openai":  # where images come after the messages of all tools
        assert [message["role"] for message in messages[-4:]] == ["tool", "tool", "user", "user"]


async def test_a_model_without_vision_gets_a_note_and_a_handle_in_place_of_an_image(
    tmp_path: Path, provider: Provider
) -> None:
    """Seed 004: images are stripped from results if the model does not support image input."""

    async def draw(context: ToolContext, asked: Nothing) -> ToolReply[Nothing]:
        return ToolReply(output=Nothing(), content=(ImageContent(data="aGk=", mime_type="image/png"),))

    tool = ToolDefinition(name="draw", description="Draw.", input=Nothing, output=Nothing, handler=draw)
    with serving(says(provider, calls=[("c1", "x.draw", {})]), says(provider, "a pity")) as api:
        async with open_host(tmp_path, x=McpServer("x", version="1", tools=[tool])) as host:
            await played(host.tools, replace(api.model(provider), vision=False))
    assert "aGk=" not in json.dumps(api.bodies[1])
    told = results_in(provider, api.bodies[1])["c1"]
    assert "image/png, 2 bytes, is left out: the model takes no images." in told
    assert "Stored as artifact://" in told


@pytest.mark.requirement("NEED-19")
async def test_a_new_tool_is_there_in_the_next_step_and_the_others_stay_as_they_are(
    tmp_path: Path, provider: Provider
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["change_tools", "echo"])
    changed = {"tools": ["change_tools", "echo", "brand_new"]}
    with serving(says(provider, calls=[("c1", "x.change_tools", changed)]), says(provider, "ok")) as api:
        async with (
            open_host(tmp_path, x=server.entry()) as host,
            run_task(host.tools, api.model(provider), "add one") as events,
        ):
            async for _ in events:
                pass
    before, after = (tool_names(provider, body) for body in api.bodies)
    assert [name for name in after if "brand_new" not in name] == before
    assert len(after) == len(before) + 1


@pytest.mark.requirement("NEED-20")
@pytest.mark.parametrize("leaves", ["block", "task"])
async def test_a_run_that_is_left_cancels_its_calls_and_leaves_no_process(
    tmp_path: Path, provider: Provider, leaves: str
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wait"])

    async def follow(host: Host, happenings: AsyncIterator[Event]) -> None:
        async with run_task(host.tools, api.model(provider), "wait") as events:
            async for event in events:
                if isinstance(event, ToolCalled):
                    await next_of(happenings, McpToolCallProgress)
                    if leaves == "block":
                        return
                    tasks.cancel_scope.cancel()

    with serving(says(provider, calls=[("c1", "x.wait", {})])) as api:
        async with open_host(tmp_path, x=server.entry()) as host, host.events() as happenings:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, host, happenings)
            await next_of(happenings, McpToolCallEnd)
            assert [status.state for status in host.status()] == ["ready"]
    assert server.notes("received").count("notifications/cancelled") == 1
    assert not any(is_running(pid) for pid in server.notes("started"))


async def test_what_goes_wrong_in_the_block_comes_out_of_it_as_it_is(
    tmp_path: Path, provider: Provider
) -> None:
    async def follow(host: Host) -> None:
        async with run_task(host.tools, api.model(provider), "x") as events:
            async for _ in events:
                raise ZeroDivisionError

    with serving(says(provider, "hello", hangs=True)) as api:
        async with open_host(tmp_path) as host:
            with pytest.raises(ZeroDivisionError):
                await follow(host)


@pytest.mark.parametrize("bounds", [RunLimits(max_steps=2), RunLimits(max_tokens=200)])
async def test_a_run_ends_at_its_limit_and_the_conversation_can_go_on(
    tmp_path: Path, provider: Provider, bounds: RunLimits
) -> None:
    server = ScriptedServer(tmp_path / "record")
    history: list[Message] = []
    again = partial(says, provider, "more")
    replies = [again([("c1", "x.echo", {})]), again([("c2", "x.echo", {})]), says(provider, "there")]
    with serving(*replies) as api:
        async with open_host(tmp_path, x=server.entry()) as host:
            events = await played(host.tools, api.model(provider), bounds=bounds, history=history)
            assert ending(events).outcome == ("max_steps" if bounds.max_steps == 2 else "max_tokens")
            assert ending(events).steps == 2
            assert server.calls("echo") == 1  # nobody would have read what the second brings
            events = await played(host.tools, api.model(provider), "go on", history=history)
    assert ending(events).outcome == "finished"
    assert "not called" in results_in(provider, api.bodies[2])["c2"]
    assert [message["role"] for message in history].count("assistant") == 3


async def test_a_person_who_wants_no_more_ends_the_run(
    machine: Machine, tmp_path: Path, provider: Provider
) -> None:
    asked: list[str] = []

    async def answer(question: ApprovalRequest) -> ApprovalAnswer:
        asked.append(question.tool)
        return "no" if len(asked) == 1 else "cancel"

    server = ScriptedServer(tmp_path / "record")
    document = {"servers": {"x": server.entry(approval="ask")}}
    operator = Callbacks(on_approve=answer)
    with serving(*(says(provider, calls=[(f"c{n}", "x.echo", {})]) for n in (1, 2))) as api:
        async with Host.open(
            overrides=document, env=machine.env, cwd=machine.project, operator=operator
        ) as host:
            events = await played(host.tools, api.model(provider))
    assert ending(events).outcome == "cancelled"
    assert [event.error for event in of_kind(events, ToolReturned)] == ["call_denied"]
    assert "c1" in results_in(provider, api.bodies[1])
    assert (len(api.bodies), server.calls("echo")) == (2, 0)


async def test_a_run_that_stops_for_want_of_a_person_says_so(
    machine: Machine, tmp_path: Path, provider: Provider
) -> None:
    server = ScriptedServer(tmp_path / "record")
    document = {"servers": {"x": server.entry(approval="ask")}}
    meta = [("c1", "mcp_call_tool", {"name": "x.echo", "arguments": {"a": 1}})]
    for calls in ([("c1", "x.echo", {"a": 1})], meta):
        with serving(says(provider, calls=calls), says(provider, "I may not.")) as api:
            async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
                events = await played(host.tools, api.model(provider))
        assert ending(events).outcome == "needs_a_person"
        assert of_kind(events, ToolCalled)[0].tool == "x/echo"
        assert of_kind(events, ToolReturned)[0].error == "approval_required"


async def test_each_step_says_what_it_took(tmp_path: Path, provider: Provider) -> None:
    server = ScriptedServer(tmp_path / "record")
    with serving(says(provider, calls=[("c1", "x.echo", {})]), says(provider, "ok")) as api:
        async with open_host(tmp_path, x=server.entry()) as host:
            events = await played(host.tools, api.model(provider))
    assert [(event.step, event.usage.total) for event in of_kind(events, StepFinished)] == [
        (1, 110),
        (2, 110),
    ]
