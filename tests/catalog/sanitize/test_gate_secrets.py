"""The gate masks secrets in every encoding, and leaves binary data as it is."""

import base64
import json
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from fairlead.catalog.sanitize import gate
from fairlead.config.secrets.masking import MASK, Masker
from fairlead.policy.results import prepare_result_steps
from tests.catalog.gate_support import (
    LONGEST_STEP,
    LOOKALIKE,
    PASSWORD,
    PLAIN,
    SECRET,
    SOURCE,
    prepare,
    use_secrets,
)

BYTES = SECRET.encode()


def every_other(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(letter) if place % 2 else letter for place, letter in enumerate(text))


FORMS: dict[str, str] = {
    "plain": SECRET,
    **{f"base64 {offset}": base64.b64encode(b"x" * offset + BYTES).decode() for offset in range(3)},
    **{
        f"base64url {offset}": base64.urlsafe_b64encode(b"x" * offset + BYTES).decode() for offset in range(3)
    },
    "base64 of a header": base64.b64encode(b"Bearer " + BYTES).decode(),
    "base64 of user and password": base64.b64encode(b"someone:" + BYTES).decode(),
    "base64 in lines": "\n".join(
        base64.b64encode(BYTES).decode()[start : start + 5] for start in range(0, 28, 5)
    ),
    "hex": BYTES.hex(),
    "HEX": BYTES.hex().upper(),
    "hEx": every_other(BYTES.hex(), str.upper),
    "hex with colons": BYTES.hex(":"),
    "hex with spaces": BYTES.hex(" "),
    "hex escapes": "".join(f"\\x{byte:02x}" for byte in BYTES),
    "hex numbers": ", ".join(f"0x{byte:02X}" for byte in BYTES),
    "URL": quote(SECRET, safe=""),
    "URL, lower case": quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    "URL, all of it": "".join(f"%{byte:02x}" for byte in BYTES),
    "URL, some of it": SECRET.replace("g", "%67").replace("k", "%6B"),
    "URL, twice": quote(quote(SECRET, safe=""), safe=""),
    "URL, three times": quote(quote(quote(SECRET, safe=""), safe=""), safe=""),
    "JSON": json.dumps(SECRET),
    "JSON in JSON": json.dumps(json.dumps(SECRET)),
    "JSON escapes": "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
    "JSON ESCAPES": "".join(f"\\u{ord(letter):04X}" for letter in SECRET),
    "JSON, some escapes": SECRET.replace("t", "\\u0074").replace("/", "\\/"),
    "HTML": "".join(f"&#{ord(letter)};" for letter in SECRET),
    "HTML hex": "".join(f"&#x{ord(letter):x};" for letter in SECRET),
    "split by hidden characters": "\u200b".join(SECRET),
    "split by tags": "\U000e0041".join(SECRET),
    "split by escape sequences": "\x1b[0m".join(SECRET),
}


def decodings(text: str) -> str:
    """Everything that a reader could make of a text with little effort."""
    return text.replace("\u200b", "").replace("\U000e0041", "").replace("\x1b[0m", "")


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("escaped", [True, False])
def test_a_secret_is_masked_in_every_encoding_wherever_it_stands(form: str, escaped: bool) -> None:
    document = {
        "content": [
            {"type": "text", "text": f"before {form} after"},
            {"type": "resource", "resource": {"uri": f"a://{form}", "text": form}},
            {"type": "resource_link", "uri": f"a://{form}", "name": form},
        ],
        "structuredContent": {form: [form, {"deep": form}], "n": 12345678901234567890123},
        "_meta": {"said": form},
    }
    raw = json.dumps(document, ensure_ascii=escaped).encode()
    handed = gate.finish(prepare_result_steps(raw, SOURCE)).result
    said = handed.raw.decode()
    assert MASK in said
    assert decodings(form) not in said
    assert json.dumps(decodings(form))[1:-1] not in said
    assert "before " in said or MASK in said
    assert decodings(form) not in gate.text(f"failed: {form}")
    assert decodings(form) not in gate.log_text(f"stderr {form}\n".encode())
    message, data = gate.error(form, json.dumps({"a": form, form: 1}).encode())
    assert decodings(form) not in message
    assert decodings(form) not in json.dumps(data, ensure_ascii=False)


