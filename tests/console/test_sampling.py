"""A server that wants the model's word gets it when the person at the prompt lets it, and no other way."""

from typing import Any

import pytest

from fairlead.console.hosting import PromptOperator
from tests.conftest import Machine
from tests.console.support import TypedLines
from tests.host.asking import BOTH_ERAS, AskingServer, answer_of, hosting
from tests.loop.model_server import ModelServer, refuses, says, serving


def question(content: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    said = {"role": "user", "content": content or {"type": "text", "text": "Why?\x1b[31m"}}
    return {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 500, **params}}


def server(machine: Machine, version: str = BOTH_ERAS[0]) -> dict[str, Any]:
    return AskingServer(machine.home / "record", version=version).entry(sampling={"max_tokens": 1000})


def person(api: ModelServer, *answers: str) -> PromptOperator:
    operator = PromptOperator(TypedLines(answers))
    operator.take_model(api.model("openai", max_output_tokens=300))
    return operator


@pytest.mark.parametrize("version", BOTH_ERAS)
async def test_the_question_is_shown_and_the_model_answers_when_the_person_agrees(
    machine: Machine, version: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(says("openai", "Because.")) as api:
        async with hosting(machine, person(api, "once"), x=server(machine, version)) as host:
            answer = await answer_of(host, question(systemPrompt="Be brief."))
    assert answer["content"] == {"type": "text", "text": "Because."}
    assert (answer["model"], answer["stopReason"]) == ("m", "endTurn")
    shown = capfd.readouterr().err
    assert "`x` wants to ask your model, for up to 500 tokens." in shown
    assert "  | Be brief." in shown
    assert "  | Why?\n" in shown
    (body,) = api.bodies
    assert body["messages"][0]["content"] == "Be brief."
    assert body["max_tokens"] == 300
    assert "tools" not in body


async def test_a_yes_for_the_session_is_asked_for_once_and_a_yes_for_once_each_time(machine: Machine) -> None:
    with serving(says("openai", "Because.")) as api:
        operator = person(api, "once", "session")
        async with hosting(machine, operator, x=server(machine)) as host:
            for _ in range(4):
                assert "content" in await answer_of(host, question(maxTokens=100))
    assert len(api.bodies) == 4


@pytest.mark.parametrize("answers", [["no"], [""], []])
async def test_a_person_who_says_no_or_nothing_has_the_model_not_asked(
    machine: Machine, answers: list[str]
) -> None:
    with serving(says("openai", "Because.")) as api:
        async with hosting(machine, person(api, *answers), x=server(machine)) as host:
            assert "the user rejected it" in (await answer_of(host, question()))["message"]
    assert not api.bodies


async def test_what_is_wrong_with_the_model_is_said_to_the_person_alone(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(refuses(401, "a bad key")) as api:
        async with hosting(machine, person(api, "session"), x=server(machine)) as host:
            for _ in range(3):  # more often than the tokens would last, if they were spent
                message = (await answer_of(host, question()))["message"]
                assert "the sampling request failed" in message
                assert "key" not in message
    assert "a bad key" in capfd.readouterr().err


async def test_what_is_not_text_is_not_put_to_the_model(machine: Machine) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    with serving(says("openai", "Because.")) as api:
        async with hosting(machine, person(api, "once"), x=server(machine)) as host:
            assert "the sampling request failed" in (await answer_of(host, question(image)))["message"]
    assert not api.bodies


async def test_without_a_model_no_server_is_told_that_it_could_ask(machine: Machine) -> None:
    x = AskingServer(machine.home / "record")
    operator = PromptOperator(TypedLines([]))
    async with hosting(machine, operator, x=x.entry(sampling={})) as host:
        await host.connect("x")
        assert all("sampling" not in declared for declared in x.declared())
