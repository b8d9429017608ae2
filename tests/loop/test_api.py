"""What can go wrong between us and a model's API."""

import json
import logging
from email.utils import formatdate
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import ModelFailed, ModelUnavailable
from fairlead.loop import api as api_module
from fairlead.loop.events import RunFinished, StepRetried
from fairlead.loop.provider import ChatModel, Provider
from fairlead.testing import open_host
from tests.loop.model_server import (
    KEY,
    Reply,
    Scripted,
    anthropic_events,
    openai_events,
    refuses,
    says,
    serving,
)
from tests.loop.support import PROVIDERS, ending, of_kind, played, said


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_FIRST_WAIT_SECONDS", 0.01)


async def failure_of(tmp_path: Path, provider: Provider, *replies: Scripted, **model: Any) -> ModelFailed:
    """What a run fails with. The key is not in it, wherever one looks."""
    with serving(*replies) as api:
        async with open_host(tmp_path) as host:
            with pytest.raises(ModelFailed) as caught:
                await played(host.tools, api.model(provider, **model))
    error = caught.value
    shown = f"{error} {error.hint} {error!r} {error.__cause__!r} {api.model(provider)!r}"
    assert KEY not in shown
    return error


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_key_goes_to_the_api_the_way_it_wants_it(tmp_path: Path, provider: Provider) -> None:
    with serving(says(provider, "hi")) as api:
        async with open_host(tmp_path) as host:
            await played(host.tools, api.model(provider))
            await played(host.tools, api.model(provider, api_key=None))
    with_key, without = api.headers
    if provider == "openai":
        assert with_key["authorization"] == f"Bearer {KEY}"
        assert "authorization" not in without
        assert api.paths[0] == "/v1/chat/completions"
    else:
        assert with_key["x-api-key"] == KEY
        assert with_key["anthropic-version"]
        assert "x-api-key" not in without
        assert api.paths[0] == "/v1/messages"
        assert api.bodies[0]["max_tokens"] > 0


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_an_api_that_is_busy_is_asked_again(tmp_path: Path, provider: Provider, status: int) -> None:
    busy = refuses(status, "slow down", Retry_After="0")
    with serving(busy, busy, says(provider, "now")) as api:
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model(provider))
    assert said(events) == "now"
    assert [event.seconds for event in of_kind(events, StepRetried)] == [0, 0]
    assert f"HTTP {status}: slow down" in of_kind(events, StepRetried)[0].reason
    assert api.raw[0] == api.raw[2]


@pytest.mark.parametrize(
    ("said_wait", "words"),
    [("3600", "3600 s"), (formatdate(4_000_000_000, usegmt=True), "asks for no request within")],
)
async def test_an_api_that_wants_to_be_left_alone_for_long_is(
    tmp_path: Path, said_wait: str, words: str
) -> None:
    error = await failure_of(tmp_path, "openai", refuses(429, "quota", Retry_After=said_wait))
    assert isinstance(error, ModelUnavailable)
    assert words in str(error)


async def test_an_api_that_stays_busy_is_given_up(tmp_path: Path) -> None:
    with serving(refuses(503, "no capacity")) as api:
        async with open_host(tmp_path) as host:
            with pytest.raises(ModelUnavailable, match="no capacity"):
                await played(host.tools, api.model("openai"))
    assert len(api.bodies) == api_module.MAX_TRIES


async def test_an_api_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving(says("openai", "x")) as api:
        model = api.model("openai")
    async with open_host(tmp_path) as host:
        with pytest.raises(ModelUnavailable, match=r"no connection to 127\.0\.0\.1") as caught:
            await played(host.tools, model)
    assert "is it running" in (caught.value.hint or "")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["breaks", "ends"])
async def test_an_answer_that_breaks_off_is_asked_for_once_more(
    tmp_path: Path, provider: Provider, way: str
) -> None:
    half = says(provider, "Half an answer").body.partition(b"answer"[:1] + b'"}')[0]
    half = half[: len(half) * 2 // 3]
    broken = Reply(body=half, breaks=way == "breaks")
    with serving(broken, says(provider, "whole")) as api:
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model(provider))
    assert len(of_kind(events, StepRetried)) == 1
    assert ending(events).text == "whole"
    error = await failure_of(tmp_path, provider, broken)
    assert isinstance(error, ModelUnavailable)
    assert "broke" in str(error)


async def test_an_api_that_says_nothing_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    error = await failure_of(tmp_path, "openai", Reply(body=b": hm\n\n", hangs=True), silence_seconds=0.1)
    assert isinstance(error, ModelUnavailable)
    assert "said nothing" in str(error)