@pytest.mark.requirement("HARD-62")
def test_binary_data_is_never_masked() -> None:
    data = base64.b64encode(b"\x89PNG" + BYTES * 9).decode()
    image = {"type": "image", "mimeType": "image/png", "data": data}
    blob = {"type": "resource", "resource": {"uri": "a:b", "blob": data}}
    raw = json.dumps({"content": [image, blob, {"type": "text", "text": PLAIN}]}).encode()
    content = gate.finish(prepare_result_steps(raw, SOURCE)).result.content
    assert content[0]["data"] == data
    assert content[1]["resource"]["blob"] == data
    assert content[2]["text"] == MASK
    read = json.dumps({"contents": [{"uri": "a:b", "blob": data}, {"uri": "a:c", "text": data}]}).encode()
    contents = json.loads(gate.finish(gate.answer_steps(read)))["contents"]
    assert contents[0]["blob"] == data
    assert data not in contents[1]["text"]


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("padding", range(8100, 8230, 13))
def test_a_secret_across_the_pieces_of_a_long_text_is_masked(padding: int) -> None:
    said = gate.finish(gate.Cleaner().text_steps("x" * padding + PLAIN + "y" * 20_000))
    assert PLAIN not in said
    assert said.count(MASK) == 1
    assert len(said) == padding + len(MASK) + 20_000


@pytest.mark.requirement("HARD-61")
@pytest.mark.parametrize("before", [0, 80, 4_060, 4_080, 4_090, 16_370, 16_380])
@pytest.mark.parametrize("hidden", ["", "\u200b"])
def test_no_half_of_a_secret_is_left_where_a_text_is_cut(before: int, hidden: str) -> None:
    said = gate.text((hidden or "x") * before + PLAIN * 2 + "z" * 50_000)
    assert len(said.encode()) <= gate.MAX_TEXT_BYTES
    assert not any(PLAIN[:size] in said for size in range(6, len(PLAIN)))


@pytest.mark.requirement("HARD-62")
def test_what_is_too_short_or_unknown_is_no_secret() -> None:
    masker = Masker()
    masker.learn("short12")
    assert not masker.may_hold(b"short12")
    assert masker.mask_known("Bearer abcdefghijkl") == "Bearer abcdefghijkl"
    text = "A text with 100% of %41, \\u0041 and dGV4dA== in it."
    assert gate.content(text) == text


NAMES = {"n" * 3000: 1, "n" * 3000 + "\u200b": 2}
"""Two names that fall together when they are cleaned, and too long to be told apart by what they hide."""


IMAGE = {"type": "image", "mimeType": "image/png"}


NOT_BINARY: list[dict[str, Any]] = [
    {"blob": "S"},
    {"type": "image", "data": "S"},
    {"type": "audio", "data": "S"},
    {"type": "image", "mimeType": 5, "data": "S"},
    {"type": "image", "mimeType": "text/plain", "data": "S"},
    {"type": "image", "mimeType": "audio/wav", "data": "S"},
    {"type": "IMAGE", "mimeType": "image/png", "data": "S"},
    {"mimeType": "image/png", "data": "S"},
    {**IMAGE, "data": {"blob": "S"}},
    {**IMAGE, "data": ["S"]},
    {**IMAGE, "blob": "S"},
    {**IMAGE, "data": "AAAA", "blob": "S"},
    {**IMAGE, "data": "AAAA", "_meta": {"blob": "S"}},
    {**IMAGE, "data": "AAAA", "annotations": {"blob": "S", "uri": "a:b"}},
    {"type": "text", "blob": "S"},
    {"type": "text", "uri": "a:b", "blob": "S"},
    {"type": "text", "text": {"blob": "S"}},
    {"type": "text", "text": {"uri": "a:b", "blob": "S"}},
    {"type": "text", "text": {**IMAGE, "data": "S"}},
    {"type": "text", "text": [{**IMAGE, "data": "S"}]},
    {"type": "text", "text": "x", "_meta": {"blob": "S", "uri": "a:b"}},
    {"type": "text", "text": "x", "_meta": {**IMAGE, "data": "S"}},
    {"type": "text", "text": "x", "_meta": {"type": "resource", "resource": {"uri": "a:b", "blob": "S"}}},
    {"type": "resource", "resource": {"blob": "S"}},
    {"type": "resource", "resource": {"uri": 1, "blob": "S"}},
    {"type": "resource", "resource": {"uri": "a:b", "blob": {"blob": "S"}}},
    {"type": "resource", "resource": {"uri": "a:b", "text": "x", "_meta": {"blob": "S"}}},
    {"type": "resource", "resource": {"uri": "a:b", "resource": {"uri": "a:b", "blob": "S"}}},
    {"type": "resource", "uri": "a:b", "blob": "S"},
    {"type": "resource", "resource": {"uri": "a:b", "blob": "S"}, **NAMES},
    {**IMAGE, "data": "S", **NAMES},
    {"type": "resource_link", "uri": "a:b", "name": "n", "_meta": {"blob": "S"}},
    {"type": "unknown", "data": "S"},
    {"type": "unknown", "resource": {"uri": "a:b", "blob": "S"}},
]


