"""What a hostile result costs the page that shows it: time, size, and no secret in any part of it."""

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.principal import GroupedPrincipal
from fairlead.config.secrets.masking import MASK
from fairlead.connection.frame_log import MAX_FRAME_BYTES, FrameLog
from fairlead.web import trials
from fairlead.web.html import image, join
from fairlead.web.rendered_results import render_frames, render_result
from tests.catalog.gate_support import PLAIN

SECONDS = 1.0
"""Of CPU: it took up to 7."""
MAX_MARKUP = 1_500_000


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


BLOB = {"uri": "a:b", "blob": "QUJD" * 1_700_000}

RESULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "very many blocks": lambda: {"content": [text("a")] * 150_000},
    "many blocks": lambda: {"content": [text("a")] * 9_000},
    "texts of JSON": lambda: {"content": [text("[" + "[]," * 33_000 + "[]]")] * 70},
    "many small texts of JSON": lambda: {"content": [text("[" + "1," * 900 + "1]")] * 150},
    "long texts": lambda: {"content": [text("&" * 99_000)] * 80},
    "a list of numbers": lambda: {"content": [], "structuredContent": {"a": [1] * 19_000}},
    "long strings": lambda: {"content": [], "structuredContent": {"a": ["x" * 4_000] * 1_900}},
    "many names": lambda: {"content": [], "structuredContent": {f"k{n}": n for n in range(300_000)}},
    "long names": lambda: {"content": [], "structuredContent": {str(n) + "k" * 9_000: n for n in range(800)}},
    "a wide table": lambda: {
        "content": [],
        "structuredContent": {"a": [{"b" * 90_000: 1, "c": "<" * 9}] * 90},
    },
    "an unknown block": lambda: {"content": [{"type": "x", "x": [[1] * 10] * 1_500}]},
    "unknown blocks": lambda: {"content": [{"type": "x", "x": "<" * 50_000}] * 150},
    "a blob": lambda: {"content": [{"type": "resource", "resource": BLOB}]},
    "long links": lambda: {"content": [{"type": "resource_link", "uri": "https://" + "a" * 50_000}] * 150},
    "long media types": lambda: {
        "content": [{"type": "audio", "mimeType": "a" * 50_000, "data": "QUJD"}] * 150
    },
}


def deep(depth: int) -> ToolResult:
    return ToolResult("s", b'{"content":[],"structuredContent":%b%b}' % (b"[" * depth, b"]" * depth))


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_a_hostile_result_is_shown_in_bounded_time_and_size(make: Callable[[], dict[str, Any]]) -> None:
    said = ToolResult("s", msgspec.json.encode(make()))
    began = time.thread_time()
    markup = join(render_result(said)).markup
    assert time.thread_time() - began < SECONDS
    assert len(markup) < MAX_MARKUP
    assert markup


@pytest.mark.parametrize("depth", [13, 100, 300])
def test_a_deep_result_is_shown_or_named(depth: int) -> None:
    assert "<" in join(render_result(deep(depth))).markup


def test_pictures_together_have_a_limit_and_only_base64_is_one() -> None:
    block = {"type": "image", "mimeType": "image/png", "data": "QUJD" * 700_000}
    markup = join(render_result(ToolResult("s", msgspec.json.encode({"content": [block] * 5})))).markup
    assert markup.count("<img") == 2
    assert image("image/png", "QUJD" * 1_400_000 + '"', "x") is None
    assert image("image/png", "QUJ\N{LATIN SMALL LETTER E WITH ACUTE}", "x") is None


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("shift", range(1, len(PLAIN)))
def test_no_half_of_a_secret_is_left_where_a_frame_was_cut(shift: int) -> None:
    log = FrameLog()
    head = b'{"jsonrpc":"2.0","id":1,"params":"'
    log.note_sent(head + b"x" * (MAX_FRAME_BYTES - len(head) - shift) + PLAIN.encode() + b'"}')
    markup = join(render_frames(log.frames)).markup
    assert PLAIN[: max(shift, 4)] not in markup


@pytest.mark.requirement("HARD-62")
def test_a_secret_in_a_frame_is_masked_where_the_page_has_no_room_for_all_frames() -> None:
    log = FrameLog()
    for size in range(59_950, 59_990):
        log.frames.clear()
        log.note_sent(json.dumps({"a": "x" * 40_000}).encode())
        log.note_sent(json.dumps({"a": "y" * size + PLAIN}).encode())
        markup = join(render_frames(log.frames)).markup
        assert PLAIN[:6] not in markup
    assert gate.mask_secrets(PLAIN) == MASK


@pytest.mark.requirement("HARD-66")
def test_frames_of_many_values_are_shown_in_bounded_time() -> None:
    log = FrameLog()
    for _ in range(20):
        log.note_sent(b"[" + b"[]," * 21_000 + b"[]]")
    began = time.thread_time()
    markup = join(render_frames(log.frames)).markup
    assert time.thread_time() - began < SECONDS
    assert len(markup) < MAX_MARKUP


@pytest.mark.requirement("HARD-66", "HARD-80")
async def test_calls_from_forms_are_kept_by_principal_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MAX_KEPT", 3)
    monkeypatch.setattr(trials, "MAX_KEPT_BYTES", 2_000)
    blocked = anyio.Event()

    class Server:
        async def call(self, server_id: str, tool: str, arguments: Any, **_: Any) -> ToolResult:
            if tool == "wait":
                await blocked.wait()
            return ToolResult(server_id, b'{"content":[]}'.ljust(900))

    @asynccontextmanager
    async def host_of(_: str) -> AsyncGenerator[Any]:
        yield Server()

    kept = trials.ToolTrials(host_of, lambda: None)

    def trial(principal: str, tool: str) -> trials.ToolTrial:
        made = trials.new_trial_id()
        caller = GroupedPrincipal(principal)
        return trials.ToolTrial(id=made, caller=caller, server_id="s", tool=tool, arguments={}, typed={})

    monkeypatch.setattr(trials, "PATIENCE_SECONDS", 0.0)
    waiting = trial("ada", "wait")
    others = [trial("eve", "say") for _ in range(9)]
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await kept.begin(waiting, tasks)
            for each in others:
                await kept.begin(each, tasks)
                await each.ended.wait()
            assert kept.find(waiting.id, "ada") is waiting
            assert not waiting.scope.cancel_called
            found = [kept.find(each.id, "eve") for each in others]
            assert found == [None] * 7 + others[-2:]
            assert kept.find(others[-1].id, "ada") is None
            blocked.set()