async def test_an_answer_that_is_whole_counts_though_nobody_says_goodbye(tmp_path: Path) -> None:
    body = openai_events("whole").partition(b"data: [DONE]")[0]
    with serving(Reply(body=body, hangs=True)) as api:
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model("openai", silence_seconds=0.2))
    assert [type(event) for event in events if not hasattr(event, "text")][:-1] == []
    assert isinstance(events[-1], RunFinished)
    assert events[-1].text == "whole"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("reply", "words", "hint"),
    [
        (refuses(401, f"bad key {KEY}"), "HTTP 401", "MY_KEY"),
        (refuses(403, "not yours"), "not yours", "MY_KEY"),
        (refuses(404, "no such model"), "no such model", "`m`"),
        (refuses(400, "maximum context length is 8"), "too long", "bundle"),
        (refuses(400, "prompt is too long: 9 > 8"), "too long", "bundle"),
        (refuses(413, "huge"), "too long", "bundle"),
        (refuses(400, "bad \x1b[31mwords\u202e"), "bad", None),
        (refuses(429, "pay first", "insufficient_quota"), "pay first", "account"),
        (refuses(302, "", Location="http://127.0.0.1:9/"), "HTTP 302", "base_url"),
        (Reply(status=400, body=b"<html>", content_type="text/html"), "HTTP 400", None),
        (Reply(status=400, body=b'{"error": "in a word"}'), "in a word", None),
        (Reply(status=400, body=b'{"detail": "in detail"}'), "in detail", None),
        (Reply(status=400, body=b'{"object": "error", "message": "flat"}'), "flat", None),
    ],
)
async def test_an_api_that_refuses_is_not_asked_again_and_the_hint_says_what_to_do(
    tmp_path: Path, provider: Provider, reply: Reply, words: str, hint: str | None
) -> None:
    error = await failure_of(tmp_path, provider, reply, key_from="MY_KEY")
    assert not isinstance(error, ModelUnavailable)
    assert words in str(error)
    assert "\x1b" not in str(error)
    assert "\u202e" not in str(error)
    assert (hint or "") in (error.hint or "")


async def test_a_server_that_does_not_stream_is_understood_too(tmp_path: Path) -> None:
    body = {"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]}
    reply = Reply(body=json.dumps(body).encode(), content_type="application/json")
    with serving(reply) as api:
        async with open_host(tmp_path) as host:
            assert said(await played(host.tools, api.model("openai"))) == "all at once"


async def test_a_key_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    error = await failure_of(tmp_path, "openai", refuses(401), api_key=None, key_from="the variable X")
    assert error.hint == "it wants an API key: the variable X"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("kind", "passes"), [("overloaded_error", True), ("server_error", True), ("invalid_request_error", False)]
)
async def test_an_api_may_complain_in_the_middle_of_its_answer(
    tmp_path: Path, provider: Provider, kind: str, passes: bool
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "it was too much"}}
    body = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
    if passes:
        with serving(Reply(body=body), says(provider, "again")) as api:
            async with open_host(tmp_path) as host:
                assert ending(await played(host.tools, api.model(provider))).text == "again"
    failure = await failure_of(tmp_path, provider, Reply(body=body))
    assert "it was too much" in str(failure)
    assert isinstance(failure, ModelUnavailable) == passes
    long = Reply(body=body.replace(b"it was too much", b"prompt is too long"))
    assert "the conversation is too long" in str(await failure_of(tmp_path, provider, long))


@pytest.mark.parametrize(
    "body", [b"data: no json\n\n", b"data: [1]\n\n", b'data: {"type": "content_block_delta", "index": 3}\n\n']
)
async def test_an_answer_of_another_kind_is_no_crash(tmp_path: Path, body: bytes) -> None:
    error = await failure_of(tmp_path, "anthropic", Reply(body=body))
    assert "anthropic" in (error.hint or "") or isinstance(error, ModelUnavailable)


async def test_an_answer_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "MAX_ANSWER_BYTES", 10_000)
    for body in (b"data: " + b"x" * 20_000, openai_events("x" * 1000)):
        error = await failure_of(tmp_path, "openai", Reply(body=body, cut=1000))
        assert "no end" in str(error)


@pytest.mark.parametrize("base_url", ["localhost:11434/v1", "ftp://x/", "http://", "http://[/"])
async def test_an_address_that_is_none_is_named(tmp_path: Path, base_url: str) -> None:
    async with open_host(tmp_path) as host:
        with pytest.raises(ModelFailed, match="no address") as caught:
            await played(host.tools, ChatModel(provider="openai", name="m", base_url=base_url))
    assert "http://" in (caught.value.hint or "")


async def test_a_key_that_no_header_can_hold_is_not_sent(tmp_path: Path) -> None:
    error = await failure_of(tmp_path, "openai", says("openai", "x"), api_key=f"{KEY}\r\nX-More: 1")
    assert "malformed" in str(error)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_key_is_in_no_log(
    tmp_path: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(refuses(503, KEY), says(provider, "hi")) as api, anyio.fail_after(30):
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model(provider))
    assert KEY not in caplog.text
    assert KEY not in repr(events)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (openai_events("cut", finish="length"), "cut_off"),
        (openai_events("", finish="content_filter"), "gave_up"),
        (openai_events(" "), "gave_up"),
        (
            b'data: {"choices": [{"delta": {"refusal": "I will not"}, "finish_reason": "stop"}]}\n\n',
            "gave_up",
        ),
        (anthropic_events("cut", stop="max_tokens"), "cut_off"),
        (anthropic_events("No.", stop="refusal"), "gave_up"),
        (anthropic_events(""), "gave_up"),
    ],
)
async def test_a_model_that_does_not_finish_is_told_from_one_that_does(
    tmp_path: Path, body: bytes, outcome: str
) -> None:
    provider: Provider = "anthropic" if b"message_start" in body else "openai"
    with serving(Reply(body=body)) as api:
        async with open_host(tmp_path) as host:
            events = await played(host.tools, api.model(provider))
    assert ending(events).outcome == outcome