def with_secret(value: Any, secret: str) -> Any:
    return json.loads(json.dumps(value).replace('"S"', json.dumps(secret)))


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("secret", [PASSWORD, LOOKALIKE])
@pytest.mark.parametrize("block", NOT_BINARY, ids=lambda block: json.dumps(block)[:80])
def test_a_secret_is_masked_wherever_the_protocol_has_no_binary_data(
    block: dict[str, Any], secret: str
) -> None:
    block = with_secret(block, secret)
    assert secret.encode() not in prepare({"content": [block]})
    assert secret.encode() not in prepare({"content": [], "structuredContent": {"content": [block]}})
    assert secret.encode() not in prepare({"content": [], "_meta": {"content": [block]}})
    for content in (block, [block], [[block]]):
        prompt = {"messages": [{"role": "user", "content": content}]}
        assert secret.encode() not in gate.finish(gate.answer_steps(json.dumps(prompt).encode()))


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize(
    "answer",
    [
        {"contents": [{"blob": "S"}]},
        {"contents": {"uri": "a:b", "blob": "S"}},
        {"contents": [{"uri": "a:b", "text": {"uri": "a:b", "blob": "S"}}]},
        {"contents": [{"uri": "a:b", "text": "x", "_meta": {"uri": "a:b", "blob": "S"}}]},
        {"contents": [{"uri": "a:b", "blob": "S"}], **NAMES},
        {"contents": [{"uri": "a:b", "blob": "S", **NAMES}]},
        {"messages": [{"role": "user", "content": {**IMAGE, "data": "S"}, **NAMES}]},
        {"messages": {"role": "user", "content": {**IMAGE, "data": "S"}}},
        {"uri": "a:b", "blob": "S"},
        {"resource": {"uri": "a:b", "blob": "S"}},
        {"_meta": {"contents": [{"uri": "a:b", "blob": "S"}]}},
        [{"uri": "a:b", "blob": "S"}],
    ],
    ids=lambda answer: json.dumps(answer)[:80],
)
@pytest.mark.parametrize("secret", [PASSWORD, LOOKALIKE])
def test_a_secret_in_an_answer_is_masked_wherever_the_protocol_has_no_binary_data(
    answer: Any, secret: str
) -> None:
    raw = json.dumps(with_secret(answer, secret)).encode()
    assert secret.encode() not in gate.finish(gate.answer_steps(raw))


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("data", ["QUJDREVGRw==", "QUJDREVGRw", "QUJD\nREVG\r\nRw==", "-_-_", LOOKALIKE])
def test_binary_data_of_prompts_and_resources_stays_as_it_is(data: str) -> None:
    image, part = {**IMAGE, "data": data}, {"uri": "a:b", "blob": data}
    block = {"type": "resource", "resource": part}
    for answer in (
        {"messages": [{"role": "user", "content": image}, {"role": "user", "content": [image, block]}]},
        {"contents": [part]},
    ):
        # The hidden character is there for the answer to be opened at all.
        raw = json.dumps({**answer, "hidden": "\u200b"}).encode()
        assert json.loads(gate.finish(gate.answer_steps(raw))) == {**answer, "hidden": ""}


