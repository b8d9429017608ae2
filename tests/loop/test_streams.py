"""What APIs stream, as OpenAI and Anthropic do it and as others do."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loop.anthropic import Anthropic, BlockReader
from fairlead.loop.events import Usage
from fairlead.loop.openai import ChunkReader, OpenAI
from fairlead.loop.provider import ChatModel, Complaint, ModelTurn

Call = dict[str, Any]


def call(name: str, arguments: Any, **rest: Any) -> Call:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **rest}


def openai_turn(*deltas: dict[str, Any], finish: str = "stop", **chunk: Any) -> ModelTurn:
    reader = ChunkReader()
    for delta in deltas:
        reader.feed(json.dumps({"choices": [{"delta": delta}]}).encode())
    assert not reader.whole
    reader.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": finish}], **chunk}).encode())
    assert reader.whole
    return reader.turn()


WHOLE = json.dumps({"path": "é"})


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([[call("a", WHOLE, index=0, id="1"), call("b", "{}", index=1, id="2")]], id="at once"),
        pytest.param(
            [[call("a", WHOLE, index=0, id="1")], [call("b", "{}", index=0, id="2")]], id="one index"
        ),
        pytest.param([[call("a", WHOLE, id="1")], [call("b", "{}", id="2")]], id="no index"),
        pytest.param([[call("a", WHOLE)], [call("b", "{}")]], id="no index and no id"),
        pytest.param([[call("a", WHOLE, index=0)], [call("b", "{}", index=0)]], id="one index and no id"),
        pytest.param([[call("a", {"path": "é"}, id="1")], [call("b", {}, id="2")]], id="objects"),
        pytest.param([[call("a", WHOLE, index=0, id="1")], [call("b", None, index=1, id="2")]], id="nothing"),
        pytest.param(
            [
                [call("a", "", index=0, id="1")],
                [{"index": 0, "function": {"arguments": WHOLE[:5]}}],
                [{"index": 0, "id": "1", "function": {"name": "a", "arguments": WHOLE[5:]}}],
                [call("b", "", index=1, id="2")],
                [{"index": 1, "id": "", "function": {"name": None, "arguments": "{}"}}],
            ],
            id="in pieces, some with the id again",
        ),
        pytest.param(
            [
                [call("a", "", id="1")],
                [{"function": {"arguments": WHOLE[:5]}}],
                [{"function": {"arguments": WHOLE[5:]}}],
                [call("b", "", id="2")],
            ],
            id="in pieces without an index",
        ),
        pytest.param(
            [
                [call("a", "", index=0, id="1")],
                [call("b", "", index=1, id="2")],
                [
                    {"index": 0, "function": {"arguments": WHOLE}},
                    {"index": 1, "function": {"arguments": "{}"}},
                ],
            ],
            id="interleaved",
        ),
    ],
)
def test_calls_are_understood_however_a_server_sends_them(deltas: list[list[Call]]) -> None:
    turn = openai_turn(*({"tool_calls": calls} for calls in deltas))
    assert [(wanted.name, wanted.arguments) for wanted in turn.calls] == [("a", {"path": "é"}), ("b", {})]
    ids = [wanted.call_id for wanted in turn.calls]
    assert len({*ids}) == 2
    assert all(ids)
    assert [sent["id"] for sent in turn.message["tool_calls"]] == ids
    assert [json.loads(sent["function"]["arguments"]) for sent in turn.message["tool_calls"]] == [
        {"path": "é"},
        {},
    ]
    assert turn.message["content"] is None


@pytest.mark.parametrize("arguments", ["{", "[]", "1", '{"a": }'])
def test_arguments_that_are_none_stay_out_of_the_conversation(arguments: str) -> None:
    turn = openai_turn({"tool_calls": [call("a", arguments, id="1")]})
    assert turn.calls[0].arguments is None
    assert turn.message["tool_calls"][0]["function"] == {"name": "a", "arguments": "{}"}


def test_what_an_api_keeps_with_a_call_goes_back_to_it() -> None:
    turn = openai_turn({"tool_calls": [call("a", "{}", id="1", extra_content={"signature": "x"})]})
    assert turn.message["tool_calls"][0]["extra_content"] == {"signature": "x"}


def test_thoughts_are_not_what_a_model_says() -> None:
    turn = openai_turn({"reasoning_content": "hm"}, {"content": "yes", "reasoning": "hm"}, {"content": None})
    assert (turn.text, turn.message) == ("yes", {"role": "assistant", "content": "yes"})


def test_an_answer_that_is_not_streamed_is_one_too() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [call("a", "{}", id="1")]}
    reader = ChunkReader()
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    assert reader.feed(json.dumps(body).encode()) == "hi"
    assert reader.whole
    assert (reader.turn().calls[0].name, reader.turn().usage) == ("a", Usage(input_tokens=3))


@pytest.mark.parametrize(
    "usage", [None, [], {"prompt_tokens": None}, {"prompt_tokens": "1"}, {"prompt_tokens_details": None}]
)
def test_odd_counts_are_no_reason_to_fail(usage: Any) -> None:
    assert openai_turn({"content": "x"}, usage=usage).usage == Usage()


def test_the_length_of_an_answer_is_said_in_the_word_each_api_knows() -> None:
    own = ChatModel(provider="openai", name="m", max_output_tokens=9)
    other = ChatModel(provider="openai", name="m", max_output_tokens=9, base_url="http://localhost:8000/v1/")
    assert OpenAI().request(own, "", [], [])["max_completion_tokens"] == 9
    assert OpenAI().request(other, "", [], [])["max_tokens"] == 9
    assert OpenAI().url(other) == "http://localhost:8000/v1/chat/completions"
    assert Anthropic().request(own, "", [], [])["max_tokens"] == 9
    assert (
        Anthropic().url(ChatModel(provider="anthropic", name="m")) == "https://api.anthropic.com/v1/messages"
    )


def anthropic_turn(*events: dict[str, Any]) -> ModelTurn:
    reader = BlockReader()
    for event in events:
        reader.feed(json.dumps(event).encode())
    return reader.turn()


def test_blocks_go_back_as_they_came() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    turn = anthropic_turn(
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_start", "index": 1, "content_block": redacted},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "something_new", "index": 2},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": {}}},
        {
            "type": "content_block_start",
            "index": 3,
            "content_block": {"type": "tool_use", "id": "1", "name": "a", "input": {"at": "once"}},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )
    assert turn.message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        redacted,
        {"type": "tool_use", "id": "1", "name": "a", "input": {"at": "once"}},
    ]
    assert (turn.text, turn.calls[0].arguments) == ("", {"at": "once"})


def test_what_was_read_is_kept_by_the_api_and_the_conversation_stays_as_it_is() -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
    ]
    tools = [{"name": "a"}, {"name": "b"}]
    before = json.dumps([messages, tools])
    body = Anthropic().request(ChatModel(provider="anthropic", name="m"), "s", messages, tools)
    assert json.dumps([messages, tools]) == before
    assert "cache_control" in body["messages"][-1]["content"][-1]
    assert "cache_control" in body["tools"][-1]
    assert json.dumps(body).count("cache_control") == 2
    first = Anthropic().request(ChatModel(provider="anthropic", name="m"), "s", messages[:1], [])
    assert first["messages"][0]["content"][0]["text"] == "one"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "tool_calls",
                    "function",
                    "index",
                    "id",
                    "usage",
                    "type",
                    "content_block",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "error", "type"]), json_values), max_size=4)
)
def test_whatever_a_server_sends_is_read_or_refused(chunks: list[dict[str, Any]]) -> None:
    for reader in (ChunkReader(), BlockReader()):
        for chunk in chunks:
            try:
                reader.feed(json.dumps(chunk).encode())
            except (Complaint, ValueError, LookupError, TypeError):
                break
        reader.turn()
