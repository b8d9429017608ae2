"""What a server wants a model to read is bounded as results are, and says what was left out."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from fairlead.host.server_peer import MAX_MEDIA_BYTES, MAX_OTHER_BYTES, make_safe
from tests.conftest import Machine
from tests.host.asking import HANDSHAKE, AskingServer, Everybody, ask, hosting

pytestmark = pytest.mark.requirement("HARD-66")

LIMIT = 10_000
IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(750_000)).decode()}


def text(said: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": said}}


def request(*messages: dict[str, Any], **fields: Any) -> types.CreateMessageRequestParams:
    return types.CreateMessageRequestParams.model_validate(
        {"messages": [*messages] or [text("hi")], "maxTokens": 10, **fields}
    )


def size_of(params: types.CreateMessageRequestParams) -> int:
    return len(params.model_dump_json(by_alias=True, exclude_none=True))


@pytest.mark.parametrize(
    "params",
    [
        request(text("x" * 4_000_000)),
        request(*(text("y" * 9_000) for _ in range(100))),
        request(systemPrompt="z" * 1_000_000),
        request(text("\U0001f600" * 500_000)),
        request(text('"' * 1_000_000)),
        request({"role": "user", "content": [text("w" * 6_000)["content"]] * 50}),
        request(text("a" * 6_000), systemPrompt="b" * 6_000),
        request(text("c" * LIMIT + "d")),
    ],
)
async def test_text_beyond_the_budget_is_left_out_and_said_to_be(
    params: types.CreateMessageRequestParams,
) -> None:
    safe, left_out = await make_safe(params, LIMIT)
    assert left_out
    shown = safe.model_dump_json()
    assert "left out by Fairlead" in shown
    assert size_of(safe) <= 2 * LIMIT + MAX_OTHER_BYTES
    assert len(safe.messages) == len(params.messages)


@pytest.mark.parametrize(
    "fields",
    [
        {"stopSequences": ["s" * 1_000_000]},
        {"stopSequences": ["s"] * 40_000},
        {"metadata": {"a": "m" * 1_000_000}},
        {"metadata": {"k" * 200_000: 1}},
        {"_meta": {"a": "m" * 200_000}},
        {"modelPreferences": {"hints": [{"name": "n" * 200_000}]}},
        {"messages": [text("")] * 5_000},
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": {"type": "tool_use", "id": "1", "name": "n", "input": {"a": "b" * 200_000}},
                }
            ]
        },
        {"messages": [{"role": "user", "content": {**IMAGE, "data": "", "mimeType": "m" * 100_000}}]},
        {"messages": [{**text("x"), "_meta": {"a": "b" * 100_000}}]},
    ],
)
async def test_what_cannot_be_cut_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="more than 65,536 bytes"):
        await make_safe(request(**fields), LIMIT)


async def test_media_have_a_budget_of_their_own() -> None:
    image = {"role": "user", "content": IMAGE}
    safe, left_out = await make_safe(request(image, text("what is it?"), image), LIMIT)
    assert [message.content_as_list[0].type for message in safe.messages] == ["image", "text", "text"]
    assert left_out == [f"an image of {len(IMAGE['data']):,} bytes"]
    assert size_of(safe) <= MAX_MEDIA_BYTES + LIMIT


async def test_a_request_within_the_budget_is_as_it_came() -> None:
    params = request(text("x" * 9_000), systemPrompt="Be brief.", stopSequences=["\n"], metadata={"a": 1})
    safe, left_out = await make_safe(params, LIMIT)
    assert (safe, left_out) == (params, [])


async def test_an_operator_is_told_what_a_server_had_left_out(machine: Machine, tmp_path: Path) -> None:
    told: list[str] = []
    people = Everybody()
    older = AskingServer(tmp_path / "record", version=HANDSHAKE)

    def hear(_server_id: str, words: str) -> None:
        told.append(words)

    operator = replace(people.operator(), on_notify=hear)
    question: dict[str, Any] = {
        "method": "sampling/createMessage",
        "params": {"messages": [text("x" * 500_000)], "maxTokens": 1},
    }
    entry = older.entry(sampling={"max_tokens": 1_000_000}, max_result_bytes=2_000)
    async with hosting(machine, operator, x=entry) as host:
        answer = (await ask(host, q=question))["q"]
        refused = {**question, "params": {**question["params"], "stopSequences": ["s" * 100_000]}}
        assert "65,536 bytes" in (await ask(host, q=refused))["q"]["message"]
    assert answer["content"]["text"]
    (sample,) = people.samples
    (message,) = sample.params.messages
    assert isinstance(message.content, types.TextContent)
    assert len(message.content.text) < 2_100
    assert "498,000 bytes of text left out by Fairlead" in message.content.text
    assert any("498,000 bytes" in words and "max_result_bytes" in words for words in told)
