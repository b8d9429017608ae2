"""What servers may ask of a person and a model, in both eras: as declared, and no answer is made up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from fairlead.config.secrets.masking import SECRETS
from fairlead.errors import CallFailed
from fairlead.events import ElicitationComplete, ElicitationRequest, ServerLogged
from fairlead.host.operator import Callbacks, FormAnswer, SampleRequest
from tests.conftest import Machine
from tests.host.asking import (
    BOTH_ERAS,
    HANDSHAKE,
    MODERN,
    AskingServer,
    Everybody,
    answer_of,
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


@pytest.fixture(params=BOTH_ERAS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> AskingServer:
    """The asking server, in each era in turn."""
    return AskingServer(tmp_path / "record", version=request.param)


@pytest.fixture
def older(tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=HANDSHAKE)


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


async def test_a_person_is_told_once_of_questions_that_their_configuration_keeps_from_them(
    machine: Machine, server: AskingServer
) -> None:
    told: list[tuple[str, str]] = []

    def hear(server_id: str, words: str) -> None:
        told.append((server_id, words))

    operator = replace(Everybody().operator(), on_notify=hear)
    async with hosting(machine, operator, x=server.entry(elicitation=False)) as host:
        for question in (form(), form(), page()):
            assert "not supported here" in (await answer_of(host, question))["message"]
    assert [(server_id, "by a form" in words, "on a page" in words) for server_id, words in told] == [
        ("x", True, False),
        ("x", False, True),
    ]
    assert all('`"elicitation": true`' in words for _, words in told)


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
        asked = await until(events, lambda event: isinstance(event, ElicitationRequest))
        answered = await until(events, lambda event: isinstance(event, ElicitationComplete))
    assert asked == ElicitationRequest(server_id="x", kind="form")
    assert answered == ElicitationComplete(server_id="x", kind="form", outcome="accept")
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
        answered = await until(events, lambda event: isinstance(event, ElicitationComplete))
    assert "it asks for a secret" in answer["message"]
    assert answered == ElicitationComplete(server_id="x", kind="form", outcome="refused")
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


@pytest.mark.requirement("HARD-61")
@pytest.mark.requirement("HARD-62")
async def test_what_a_server_wants_a_model_to_read_is_cleaned_and_masked(
    machine: Machine, server: AskingServer
) -> None:
    secret = "Value-0815-of-a-Header"
    SECRETS.learn(secret)
    text = f"Hel\u200blo\ufe01 {secret} {secret.encode().hex()}"
    params = {**SAMPLE["params"], "systemPrompt": text}
    params["messages"] = [{"role": "user", "content": {"type": "text", "text": text}}]
    people = Everybody()
    async with hosting(machine, people.operator(), x=server.entry(sampling={})) as host:
        await ask(host, q={**SAMPLE, "params": params})
    (request,) = people.samples
    (message,) = request.params.messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == request.params.system_prompt == "Hello ••• •••"


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
    assert all("request could not be answered" in answer["message"] for answer in answers)
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
