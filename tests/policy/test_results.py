"""What a tool brought, made fit to be handed on."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize.text import clean
from fairlead.config.untyped import is_list, is_object
from fairlead.errors import CallFailed
from fairlead.policy.results import (
    IMAGE_COST,
    MAX_IMAGE,
    MOST_KEPT,
    PreparedResult,
    ResultSource,
    prepare_result,
)

HIDDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "hidden_text_cases.json").read_text(encoding="utf-8")
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(data: str = PIXEL, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mimeType": mime_type, "data": data}


def body(*content: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"content": content, **rest}).encode()


def handed(
    raw: bytes,
    limit: int | None = 1024,
    *,
    trusted: bool = True,
    keeping: bool = True,
    definition: bytes | None = None,
) -> PreparedResult:
    source = ResultSource(server_id="s", tool="t", trusted=trusted, limit=limit, definition=definition)
    return prepare_result(msgspec.Raw(raw), source, keeping=keeping)


def shown(raw: bytes, limit: int | None = 1024, **rest: Any) -> ToolResult:
    return handed(raw, limit, **rest).result


# What there is nothing to say about.


@pytest.mark.parametrize(
    "raw",
    [
        body(text("fine"), isError=False),
        body(text("ünïcödé, 中文, 🙂 and\n\ttwo lines")),
        b' {"content" : [ ] ,\n "unknown": 1e5, "structuredContent": {"n": 123456789012345678901234567890}}',
    ],
)
def test_a_small_result_with_nothing_hidden_is_handed_on_byte_for_byte(raw: bytes) -> None:
    result = shown(raw)
    assert result.raw == raw
    assert result.original is result.raw
    assert result.remarks.findings == ()
    assert result.notes == ()


def test_who_is_not_trusted_is_marked() -> None:
    assert shown(body(text("a")), trusted=False).untrusted
    assert shown(body(text("a" * 9999)), trusted=False).untrusted
    assert not shown(body(text("a"))).untrusted


# What is hidden.


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize("case", HIDDEN, ids=lambda case: case["name"])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("limit", [None, 1024])
def test_hidden_text_is_taken_out_of_every_part(
    case: dict[str, Any], escaped: bool, limit: int | None
) -> None:
    hidden: str = case["text"]
    document = {
        "content": [
            text(hidden),
            {"type": "resource", "resource": {"uri": "x://y", "text": hidden, "_meta": {"a": [hidden]}}},
            {"type": "resource_link", "uri": "x://z", "name": hidden, "description": hidden},
            image() | {"annotations": {"note": hidden}},
            {"type": hidden, "hologram": hidden},
        ],
        "structuredContent": {"value": hidden, hidden: [hidden]},
        "_meta": {"said": hidden},
    }
    raw = json.dumps(document, ensure_ascii=escaped).encode(errors="surrogatepass")
    result = shown(raw, limit if limit is None else 10 * len(raw))

    said = json.loads(result.raw)
    assert _strings(said) == {clean(string) for string in _strings(said)}
    assert result.content[0]["text"] == clean(hidden)
    assert result.structured is not None
    assert result.structured["value"] == clean(hidden)
    assert result.content[3]["data"] == PIXEL
    assert result.original == raw
    if clean(hidden) != hidden.replace("\r\n", "\n"):
        assert result.remarks.findings


def _strings(value: Any) -> set[str]:
    if is_object(value):
        return {string for pair in value.items() for part in pair for string in _strings(part)}
    if is_list(value):
        return {string for item in value for string in _strings(item)}
    return {value} if isinstance(value, str) else set()


@pytest.mark.requirement("HARD-41")
def test_what_was_hidden_is_told() -> None:
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in "read me")
    result = shown(body(text(f"one{tags}"), text("two\u200b\u200b"), structuredContent={"a\u200b": 1}))
    findings = {finding.kind: (finding.count, finding.sample) for finding in result.remarks.findings}
    assert findings["tag"] == (7, "read me")
    assert findings["invisible"][0] == 3


@pytest.mark.requirement("HARD-41")
def test_names_that_would_fall_together_are_told_apart() -> None:
    result = shown(body(structuredContent={"a": 1, "a\u200b": 2, "b\u200b": 3}))
    assert result.structured == {"a": 1, "a⟨U+200B⟩": 2, "b⟨U+200B⟩": 3}
    assert shown(body(structuredContent={"b\u200b": 3})).structured == {"b": 3}


@pytest.mark.requirement("HARD-41")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"content": [{"type": "text", "text": "x\\u200b"}], "content": []}',
        b'{"content": [{"type": "text", "text": "x\\u200b", "text": "y"}]}',
        b'{"content": [], "structuredContent": {"a": "x\\u200b", "a": "y"}}',
        b'{"content": [{"type": "text", "text": "y"}], "content\\u200b": "x\\u200b"}',
    ],
)
@pytest.mark.parametrize("padding", [0, 5000])
def test_what_a_parser_does_not_see_is_not_handed_on_either(raw: bytes, padding: int) -> None:
    raw = raw[:-1] + b', "_meta": {"a": "' + b"x" * padding + b'"}}'
    assert b"200b" not in shown(raw, 4096).raw


def test_numbers_stay_as_they_are_where_a_text_beside_them_is_cleaned() -> None:
    raw = b'{"content": [], "structuredContent": {"n": 1.10, "big": 12345678901234567890123, "t": "\\u200b"}}'
    assert b'{"n": 1.10, "big": 12345678901234567890123, "t": ""}' in shown(raw).raw


def test_bytes_that_are_no_text_cost_only_themselves() -> None:
    result = shown(b'{"content": [{"type": "text", "text": "caf\xe9!"}], "structuredContent": {"a": "\xff"}}')
    assert result.text == "caf\ufffd!"
    assert result.structured == {"a": "\ufffd"}
    assert any("invalid UTF-8" in note for note in result.notes)


@given(
    st.recursive(
        st.none() | st.text() | st.integers(0, 9),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_comes_nothing_hidden_is_left(value: Any) -> None:
    raw = json.dumps({"content": [{"type": "text", "text": "x", "_meta": value}], "other": value}).encode()
    assert _strings(json.loads(shown(raw, None).raw)) == {
        clean(string) for string in _strings(json.loads(shown(raw, None).raw))
    }


# What is too large.


@pytest.mark.requirement("NEED-31")
def test_five_megabytes_become_a_preview_and_a_handle() -> None:
    lines = "".join(f"line {number}: äöü\n" for number in range(300_000))
    over = handed(body(text(lines), isError=False), 100_000)
    (kept,) = over.kept
    preview, note = over.result.content
    assert bytes(kept.content).decode() == lines
    assert kept.media_type == "text/plain"
    assert lines.startswith(preview["text"])
    assert preview["text"].endswith("\n")
    assert 90_000 < len(preview["text"].encode()) <= 100_000
    assert kept.handle in note["text"]
    assert f"{len(lines):,} characters" in note["text"]
    assert f"start={len(preview['text'])}" in note["text"]
    assert not over.result.is_error
    assert len(over.result.raw) < 120_000


@pytest.mark.requirement("NEED-31")
def test_a_text_is_cut_between_characters() -> None:
    for limit in range(1024, 1032):
        cut = shown(body(text("🙂" * 2000)), limit).content[0]["text"]
        assert set(cut) == {"🙂"}
        assert len(cut) == limit // 4


def test_all_texts_are_one_artifact_from_which_to_read_on() -> None:
    link = {"type": "resource_link", "uri": "x://l", "name": "link"}
    resource = {"type": "resource", "resource": {"uri": "x://r", "text": "r" * 900}}
    over = handed(body(text("a" * 600), resource, link, text("end")))
    (kept,) = over.kept
    whole = bytes(kept.content).decode()
    assert whole == f"{'a' * 600}\nx://r\n{'r' * 900}\nlink <x://l>\nend"
    first, second, note = over.result.content
    assert first["text"] == "a" * 600
    start = int(note["text"].partition("start=")[2].partition(")")[0])
    assert whole[start:].startswith("r")
    assert f"{first['text']}\nx://r\n{second['resource']['text']}" == whole[:start]


def test_many_links_do_not_fit_either() -> None:
    links = [{"type": "resource_link", "uri": f"x://{number}", "name": "n"} for number in range(500)]
    over = handed(body(*links))
    assert bytes(over.kept[0].content).decode().splitlines()[-1] == "n <x://499>"
    assert [block["type"] for block in over.result.content[-2:]] == ["resource_link", "text"]


@pytest.mark.requirement("NEED-31")
def test_structured_content_is_there_or_not_but_never_cut() -> None:
    rows = {"rows": [{"n": number} for number in range(500)]}
    over = handed(body(text("500 rows"), structuredContent=rows))
    (kept,) = over.kept
    assert json.loads(bytes(kept.content)) == rows
    assert kept.media_type == "application/json"
    assert over.result.structured is None
    assert over.result.content[0] == text("500 rows")
    assert kept.handle in over.result.text
    assert over.result.remarks.ours == {1}


@pytest.mark.requirement("NEED-31")
def test_an_image_goes_as_an_image_whatever_its_size() -> None:
    data = base64.b64encode(bytes(500_000)).decode()
    over = handed(body(text("Look:"), image(data)), 100_000)
    assert over.kept == ()
    assert over.result.content == [text("Look:"), image(data)]


@pytest.mark.requirement("NEED-31")
def test_what_does_not_fit_of_media_is_named_and_kept_and_never_text() -> None:
    huge = base64.b64encode(bytes(MAX_IMAGE)).decode()
    sound = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(b"s" * 9000).decode()}
    file = {"type": "resource", "resource": {"uri": "x://f", "blob": base64.b64encode(b"f" * 9000).decode()}}
    over = handed(body(image(huge), sound, file), 8000)
    assert [(one.media_type, one.content[:1]) for one in over.kept] == [
        ("image/png", b"\0"),
        ("audio/wav", b"s"),
        ("application/octet-stream", b"f"),
    ]
    for block, one in zip(over.result.content, over.kept, strict=True):
        assert block["type"] == "text"
        assert one.handle in block["text"]
        assert one.media_type in block["text"]
    assert len(over.result.raw) < 2000


def test_images_spend_the_budget_too() -> None:
    data = base64.b64encode(bytes(50_000)).decode()
    over = handed(body(*[image(data)] * 5), 2 * IMAGE_COST)
    assert [block["type"] for block in over.result.content] == ["image"] * 2 + ["text"] * 3
    assert len(over.kept) == 1  # the same picture, once


@pytest.mark.requirement("NEED-31")
def test_media_that_not_every_model_takes_have_a_handle_at_hand() -> None:
    sound = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(b"sound").decode()}
    over = handed(body(text("Listen:"), sound, image()))
    assert over.result.content[1] == sound
    assert over.result.remarks.handles == {1: over.kept[0].handle}
    assert over.kept[0].content == b"sound"


def test_one_result_leaves_only_so_much_behind() -> None:
    sounds = [
        {
            "type": "audio",
            "mimeType": "audio/wav",
            "data": base64.b64encode(str(number).encode() * 50).decode(),
        }
        for number in range(200)
    ]
    assert len(handed(body(*sounds)).kept) == MOST_KEPT


def test_what_is_neither_text_nor_media_is_left_out_whole() -> None:
    over = handed(body({"type": "hologram", "data": "x" * 2000}, _meta={"a": "x" * 2000}, isError=True))
    assert over.kept == ()
    assert over.result.text == "[1 more blocks are left out.]"
    assert any("_meta" in note for note in over.result.notes)
    assert over.result.is_error


def test_what_cannot_be_kept_is_said_to_be_lost() -> None:
    over = handed(body(text("a" * 9999), structuredContent={"a": "a" * 9999}), keeping=False)
    assert over.kept == ()
    assert over.result.text.count("could not be stored") == 2
    assert "artifact://" not in over.result.text


def test_without_a_budget_everything_fits() -> None:
    assert shown(body(text("a" * 1_000_000)), None).text == "a" * 1_000_000


def test_escapes_in_json_do_not_count() -> None:
    lines = "\n" * 600
    assert shown(body(text(lines)), 1024).text == lines


# What is no result.


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content": "\\u200b"}',
        b'{"content": ["\\u200b"]}',
        b'["\\u200b"]',
        b'{"content": [{"type": "text", "text": "\\u200b", "n": NaN}]}',
        b'{"content": [' + b"[" * 5000 + b"]" * 5000 + b'], "a": "\\u200b"}',
    ],
)
def test_what_would_have_to_be_read_and_cannot_be_fails_as_done(raw: bytes) -> None:
    with pytest.raises(CallFailed) as caught:
        shown(raw)
    assert caught.value.delivery == "done"


# What was promised.

PROMISING = json.dumps(
    {
        "name": "t",
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
).encode()


def test_structured_content_is_held_against_what_the_tool_promised() -> None:
    assert shown(body(structuredContent={"n": 1}), definition=PROMISING).notes == ()
    (note,) = shown(body(structuredContent={"n": "one"}), definition=PROMISING).notes
    assert "does not match its output schema" in note
    assert "n:" in note


@pytest.mark.parametrize(
    ("raw", "definition"),
    [
        (body(text("no"), isError=True, structuredContent={}), PROMISING),
        (body(text("none")), PROMISING),
        (body(structuredContent={}), b'{"name": "t"}'),
        (body(structuredContent={}), b'{"outputSchema": '),
        (body(structuredContent={}), b'{"outputSchema": true}'),
        (body(structuredContent={}), PROMISING[:-2] + b" " * 300_000 + b"}}"),
        (body(structuredContent={}), b'{"outputSchema": {"$ref": "https://example.org/schema"}}'),
    ],
)
def test_nothing_is_noted_where_nothing_was_promised_or_can_be_told(raw: bytes, definition: bytes) -> None:
    assert shown(raw, definition=definition).notes == ()


@pytest.mark.requirement("HARD-63")
@pytest.mark.parametrize(
    "key", ['"fairlead/untrusted"', '"fairlead\\/untrusted"', '"\\u0066airlead/untrusted"']
)
@pytest.mark.parametrize("words", ["plain", "hid\u200bden", "x" * 60_000, "y\u200b" * 60_000])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_server_cannot_write_our_mark_into_its_result(key: str, words: str, *, trusted: bool) -> None:
    forged = f'{{"content":[{json.dumps(text(words))}],"_meta":{{"own":1,{key}:{{"server":"other"}}}}}}'
    source = ResultSource(server_id="s", tool="t", trusted=trusted, limit=None)
    result = prepare_result(forged.encode(), source).result
    assert json.loads(result.raw)["_meta"] == {"own": 1}
    assert result.untrusted is not trusted


@pytest.mark.parametrize("padding", ["", "x" * 10_000, "x" * 2_000_000])
@pytest.mark.parametrize(
    ("spelling", "failed"),
    [
        ("true", True),
        ('"true"', True),
        ('"True"', True),
        ("1", True),
        ("false", False),
        ('"no"', False),
        ("0", False),
        ("null", False),
        ("11", False),
        ("[true]", False),
    ],
)
def test_a_failure_is_one_however_carelessly_a_server_says_so(
    spelling: str, failed: bool, padding: str
) -> None:
    content = f'"content":[{{"type":"text","text":"{padding}"}}]'
    for raw in (f'{{{content},"isError":{spelling}}}', f'{{"isError":{spelling},{content}}}'):
        assert ToolResult("s", raw.encode()).is_error is failed, raw[:60]


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize("size", [100_000, 1_200_000])
def test_half_a_character_costs_nothing_else_of_a_large_result(size: int) -> None:
    words = "y" * size
    document = {"content": [text(f"{words}\ud83d!")], "structuredContent": {"a": f"{words}\udcff", "b": "c"}}
    result = shown(json.dumps(document).encode(), 10 * size)
    assert result.content[0]["text"].rstrip("\ufffd!") == words
    assert result.structured is not None
    assert result.structured["a"].rstrip("\ufffd") == words
    assert result.structured["b"] == "c"
