"""What servers ask while a call is under way: how long that may take, and what becomes of it in the end."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from fairlead.errors import CallFailed, CallRejected, CallTimedOut, ConnectionLost
from fairlead.events import ElicitationComplete
from fairlead.host.operator import Callbacks, FormAnswer, FormRequest
from tests.conftest import Machine
from tests.host.asking import (
    ADA,
    BOTH_ERAS,
    HANDSHAKE,
    MODERN,
    AskingServer,
    Everybody,
    Patient,
    answer_of,
    ask,
    form,
    hosting,
    page,
    until,
)


@pytest.fixture(params=BOTH_ERAS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> AskingServer:
    """The asking server, in each era in turn."""
    return AskingServer(tmp_path / "record", version=request.param)


@pytest.fixture
def older(tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=HANDSHAKE)


@pytest.fixture
def modern(tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=MODERN)


# Time.


async def test_a_question_stops_the_clock_of_the_call_that_asks_and_of_no_other_servers(
    machine: Machine, server: AskingServer, tmp_path: Path
) -> None:
    person = Patient()
    slow = AskingServer(tmp_path / "slow")
    limits = {"request_timeout_ms": 1000, "max_request_ms": 1200}
    async with hosting(
        machine, Callbacks(on_form=person), x=server.entry(**limits), y=slow.entry(**limits)
    ) as host:
        assert await host.connect("x", "y") == {}
        answers: dict[str, Any] = {}

        async def ask_in_peace() -> None:
            answers.update(await ask(host, q=form()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_in_peace)
            await person.asked.wait()
            assert (await host.call("y", "echo", {"a": 1})).text == '{"a": 1}'
            for _ in range(2):
                with pytest.raises(CallTimedOut):
                    await host.call("y", "progress")
            person.may_answer.set()
    assert answers["q"]["action"] == "accept"


async def test_two_servers_ask_at_the_same_time(machine: Machine, tmp_path: Path) -> None:
    people = {"x": Patient(), "y": Patient()}

    async def fill_in(question: FormRequest) -> FormAnswer:
        return await people[question.server_id](question)

    entries = {
        name: AskingServer(tmp_path / name, version=version).entry()
        for name, version in zip("xy", BOTH_ERAS, strict=True)
    }
    async with (
        hosting(machine, Callbacks(on_form=fill_in), **entries) as host,
        anyio.create_task_group() as tasks,
    ):
        for name in people:
            tasks.start_soon(lambda name: ask(host, name, q=form()), name)
        for person in people.values():
            await person.asked.wait()
        for person in people.values():
            person.may_answer.set()


# Giving up.


async def test_giving_up_a_call_withdraws_its_question(machine: Machine, server: AskingServer) -> None:
    person = Patient()
    async with hosting(machine, Callbacks(on_form=person), x=server.entry()) as host, host.events() as events:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ask(host, q=form()))
            await person.asked.wait()
            tasks.cancel_scope.cancel()
        await person.withdrawn.wait()
        answered = await until(events, lambda event: isinstance(event, ElicitationComplete))
        assert answered == ElicitationComplete(server_id="x", kind="form", outcome="withdrawn")
        assert (await host.call("x", "echo", {})).text == "{}"
        assert host.status()[0].connects == 1


async def test_giving_up_one_call_leaves_what_another_may_have_asked(
    machine: Machine, older: AskingServer
) -> None:
    person = Patient()
    answers: dict[str, Any] = {}
    under_way = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        under_way.set()

    async with hosting(machine, Callbacks(on_form=person), x=older.entry()) as host:

        async def ask_patiently() -> None:
            answers.update(await ask(host, q=form()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_patiently)
            await person.asked.wait()
            async with anyio.create_task_group() as hasty:
                hasty.start_soon(lambda: host.call("x", "progress", on_progress=progressed))
                await under_way.wait()
                hasty.cancel_scope.cancel()
            assert not person.withdrawn.is_set()
            person.may_answer.set()
    assert answers["q"]["action"] == "accept"


async def test_a_server_can_take_its_question_back(machine: Machine, older: AskingServer) -> None:
    person = Patient()
    async with (
        hosting(machine, Callbacks(on_form=person), x=older.entry()) as host,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: ask(host, q=form()))
        await person.asked.wait()
        await host.call("x", "take_back")
        await person.withdrawn.wait()
        tasks.cancel_scope.cancel()
    assert not [message for message in older.heard() if "method" not in message]


async def test_a_server_that_dies_while_a_person_is_asked_is_no_concern_of_theirs_any_more(
    machine: Machine, older: AskingServer
) -> None:
    person = Patient()
    async with hosting(machine, Callbacks(on_form=person), x=older.entry()) as host:

        async def ask_in_vain() -> None:
            with pytest.raises(ConnectionLost) as lost:
                await ask(host, q=form())
            assert lost.value.delivery == "unknown"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_in_vain)
            await person.asked.wait()
            os.kill(older.notes("started")[-1], signal.SIGKILL)
        await person.withdrawn.wait()


async def test_the_answer_goes_to_whoever_the_modern_server_is_by_then(
    machine: Machine, modern: AskingServer
) -> None:
    person = Patient()
    answers: dict[str, Any] = {}
    async with hosting(machine, Callbacks(on_form=person), x=modern.entry()) as host:

        async def ask_patiently() -> None:
            answers.update(await ask(host, q=form()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_patiently)
            await person.asked.wait()
            async with host.events() as events:
                os.kill(modern.notes("started")[-1], signal.SIGKILL)
                await until(events, lambda event: "error" in repr(event))
            person.may_answer.set()
    assert answers["q"]["action"] == "accept"
    assert modern.starts == 2


async def test_a_question_may_come_when_a_call_is_sent_again(machine: Machine, server: AskingServer) -> None:
    async with hosting(machine, Everybody().operator(), x=server.entry()) as host:
        with pytest.raises(ConnectionLost):
            await host.call("x", "crash")
        assert (await ask(host, q=form()))["q"]["action"] == "accept"
    assert server.starts == 2


async def test_a_server_that_is_removed_while_a_person_is_asked_gets_no_answer(
    machine: Machine, server: AskingServer
) -> None:
    person = Patient()
    answers: dict[str, Any] = {}
    errors: list[CallFailed] = []
    async with hosting(machine, Callbacks(on_form=person), x=server.entry()) as host:

        async def ask_patiently() -> None:
            try:
                answers.update(await ask(host, q=form()))
            except CallFailed as exc:
                errors.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_patiently)
            await person.asked.wait()
            host.remove("x")
            await anyio.lowlevel.checkpoint()
            person.may_answer.set()
    if answers:  # a handshake server, whose call goes on
        assert "disabled or changed" in answers["q"]["message"]
    else:
        assert "disabled or changed" in str(errors[0])
        assert errors[0].delivery == "done"
    assert server.starts == 1


async def test_a_server_is_not_stopped_as_idle_while_a_person_is_asked(
    machine: Machine, server: AskingServer
) -> None:
    async def think(question: FormRequest) -> FormAnswer:
        await anyio.sleep(0.5)
        return ADA

    async with hosting(machine, Callbacks(on_form=think), x=server.entry(idle_stop_ms=100)) as host:
        assert (await ask(host, q=form()))["q"]["action"] == "accept"
    assert server.starts == 1


async def test_an_operator_that_breaks_breaks_nothing_else(machine: Machine, server: AskingServer) -> None:
    async def break_down(question: FormRequest) -> FormAnswer:
        raise RuntimeError("a secret of the operator")

    async with hosting(machine, Callbacks(on_form=break_down), x=server.entry()) as host:
        async with host.events() as events:
            answer = await answer_of(host, form())
            answered = await until(events, lambda event: isinstance(event, ElicitationComplete))
        assert "request could not be answered" in answer["message"]
        assert "secret" not in json.dumps(answer)
        assert answered == ElicitationComplete(server_id="x", kind="form", outcome="failed")
        assert (await host.call("x", "echo", {})).text == "{}"
        assert host.status()[0].connects == 1


# Rounds of the modern era; `tests/connection/test_elicitation.py` has more.


async def test_the_state_of_a_round_goes_back_byte_for_byte(machine: Machine, modern: AskingServer) -> None:
    state = r'"\u0041\/é\ud83d\ude00\u0000 \"{}"'
    async with hosting(machine, Everybody().operator(), x=modern.entry()) as host:
        await host.call("x", "ask", {"questions": {"q": form()}, "state": state, "rounds": 3})
    lines = [line for line in modern.notes("heard") if '"inputResponses"' in line]
    assert len(lines) == 3
    assert all(f'"requestState":{state}' in line for line in lines)
    ids = [message["id"] for message in modern.heard("tools/call")]
    assert len({*ids}) == len(ids) == 4


async def test_a_server_that_asks_for_ever_is_asked_no_more(machine: Machine, modern: AskingServer) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=modern.entry()) as host:
        with pytest.raises(CallFailed, match="requested input 10 times") as failed:
            await host.call("x", "ask", {"questions": {"q": form()}, "rounds": 1000})
    assert failed.value.delivery == "done"
    assert len(people.forms) == 10


# Pages to be visited before a call is carried out.


PAGES = [page()["params"], page("https://example.com/two", "e2")["params"]]


async def test_a_call_that_wants_pages_visited_first_is_sent_again_once_they_are_done(
    machine: Machine, older: AskingServer
) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=older.entry()) as host:

        async def finish_on_the_pages() -> None:
            for elicitation_id in ("unknown", "e1", "e2"):
                await host.call("x", "complete", {"elicitationId": elicitation_id})

        async with anyio.create_task_group() as tasks, host.events() as events:
            tasks.start_soon(_call_pages, host, {"pages": PAGES})
            for _ in PAGES:
                await until(events, lambda event: isinstance(event, ElicitationComplete))
            assert _calls(older, "pages") == 1
            tasks.start_soon(finish_on_the_pages)
    assert [question.url.url for question in people.urls] == [found["url"] for found in PAGES]
    assert people.opened == [found["url"] for found in PAGES]
    assert _calls(older, "pages") == 2


async def _call_pages(host: Any, arguments: dict[str, Any]) -> None:
    assert (await host.call("x", "pages", arguments)).text == "carried out"


def _calls(server: AskingServer, tool: str) -> int:
    return sum(message["params"]["name"] == tool for message in server.heard("tools/call"))


async def test_pages_that_are_done_before_the_person_answered_count(
    machine: Machine, older: AskingServer
) -> None:
    async with hosting(machine, Everybody().operator(), x=older.entry()) as host:
        await _call_pages(host, {"pages": PAGES, "done": True})
    assert _calls(older, "pages") == 2


async def test_a_call_that_wants_pages_for_ever_is_repeated_once(
    machine: Machine, older: AskingServer
) -> None:
    async with hosting(machine, Everybody().operator(), x=older.entry()) as host:
        with pytest.raises(CallRejected) as rejected:
            await host.call("x", "pages", {"pages": PAGES, "done": True, "always": True})
    assert rejected.value.rpc_code == types.URL_ELICITATION_REQUIRED
    assert _calls(older, "pages") == 2


@pytest.mark.requirement("NEED-33")
@pytest.mark.parametrize(
    ("answer", "pages", "reason"),
    [
        ("decline", PAGES, "the answer was `decline`"),
        ("cancel", PAGES, "the answer was `cancel`"),
        (None, PAGES, "not supported here"),
        ("accept", PAGES, "did not report completion in time"),
        ("accept", [], "it names no pages"),
        ("accept", [{"mode": "url"}], "it names no pages"),
        ("accept", PAGES[:1] * 11, "it names no pages, or more than 10"),
    ],
)
async def test_a_call_whose_pages_were_not_visited_fails_and_says_why(
    machine: Machine, older: AskingServer, answer: Any, pages: list[dict[str, Any]], reason: str
) -> None:
    people = Everybody()
    people.url_answer = answer
    operator = people.operator() if answer else Callbacks()
    async with hosting(machine, operator, x=older.entry(max_request_ms=1500)) as host:
        with pytest.raises(CallRejected, match="wants a page visited first") as rejected:
            await host.call("x", "pages", {"pages": pages, "always": True})
    assert reason in str(rejected.value)
    assert _calls(older, "pages") == 1