ODD_SECRETS = [
    "CORP\\nadmin77",
    "a\\x41bcdef99",
    "k\\u0041bcdefg1",
    "p%40ssw0rd99x",
    "p&#64;ssw0rd99x",
    "zz0x41bcdefgh9",
    "x%2525y%25zAB12",
]


@pytest.mark.requirement("HARD-62")
@pytest.mark.parametrize("secret", ODD_SECRETS)
def test_a_secret_that_looks_like_an_escape_is_masked(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masker = Masker()
    masker.learn(secret)
    use_secrets(monkeypatch, masker)
    one_escaped = json.dumps({"a": f"x {secret} y"}).replace("d", "\\u0064").replace("b", "\\u0062")
    for said in (json.dumps({"a": secret}), json.dumps({secret: 1}), one_escaped):
        cleaned = json.loads(gate.json_bytes(said.encode()) or b"null")
        assert secret not in [*cleaned, *cleaned.values()]
        assert secret not in json.dumps(cleaned, ensure_ascii=False)
    assert secret not in gate.content(f"x {secret} y")
    assert secret not in gate.text(f"x {secret} y")
    assert quote(secret, safe="") not in gate.content(f"x {quote(secret, safe='')} y")


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("length", [65, 500, 2_400, 8_000])
def test_a_long_secret_is_masked_without_a_pause(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = base64.b64encode(bytes((7 * n) % 251 for n in range(length))).decode()[:length]
    masker = Masker()
    masker.learn(secret)
    forms = [
        secret,
        secret.encode().hex(),
        base64.b64encode(secret.encode()).decode(),
        quote(secret, safe=""),
    ]
    for form in forms:
        started = time.thread_time()
        masked = masker.mask_known(f"before {form} after")
        assert time.thread_time() - started < LONGEST_STEP
        assert secret not in masked
        assert form not in masked


NEAR_MISSES: dict[str, Callable[[str], str]] = {
    "JSON escapes": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "escaped JSON escapes": lambda text: "".join(f"\\\\\\\\u{ord(letter):04X}" for letter in text),
    "hex escapes": lambda text: "".join(f"\\x{ord(letter):02x}, " for letter in text),
    "hex between backslashes": lambda text: "\\\\\\\\".join(f"{ord(letter):02x}" for letter in text),
    "hex between signs": lambda text: ",,\\\\x".join(f"{ord(letter):02x}" for letter in text),
    "HTML": lambda text: "".join(f"&amp;amp;#x{ord(letter):x};" for letter in text),
    "URL": lambda text: "".join(f"%25{ord(letter):02x}" for letter in text),
    "mail": lambda text: "=\n".join(text),
    "JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text))),
}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("write", NEAR_MISSES.values(), ids=NEAR_MISSES)
@pytest.mark.parametrize(
    "secret", ["Zq7Kp2Lm9Xw4TtRbVn8Yc3Hd5J", "\\\\\\\\\\\\Zq7Kp2", "CO\\RP\\\\ad\\m\\in7\\Kx\\Y9"]
)
def test_a_text_that_only_begins_like_a_secret_takes_no_longer(
    secret: str, write: Callable[[str], str]
) -> None:
    masker = Masker()
    masker.learn(secret)
    for missing in (1, 2):
        near = write(f"{secret[:-missing]}!")
        started = time.thread_time()
        masked = masker.mask_known(f"{write(secret)} {near} {near}")
        assert time.thread_time() - started < LONGEST_STEP
        assert write(secret) not in masked


def _quote(text: str) -> str:
    return quote(text, safe="")


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("write", [str, _quote, NEAR_MISSES["URL"]])
def test_many_secrets_in_one_text_take_hardly_longer_than_one(write: Callable[[str], str]) -> None:
    # New ones each time: patterns that were compiled before are remembered.
    secrets = [base64.b64encode(os.urandom(36)).decode() for _ in range(60)]
    masker = Masker()
    masker.learn(*secrets)
    text = " and ".join(map(write, secrets))
    for _ in range(2):
        started = time.thread_time()
        masked = masker.mask_known(text)
        assert time.thread_time() - started < LONGEST_STEP
        assert not any(write(secret) in masked for secret in secrets)
