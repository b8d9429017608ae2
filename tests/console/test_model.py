"""A model in the console: it streams, it calls, its calls are asked about, and it remembers what was said."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.console.support import configure, session_with
from tests.console.tmux_support import SECONDS, tmux_console
from tests.loop.model_server import Calls, ModelServer, Reply, openai_events, results_in, says, serving
from tests.real.processes import until

ASKED = "May it? [once/session/always/NO/cancel]:"


def with_model(machine: Machine, model: ModelServer, **script: Any) -> ScriptedServer:
    settings = {"provider": "openai", "name": "m", "base_url": f"{model.url}/v1"}
    return configure(machine, more={"model": settings}, **script)


def calling(*texts: str) -> list[Reply]:
    """Turns in each of which the model calls `echo`, and then says something."""
    replies: list[Reply] = []
    for number, text in enumerate(texts):
        calls: Calls = [(f"c{number}", "x.echo", {"turn": number, "text": "a\u202eb"})]
        replies += [says("openai", calls=calls), says("openai", text)]
    return replies


def user_messages(body: dict[str, Any]) -> Sequence[str]:
    return [message["content"] for message in body["messages"] if message["role"] == "user"]


async def test_a_conversation_goes_on_and_begins_anew(machine: Machine) -> None:
    replies = [
        says("openai", "Hi **Ada**.\n\nAnd \x1b[31mthat is all"),
        says("openai", "You are Ada."),
        says("openai", "Who?"),
    ]
    with serving(*replies) as model:
        with_model(machine, model)
        async with tmux_console(machine) as screen:
            await screen.shows("openai/m")
            await screen.type("I am Ada\n")
            await screen.shows("Hi **Ada**.")
            await screen.shows("And \\x1b[31mthat is all")
            await screen.shows("1 step, 110 tokens")
            await screen.type("Who am I?\n")
            await screen.shows("You are Ada.")
            assert user_messages(model.bodies[1]) == ["I am Ada", "Who am I?"]
            await screen.type("/clear\n")
            await screen.shows("forgotten")
            await screen.type("And now?\n")
            await screen.shows("Who?")
            assert user_messages(model.bodies[2]) == ["And now?"]


async def test_a_conversation_is_one_search_session_until_it_is_cleared(machine: Machine) -> None:
    def search(text: str) -> list[Reply]:
        found = says("openai", calls=[("c", "mcp_search_tools", {"queries": [text]})])
        return [found, says("openai", "found")]

    def last_result(model: ModelServer) -> str:
        results = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]
        return str(results[-1])

    server = ScriptedServer(machine.home / "record", tools=["echo"])
    queries = ("echo it", "what to echo", "an echo")
    with serving(*(reply for text in queries for reply in search(text))) as model:
        async with session_with(
            machine, {"x": server.entry()}, model=model.model("openai"), tools={"mode": "meta"}
        ) as console:
            await console.session.host.connect("x")
            await console.does("find something")
            assert "x.echo(" in last_result(model)
            await console.does("and more")
            assert "shown before: x.echo" in last_result(model)
            await console.does("/clear")
            await console.does("anew")
            assert "x.echo(" in last_result(model)


@pytest.mark.requirement("NEED-26")
async def test_each_answer_to_an_approval_holds_for_as_long_as_it_says(machine: Machine) -> None:
    with serving(*calling("first", "second", "third", "fourth", "fifth")) as model:
        server = with_model(machine, model)
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            shown = await screen.shows(ASKED)
            assert "An agent wants to call `echo` of `x`." in shown
            assert '"text": "a\\u202eb"' in shown
            await screen.type("no\n")
            await screen.shows("first")
            assert server.calls("echo") == 0
            await screen.type("again\n")
            await screen.shows(re.compile(f"(?s){re.escape(ASKED)}.*{re.escape(ASKED)}"))
            await screen.type("once\n")
            await screen.shows("second")
            assert server.calls("echo") == 1
            assert re.search(r"x/echo  \d\.\d\d s$", screen.text(), re.MULTILINE)
            await screen.type("again\n")
            await screen.shows(re.compile(f"(?s)(.*{re.escape(ASKED)}){{3}}"))
            await screen.type("session\n")
            await screen.shows("third")
            await screen.type("again\n")
            await screen.shows("fourth")
            assert server.calls("echo") == 3
            assert screen.everything().count(ASKED) == 3
        assert "the user denied it" in results_in("openai", model.bodies[1])["c0"]
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            await screen.shows(ASKED)
            await screen.type("always\n")
            await screen.shows("fifth")
            await screen.type("/approve\n")
            await screen.shows("always allowed")


async def test_a_refused_call_tells_the_person_the_command_and_the_model_who_decides(
    machine: Machine,
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    replies = [says("openai", calls=[("c", "x.echo", {})]), says("openai", "I cannot.")]
    with serving(*replies) as model:
        entry = server.entry(trust="untrusted")
        async with session_with(machine, {"x": entry}, model=model.model("openai"), policy={}) as console:
            await console.session.host.connect("x")
            shown = await console.does("go")
    assert "`/mcp review x --allow echo`" in shown
    assert "fairlead review" not in shown
    told = results_in("openai", model.bodies[1])["c"]
    assert "not been reviewed" in told
    assert "fairlead " not in told
    assert "/mcp" not in told
    assert "the user has to decide" in told


async def test_ctrl_c_at_an_approval_ends_the_turn_and_nothing_is_called(machine: Machine) -> None:
    with serving(*calling("never")) as model:
        server = with_model(machine, model)
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            await screen.shows(ASKED)
            await screen.key("C-c")
            await screen.shows("ended, as you wanted")
            await screen.type("/mcp\n")
            await screen.shows(re.compile(r"x +stdio"))
            assert server.calls("echo") == 0
            assert len(model.bodies) == 1


@pytest.mark.requirement("NEED-20")
async def test_ctrl_c_ends_a_turn_and_its_calls_and_the_next_begins_without_it(machine: Machine) -> None:
    calls: Calls = [("c", "x.wait", {})]
    with serving(says("openai", "Let me see.\n", calls), says("openai", "Gladly.")) as model:
        server = with_model(machine, model, tools=["wait"])
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            await screen.shows(ASKED)
            await screen.type("once\n")
            await screen.shows(re.compile(r"x/wait  1  \d+ s"))
            await screen.type("wait!\n")
            await screen.shows("the model is still answering")
            await screen.key("C-c")
            await screen.shows("cancelled: the model")
            await until(lambda: "notifications/cancelled" in server.notes("received"), SECONDS)
            await screen.type("then not\n")
            await screen.shows("Gladly.")
            assert user_messages(model.bodies[1]) == ["then not"]


async def test_what_is_not_whole_yet_is_shown_as_it_comes(machine: Machine) -> None:
    begun, _, _ = openai_events("half a li").rpartition(b'data: {"choices"')  # and the end never comes
    with serving(Reply(body=begun, hangs=True)) as model:
        with_model(machine, model)
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            await screen.shows(re.compile(r"half a li\n>"))
            await screen.type("a draft")
            await screen.shows(re.compile(r"half a li\n> a draft"))
            await screen.key("C-c")
            await screen.shows("cancelled: the model")
            await screen.shows(re.compile(r"half a li\n"))


async def test_a_model_that_cannot_be_had_is_said_and_the_console_goes_on(machine: Machine) -> None:
    with serving(Reply(status=401, body=json.dumps({"error": {"message": "bad key"}}).encode())) as model:
        with_model(machine, model)
        async with tmux_console(machine) as screen:
            await screen.shows("1 ready")
            await screen.type("go\n")
            await screen.shows("bad key")
            await screen.type("/mcp\n")
            await screen.shows(re.compile(r"x +stdio"))
