"""The gate takes large and odd results in short steps."""

import json
import re
import time

import pytest

from fairlead.catalog.sanitize import gate
from fairlead.policy.results import MAX_IMAGE, ResultSource, prepare_result_steps
from tests.catalog.gate_support import (
    LONGEST_STEP,
    PLAIN,
    SOURCE,
    block,
    prepare,
)

SIZE = 2 * 1024 * 1024


def structured(value: bytes) -> bytes:
    return b'{"content":[],"structuredContent":%b}' % value


BOMBS: dict[str, bytes] = {
    "hidden strings": structured(b'{"a":[' + b",".join([b'"\\u200b"'] * (SIZE // 9)) + b"]}"),
    "strings": structured(b'{"a":[' + b",".join([b'"a"'] * (SIZE // 4)) + b"]}"),
    "numbers": structured(b'{"a":[' + b"1," * (SIZE // 2) + b"1]}"),
    "depth": structured(b"[" * (SIZE // 2) + b"]" * (SIZE // 2)),
    "blocks": b'{"content":[' + b"{}," * (SIZE // 3) + b"{}]}",
    "hidden text, escaped": block(b"\\u200b" * (SIZE // 6)),
    "hidden text": block("\u200b".encode() * (SIZE // 3)),
    "escapes": block(b"\\n" * (SIZE // 2)),
    "quotes": block(b'\\"' * (SIZE // 2)),
    "slashes": block(b"\\\\" * (SIZE // 2)),
    "sequences": block(b"\\u001b[" * (SIZE // 7)),
    "unended sequences": block(b"\\u001b]a" * (SIZE // 8)),
    "pairs": block(b"\\ud83d\\ude00" * (SIZE // 12)),
    "halves": block(b"\\ud83d" * (SIZE // 6)),
    "tags": block("\U000e0041".encode() * (SIZE // 4)),
    "percents": block(b"%41" * (SIZE // 3)),
    "no text": block(b"\xff" * SIZE),
    "a name": structured(b'{"%b":1}' % (b"k" * SIZE)),
    "a hidden name": structured(b'{"%b":1}' % (b"\\u200b" * (SIZE // 6))),
    "one name": structured(b"{" + b",".join([b'"a":1'] * (SIZE // 7)) + b"}"),
    "one field": b"{" + b",".join([b'"content":[]'] * (SIZE // 14)) + b"}",
    "a number": structured(b'{"a":%b,"b":"\\u200b"}' % (b"9" * SIZE)),
    "no end": b'{"content":["' + b'a\\"' * (SIZE // 3),
    "secrets": block(PLAIN.encode() * (SIZE // len(PLAIN))),
    "an image": b'{"content":[{"type":"image","mimeType":"image/png","data":"%b"}]}' % (b"A" * SIZE),
}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_no_result_takes_long_at_a_time(body: bytes) -> None:
    steps = prepare_result_steps(body, SOURCE)
    longest = 0.0
    while True:
        begun = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            result = end.value.result
            break
        finally:
            longest = max(longest, time.thread_time() - begun)
    assert longest < LONGEST_STEP
    is_image = b'"image/png"' in body  # which costs a model the same whatever its size
    assert len(result.raw) < (MAX_IMAGE if is_image else 3 * 100_000 + 10_000)
    assert PLAIN not in result.raw.decode()
    assert "\u200b" not in result.raw.decode()
    assert re.search(rb"(?<!\\)\\u200b", result.raw) is None  # but as the source of JSON that is shown


@pytest.mark.requirement("HARD-66")
def test_what_is_too_much_to_open_is_kept_as_it_came_and_cleaned_when_it_is_read() -> None:
    body = BOMBS["hidden strings"]
    handed = gate.finish(prepare_result_steps(body, SOURCE))
    (kept,) = handed.kept
    assert kept.content == body
    assert kept.handle in handed.result.text
    assert "\u200b" not in gate.finish(gate.file_steps(bytes(kept.content[:100_000])))


@pytest.mark.requirement("HARD-66")
def test_for_a_program_the_whole_is_cleaned_without_being_opened() -> None:
    whole = ResultSource(server_id="s", tool="t", trusted=True, limit=None)
    body = structured(b'{"a":[' + b",".join([b'"\\u200bx"'] * 30_000) + b"]}")
    result = gate.finish(prepare_result_steps(body, whole)).result
    assert result.structured == {"a": ["x"] * 30_000}
    assert result.original == body


@pytest.mark.requirement("HARD-61", "HARD-62")
@pytest.mark.parametrize("data", [f"words {PLAIN}", f"a​b {PLAIN}", f"{PLAIN}.{PLAIN}", f"=={PLAIN}=="])
def test_what_only_pretends_to_be_binary_is_text(data: str) -> None:
    blocks = [
        {"type": "audio", "mimeType": "audio/wav", "data": data},
        {"type": "image", "mimeType": "image/png", "data": data},
        {"type": "resource", "resource": {"uri": "x://y", "blob": data}},
    ]
    for one in blocks:
        shown = prepare({"content": [one]}).decode()
        assert PLAIN not in shown
        assert "​" not in shown
        assert "\\u200b" not in shown
    answer = gate.finish(gate.answer_steps(json.dumps({"contents": [{"uri": "x", "blob": data}]}).encode()))
    assert PLAIN.encode() not in answer


@pytest.mark.requirement("HARD-66")
def test_names_that_fall_together_are_told_apart_quickly_and_shortly() -> None:
    names = {"​" * (n + 1) + "‌" * (4_000 - n): n for n in range(480)}
    body = json.dumps({"content": [], "structuredContent": names}, ensure_ascii=False).encode()
    source = ResultSource(server_id="s", tool="t", trusted=False, limit=None)
    steps = prepare_result_steps(body, source)
    longest = 0.0
    while True:
        started = time.thread_time()
        try:
            next(steps)
        except StopIteration as done:
            result = done.value.result
            break
        longest = max(longest, time.thread_time() - started)
    assert longest < LONGEST_STEP
    assert len(result.raw) < 100_000


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("number", [b"1e300", b"1E+308", b"-5e-324"])
def test_numbers_that_take_long_to_read_hold_nothing_up(number: bytes) -> None:
    body = b'{"content":[],"structuredContent":{"a":[' + (number + b",") * 15_000 + b"1]}}"
    source = ResultSource(server_id="s", tool="t", trusted=False, limit=None)
    steps = prepare_result_steps(body, source)
    longest = 0.0
    while True:
        started = time.thread_time()
        try:
            next(steps)
        except StopIteration:
            break
        finally:
            longest = max(longest, time.thread_time() - started)
    assert longest < LONGEST_STEP


@pytest.mark.requirement("HARD-66")
def test_runs_of_backslashes_are_counted_in_linear_time() -> None:
    body = b'{"content":[{"type":"text","text":"' + (b"\\" * 65 + b'"') * 30_000 + b'\\u200b"}]}'
    source = ResultSource(server_id="s", tool="t", trusted=False, limit=100_000)
    started = time.thread_time()
    gate.finish(prepare_result_steps(body, source))
    assert time.thread_time() - started < 20 * LONGEST_STEP
