"""Rounds of questions: answered, the state handed back as it came, and not without end."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import msgspec
import pytest

from fairlead.connection.elicitation import (
    MAX_INPUT_REQUESTS,
    MAX_ROUNDS,
    ElicitationRefused,
    TooManyRounds,
    answer_rounds,
    wants_input,
)
from fairlead.connection.link import open_session
from fairlead.connection.outcomes import AnswerUnreadable
from fairlead.connection.peer import ClientPeer, RefusingPeer, refusal
from fairlead.connection.session import Session
from fairlead.connection.transport.memory import MemoryDispatcher
from tests.fixtures.sdk_stdio import make_server

SECONDS = 30

QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}
DONE = msgspec.Raw(b'{"content": []}')


class Ada(ClientPeer):
    """Answers every form, with her name."""

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def capabilities(self) -> types.ClientCapabilities:
        return types.ClientCapabilities()

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(self, params: types.CreateMessageRequestParams) -> types.ErrorData:
        return refusal("sampling")

    async def list_roots(self) -> types.ListRootsResult | types.ErrorData:
        raise RuntimeError("a secret of hers")

    def handle_log(self, params: types.LoggingMessageNotificationParams) -> None:
        return

    def handle_update(self, uri: str) -> None:
        return

    def handle_completion(self, elicitation_id: str) -> None:
        return


class Exchange:
    """A server's answers, one for each time the request is sent, and what was sent along."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = [*answers]
        self.sent: list[Mapping[str, Any]] = []

    async def send(self, more: Mapping[str, Any]) -> msgspec.Raw:
        self.sent.append(more)
        return msgspec.Raw(self._answers.pop(0)) if self._answers else DONE


@asynccontextmanager
async def talking(peer: ClientPeer | None = None) -> AsyncGenerator[Session]:
    with anyio.fail_after(SECONDS):
        async with open_session(
            [lambda: MemoryDispatcher(make_server())],
            probe=True,
            seconds=SECONDS,
            peer=peer or Ada(),
            log_level=None,
            on_message=lambda _: None,
        ) as session:
            yield session


def asking(state: str | None = None, /, **questions: Any) -> bytes:
    """A result that asks. The state is JSON, and stays as it is written here."""
    fields = ['"resultType": "input_required"']
    if questions:
        fields.append(f'"inputRequests": {msgspec.json.encode(questions).decode()}')
    if state is not None:
        fields.append(f'"requestState": {state}')
    return f"{{{', '.join(fields)}}}".encode()


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (asking(q=QUESTION), True),
        (b'{"resultType":"input_required","requestState":"s"}', True),
        (b'{"content": []}', False),
        (b'{"resultType": "complete", "content": [{"type": "text", "text": "input_required"}]}', False),
        (b'{"content": [{"resultType": "input_required"}]}', False),
        (b'{"task": {"status": "input_required"}}', False),
        (b'{"resultType": 1, "x": "input_required"}', False),
    ],
)
def test_a_question_is_told_from_a_result_by_its_tag(result: bytes, wanted: bool) -> None:
    assert wants_input(msgspec.Raw(result)) == wanted


@pytest.mark.parametrize(
    "state",
    [
        '""',
        '"plain"',
        r'"\u0041\/\b\f\n\r\t\\\""',
        r'"\ud83d\ude00 \u0000"',
        '"é 😀"',
        '"{\\"a\\": 1.0e+2}"',
    ],
)
async def test_the_state_goes_back_as_the_bytes_that_came(state: str) -> None:
    exchange = Exchange(asking(state), asking(state, q=QUESTION))
    async with talking() as session:
        await answer_rounds(msgspec.Raw(asking(state, q=QUESTION)), session, exchange.send)
    assert [bytes(more["requestState"]) for more in exchange.sent] == [state.encode()] * 3
    assert ["inputResponses" in more for more in exchange.sent] == [True, False, True]
    assert msgspec.json.encode(exchange.sent[0]["requestState"]) == state.encode()


async def test_answers_go_back_under_the_keys_of_their_questions() -> None:
    exchange = Exchange()
    async with talking() as session:
        result = await answer_rounds(msgspec.Raw(asking(a=QUESTION, b=QUESTION)), session, exchange.send)
    assert result is DONE
    answer = {"action": "accept", "content": {"name": "Ada"}}
    assert exchange.sent == [{"inputResponses": {"a": answer, "b": answer}}]


async def test_a_state_that_is_null_is_none() -> None:
    exchange = Exchange()
    async with talking() as session:
        await answer_rounds(msgspec.Raw(asking("null", q=QUESTION)), session, exchange.send)
    assert exchange.sent[0].keys() == {"inputResponses"}


async def test_each_round_has_the_state_of_its_own_question_and_no_other() -> None:
    exchange = Exchange(asking('"two"', q=QUESTION), asking(q=QUESTION))
    async with talking() as session:
        await answer_rounds(msgspec.Raw(asking('"one"', q=QUESTION)), session, exchange.send)
    assert [bytes(more.get("requestState", b"")) for more in exchange.sent] == [b'"one"', b'"two"', b""]


async def test_rounds_end() -> None:
    exchange = Exchange(*[asking(q=QUESTION)] * 100)
    async with talking() as session:
        with pytest.raises(TooManyRounds) as failed:
            await answer_rounds(msgspec.Raw(asking(q=QUESTION)), session, exchange.send)
    assert len(exchange.sent) == MAX_ROUNDS == 10
    assert failed.value.delivery == "done"


async def test_a_question_nobody_may_be_asked_ends_the_request() -> None:
    exchange = Exchange()
    async with talking(RefusingPeer()) as session:
        with pytest.raises(ElicitationRefused, match="not supported here") as failed:
            await answer_rounds(msgspec.Raw(asking(a=QUESTION, b=QUESTION)), session, exchange.send)
    assert exchange.sent == []
    assert failed.value.delivery == "done"


async def test_a_peer_that_breaks_ends_the_request_with_a_clear_word() -> None:
    first = msgspec.Raw(asking(q={"method": "roots/list"}))
    async with talking() as session:
        with pytest.raises(ElicitationRefused, match="request could not be answered"):
            await answer_rounds(first, session, Exchange().send)


async def test_more_questions_than_anybody_would_answer_are_asked_of_nobody() -> None:
    many = asking(**{f"q{number}": QUESTION for number in range(MAX_INPUT_REQUESTS + 1)})
    async with talking() as session:
        with pytest.raises(ElicitationRefused, match="65 requests for input at once"):
            await answer_rounds(msgspec.Raw(many), session, Exchange().send)


@pytest.mark.parametrize(
    "result",
    [
        asking(),
        asking("1", q=QUESTION),
        asking("{}"),
        asking(q={"method": "tools/call"}),
        asking(q=1),
        b'{"resultType": "input_required", "inputRequests": []}',
    ],
)
async def test_a_question_that_makes_no_sense_is_an_error(result: bytes) -> None:
    exchange = Exchange()
    async with talking() as session:
        with pytest.raises(AnswerUnreadable):
            await answer_rounds(msgspec.Raw(result), session, exchange.send)
    assert exchange.sent == []
