"""What servers may ask of a person and a model, in both eras: as declared, and no answer is made up."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from fairlead.errors import CallFailed, CallRejected, CallTimedOut, ConnectionLost
from fairlead.events import QuestionAnswered, QuestionAsked, ServerLogged
from fairlead.host.operator import Callbacks, FormAnswer, FormQuestion, SampleRequest, UrlAnswer, UrlQuestion
from tests.conftest import Machine
from tests.host.asking import (
    BOTH_ERAS,
    HANDSHAKE,
    MODERN,
    AskingServer,
    Patient,
    ask,
    form,
    hosting,
    page,
    until,
)

SAMPLE: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
        "maxTokens": 100,
    },
}
ROOTS: dict[str, Any] = {"method": "roots/list"}

ADA = FormAnswer(action="accept", content={"name": "Ada"})


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


class Everybody:
    """A person, a browser and a model who agree to everything, and remember it."""

    def __init__(self, answer: FormAnswer = ADA, words: str = "Hi") -> None:
        self.answer = answer
        self.words = words
        self.forms: list[FormQuestion] = []
        self.urls: list[UrlQuestion] = []
        self.samples: list[SampleRequest] = []
        self.opened: list[str] = []
        self.url_answer: UrlAnswer = "accept"

    def operator(self) -> Callbacks:
        return Callbacks(
            on_form=self.fill_in, on_url=self.agree, on_sample=self.sample, on_open_url=self.open
        )

    async def fill_in(self, question: FormQuestion) -> FormAnswer:
        self.forms.append(question)
        return self.answer

    async def agree(self, question: UrlQuestion) -> UrlAnswer:
        self.urls.append(question)
        return self.url_answer

    async def open(self, url: str) -> bool:
        self.opened.append(url)
        return True

    async def sample(self, request: SampleRequest) -> types.CreateMessageResult:
        self.samples.append(request)
        content = types.TextContent(text=self.words)
        return types.CreateMessageResult(role="assistant", content=content, model="test")


async def answer_of(host: Any, question: dict[str, Any]) -> dict[str, Any]:
    """What the server got for a question: an answer, or in either era the reason why there is none."""
    try:
        return (await ask(host, q=question))["q"]
    except CallFailed as exc:
        return {"message": str(exc)}


# What is declared.


@pytest.mark.requirement("NEED-33", "HARD-48")
async def test_a_host_without_a_person_declares_nothing_and_answers_nothing_in_anybodys_name(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry(elicitation=True, sampling={})) as host:
        for question in (form(), page(), SAMPLE, ROOTS):
            answer = await answer_of(host, question)
            assert "not supported here" in answer["message"]
            assert "action" not in answer
    assert server.declared()
    for capabilities in server.declared():
        assert not capabilities.keys() & {"elicitation", "sampling", "roots"}
    if server.script["version"] == MODERN:
        assert server.heard("subscriptions/listen")


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    ("fields", "declared"),
    [
        ({"trust": "trusted"}, {"form": {}, "url": {}}),
        ({"trust": "untrusted"}, {"url": {}}),
        ({"trust": "untrusted", "elicitation": True}, {"form": {}, "url": {}}),
        ({"trust": "trusted", "elicitation": False}, None),
        ({"trust": "untrusted", "elicitation": False}, None),
    ],
)
async def test_what_a_server_may_ask_follows_from_its_trust_and_its_entry(
    machine: Machine, server: AskingServer, fields: dict[str, Any], declared: dict[str, Any] | None
) -> None:
    people = Everybody()
    entry = server.entry(**fields, allow_tools=["ask"])
    async with hosting(machine, people.operator(), x=entry) as host:
        asked_by_form = await answer_of(host, form())
        asked_by_page = await answer_of(host, page())
        assert "message" in await answer_of(host, SAMPLE)
        assert "message" in await answer_of(host, ROOTS)
    assert {json.dumps(said.get("elicitation")) for said in server.declared()} == {json.dumps(declared)}
    assert not any(said.keys() & {"sampling", "roots"} for said in server.declared())
    assert ("action" in asked_by_form) == bool(people.forms) == ("form" in (declared or {}))
    assert ("action" in asked_by_page) == bool(people.urls) == ("url" in (declared or {}))
    assert not people.samples


@pytest.mark.requirement("NEED-33")
async def test_only_what_the_operator_can_do_is_declared(machine: Machine, server: AskingServer) -> None:
    people = Everybody()
    only_pages = Callbacks(on_url=people.agree)
    async with hosting(machine, only_pages, x=server.entry(elicitation=True, sampling={})) as host:
        assert "message" in await answer_of(host, form())
        assert await answer_of(host, page()) == {"action": "accept"}
    assert all(said["elicitation"] == {"url": {}} for said in server.declared())


# Forms.


@pytest.mark.requirement("HARD-48")
async def test_a_form_is_answered_with_what_the_person_said_and_the_defaults(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry()) as host, host.events() as events:
        answer = await ask(host, q=form("Who \x1b[31mare\u202e you?"))
        assert answer == {"q": {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}}
        asked = await until(events, lambda event: isinstance(event, QuestionAsked))
        answered = await until(events, lambda event: isinstance(event, QuestionAnswered))
    assert asked == QuestionAsked(server_id="x", kind="form")
    assert answered == QuestionAnswered(server_id="x", kind="form", outcome="accept")
    (question,) = people.forms
    assert question.message == "Who are you?"
    assert [field.name for field in question.form.fields] == ["name", "city"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_is_passed_on_as_it_was_said(machine: Machine, server: AskingServer, action: Any) -> None:
    people = Everybody(answer=FormAnswer(action=action, content={"name": "Ada"}))
    async with hosting(machine, people.operator(), x=server.entry()) as host:
        assert await ask(host, q=form()) == {"q": {"action": action}}


@pytest.mark.requirement("HARD-48")
async def test_an_answer_that_does_not_fit_the_form_is_not_sent(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody(answer=FormAnswer(action="accept", content={"city": "Kiel"}))
    async with hosting(machine, people.operator(), x=server.entry()) as host:
        assert await ask(host, q=form()) == {"q": {"action": "cancel"}}


@pytest.mark.requirement("HARD-48")
async def test_a_form_that_asks_for_a_secret_is_shown_to_nobody(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody()
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}}}
    async with hosting(machine, people.operator(), x=server.entry()) as host, host.events() as events:
        answer = await answer_of(host, form(schema=schema))
        answered = await until(events, lambda event: isinstance(event, QuestionAnswered))
    assert "it asks for a secret" in answer["message"]
    assert answered == QuestionAnswered(server_id="x", kind="form", outcome="refused")
    assert not people.forms


async def test_several_questions_at_once_are_all_asked(machine: Machine, server: AskingServer) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry(roots=["."])) as host:
        answers = await ask(host, a=form(), b=page(), c=ROOTS)
    assert answers["a"]["action"] == answers["b"]["action"] == "accept"
    assert [root["uri"] for root in answers["c"]["roots"]] == [machine.project.as_uri()]


async def test_resources_and_prompts_may_be_asked_about_too(machine: Machine, tmp_path: Path) -> None:
    people = Everybody()
    for version in BOTH_ERAS:
        server = AskingServer(tmp_path / version, version=version, questions={"q": form()})
        async with hosting(machine, people.operator(), x=server.entry()) as host:
            assert "Ada" in (await host.resources.read("x", "test://asks")).text
            assert "Ada" in (await host.prompts.get("x", "asks")).messages[0]["content"]["text"]


# Pages.


@pytest.mark.requirement("HARD-48")
async def test_a_page_is_shown_whole_and_opened_only_after_a_yes(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry()) as host:
        assert await ask(host, q=page("https://xn--pple-43d.com/a?b=c#d")) == {"q": {"action": "accept"}}
        (question,) = people.urls
        assert people.opened == [question.url.url] == ["https://xn--pple-43d.com/a?b=c#d"]
        assert question.url.host == "xn--pple-43d.com"
        assert any("punycode" in warning for warning in question.url.warnings)

        for answer in ("decline", "cancel"):
            people.url_answer = answer
            assert await ask(host, q=page()) == {"q": {"action": answer}}
    assert len(people.opened) == 1


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    "url", ["http://example.com/", "file:///etc/passwd", "https://a@b.com/", "javascript:1"]
)
async def test_a_page_nobody_should_open_is_shown_to_nobody(
    machine: Machine, server: AskingServer, url: str
) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry()) as host:
        assert "message" in await answer_of(host, page(url))
    assert not people.urls
    assert not people.opened


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
                await until(events, lambda event: isinstance(event, QuestionAnswered))
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
        ("accept", PAGES, "did not say in time"),
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


# Sampling.


@pytest.mark.requirement("HARD-48")
async def test_a_server_that_may_use_the_model_gets_its_answer(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry(sampling={})) as host:
        answer = (await ask(host, q=SAMPLE))["q"]
    assert answer["content"] == {"type": "text", "text": "Hi"}
    assert all(said["sampling"] == {} for said in server.declared())
    (request,) = people.samples
    assert request.max_tokens == 100


@pytest.mark.requirement("HARD-48")
async def test_sampling_ends_with_its_budget_whatever_is_asked_at_once(
    machine: Machine, server: AskingServer
) -> None:
    people = Everybody(words="x" * 1000)
    questions = {f"q{number}": SAMPLE for number in range(8)}
    async with hosting(machine, people.operator(), x=server.entry(sampling={"max_tokens": 700})) as host:
        if server.script["version"] == MODERN:
            with pytest.raises(CallFailed, match="used up"):
                await ask(host, **questions)
        else:
            answers = await ask(host, **questions)
            assert any("used up" in answer.get("message", "") for answer in answers.values())
    assert 0 < sum(request.max_tokens for request in people.samples) <= 700


async def test_what_a_server_has_the_model_read_counts(machine: Machine, older: AskingServer) -> None:
    people = Everybody()
    long = {"role": "user", "content": {"type": "text", "text": "x" * 4000}}
    question = {"method": "sampling/createMessage", "params": {"messages": [long], "maxTokens": 1}}
    async with hosting(machine, people.operator(), x=older.entry(sampling={"max_tokens": 2500})) as host:
        answers = [(await ask(host, q=question))["q"] for _ in range(3)]
    assert ["message" in answer for answer in answers] == [False, False, True]


async def test_a_model_that_fails_costs_the_server_nothing(machine: Machine, older: AskingServer) -> None:
    async def fail(request: SampleRequest) -> types.CreateMessageResult:
        raise RuntimeError("no model today")

    async with hosting(
        machine, Callbacks(on_sample=fail), x=older.entry(sampling={"max_tokens": 150})
    ) as host:
        answers = [(await ask(host, q=SAMPLE))["q"] for _ in range(3)]
    assert all("could not be put to anybody" in answer["message"] for answer in answers)
    assert all("no model today" not in answer["message"] for answer in answers)


async def test_tools_for_the_model_are_not_taken(machine: Machine, older: AskingServer) -> None:
    people = Everybody()
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    question = {"method": SAMPLE["method"], "params": {**SAMPLE["params"], "tools": [tool]}}
    async with hosting(machine, people.operator(), x=older.entry(sampling={})) as host:
        assert "sampling with tools: not supported here" in (await ask(host, q=question))["q"]["message"]
    assert not people.samples


# Roots and logging.


@pytest.mark.requirement("HARD-48")
async def test_roots_are_those_of_the_entry(machine: Machine, server: AskingServer) -> None:
    (machine.project / "library").mkdir()
    async with hosting(machine, x=server.entry(roots=["library"])) as host:
        answer = (await ask(host, q=ROOTS))["q"]
    assert answer == {"roots": [{"uri": (machine.project / "library").as_uri(), "name": "library"}]}
    assert all(said["roots"] == {} for said in server.declared())


async def test_a_server_logs_what_its_entry_says_and_nothing_else(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry(log_level="warning")) as host, host.events() as events:
        await host.connect("x")
        for level in ("info", "warning", "error"):
            await host.call("x", "log", {"level": level, "data": {"text": f"a \x1b[31m{level}", "n": 1}})
        first = await until(events, lambda event: isinstance(event, ServerLogged))
        second = await until(events, lambda event: isinstance(event, ServerLogged))
    assert first == ServerLogged(
        server_id="x", level="warning", message='{"text":"a \\u001b[31mwarning","n":1}'
    )
    assert isinstance(second, ServerLogged)
    assert second.level == "error"


async def test_a_server_whose_entry_says_nothing_is_not_asked_to_log(
    machine: Machine, server: AskingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        await host.call("x", "log", {"level": "error", "data": "x"})
    assert not server.heard("logging/setLevel")
    assert not any("logLevel" in json.dumps(message) for message in server.heard())


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

    async def fill_in(question: FormQuestion) -> FormAnswer:
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
        answered = await until(events, lambda event: isinstance(event, QuestionAnswered))
        assert answered == QuestionAnswered(server_id="x", kind="form", outcome="withdrawn")
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


async def test_a_server_that_is_replaced_while_a_person_is_asked_finishes_first(
    machine: Machine, server: AskingServer
) -> None:
    person = Patient()
    answers: dict[str, Any] = {}
    async with hosting(machine, Callbacks(on_form=person), x=server.entry()) as host:

        async def ask_patiently() -> None:
            answers.update(await ask(host, q=form()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_patiently)
            await person.asked.wait()
            host.remove("x")
            await anyio.lowlevel.checkpoint()
            person.may_answer.set()
    assert answers["q"]["action"] == "accept"
    assert server.starts == 1


async def test_a_server_is_not_stopped_as_idle_while_a_person_is_asked(
    machine: Machine, server: AskingServer
) -> None:
    async def think(question: FormQuestion) -> FormAnswer:
        await anyio.sleep(0.5)
        return ADA

    async with hosting(machine, Callbacks(on_form=think), x=server.entry(idle_stop_ms=100)) as host:
        assert (await ask(host, q=form()))["q"]["action"] == "accept"
    assert server.starts == 1


async def test_an_operator_that_breaks_breaks_nothing_else(machine: Machine, server: AskingServer) -> None:
    async def break_down(question: FormQuestion) -> FormAnswer:
        raise RuntimeError("a secret of the operator")

    async with hosting(machine, Callbacks(on_form=break_down), x=server.entry()) as host:
        async with host.events() as events:
            answer = await answer_of(host, form())
            answered = await until(events, lambda event: isinstance(event, QuestionAnswered))
        assert "could not be put to anybody" in answer["message"]
        assert "secret" not in json.dumps(answer)
        assert answered == QuestionAnswered(server_id="x", kind="form", outcome="failed")
        assert (await host.call("x", "echo", {})).text == "{}"
        assert host.status()[0].connects == 1


# Rounds of the modern era; `tests/connection/test_rounds.py` has more.


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
        with pytest.raises(CallFailed, match="asked 10 times") as failed:
            await host.call("x", "ask", {"questions": {"q": form()}, "rounds": 1000})
    assert failed.value.delivery == "done"
    assert len(people.forms) == 10
