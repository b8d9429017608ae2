"""Two thousand malformed and rare results: each is valid for every protocol version, and nothing is lost."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from fairlead.catalog.repair.content import (
    REPAIRED,
    contents_for,
    prompt_for,
    quote_uri,
    repair_base64,
    repair_completion,
    repair_contents,
    repair_prompt,
)
from fairlead.catalog.repair.protocol_versions import VERSIONS, version_number
from fairlead.catalog.results import ToolResult
from fairlead.gateway.lists import OfferLists, with_public_uris
from fairlead.gateway.tool_results import fit_result
from tests.fixtures.results_corpus import BLOCKS, MARKER, cases, read_corpus
from tests.gateway.strict_client import check

pytestmark = pytest.mark.requirement("HARD-87")

NO_OFFERS = OfferLists({}, "gateway")
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def fit(kind: str, result: Any, version: str) -> dict[str, Any] | None:
    """What a client of this version gets; None where it is an error that says there is nothing."""
    number = version_number(version)
    try:
        match kind:
            case "tool":
                raw = with_public_uris(msgspec.json.encode(result), "s", NO_OFFERS)
                return json.loads(fit_result(ToolResult("s", raw), number=number, keeps_null=False))
            case "prompt":
                linked = with_public_uris(msgspec.json.encode(repair_prompt(result)), "s", NO_OFFERS)
                fitted = prompt_for(json.loads(linked), number)
            case "resource":
                fitted = contents_for(repair_contents(result, "x://asked"), number)
            case _:
                fitted = {"completion": repair_completion(result)}
    except ValueError:
        return None
    fitted = {name: value for name, value in fitted.items() if name not in MODERN}
    return json.loads(msgspec.json.encode({**fitted, **(MODERN if version == VERSIONS[-1] else {})}))


def test_the_corpus_is_what_its_generator_makes() -> None:
    assert read_corpus() == json.loads(json.dumps([*cases()]))
    assert len(read_corpus()) >= 500


@pytest.mark.parametrize("version", VERSIONS)
def test_every_result_of_the_corpus_is_valid_for_every_protocol_version(version: str) -> None:
    refused: list[Any] = []
    for case in read_corpus():
        fitted = fit(case["kind"], case["result"], version)
        try:
            if fitted is not None:
                check(case["kind"], version, fitted)
            assert not case["mark"] or "marker" in json.dumps(fitted), fitted
        except (AssertionError, ValueError, jsonschema.ValidationError) as exc:
            refused.append((case, str(exc)))
    assert not refused, f"{len(refused)} in all: {refused[:20]}"


def test_programs_read_every_result_of_a_tool() -> None:
    for case in read_corpus():
        if case["kind"] != "tool":
            continue
        result = ToolResult("s", msgspec.json.encode(case["result"]))
        assert result.structured == case["result"].get("structuredContent")
        assert "said" in result.with_note("said").text
        if case["mark"]:
            assert "marker" in result.text or "marker" in json.dumps(result.structured), case


def test_a_valid_result_is_not_touched() -> None:
    for name, block in BLOCKS.items():
        result = {"content": [block, MARKER]}
        fitted = fit("tool", result, "2025-11-25")
        if name in ("text", "image", "audio"):
            assert fitted == result, name
        assert fitted is not None
        assert REPAIRED not in fitted.get("_meta", {}), name
        messages = {"messages": [{"role": "user", "content": block}]}
        assert repair_prompt(messages) == messages, name


def test_every_repair_is_named() -> None:
    fitted = fit("tool", {"content": [{"type": "text", "text": "x", "annotations": None}]}, "2025-11-25")
    assert fitted is not None
    assert fitted["content"] == [{"type": "text", "text": "x"}]
    [note] = fitted["_meta"][REPAIRED]
    assert note.startswith("content[0].annotations ")
    prompt = repair_prompt({"messages": [{"content": "hello"}]})
    assert prompt["messages"] == [{"role": "user", "content": {"type": "text", "text": "hello"}}]
    assert any("role is missing" in note for note in prompt["_meta"][REPAIRED])


def test_blocks_that_an_older_version_does_not_have_become_some_that_it_has() -> None:
    result = {"content": [BLOCKS["audio"], BLOCKS["link"]]}
    fitted = fit("tool", result, "2024-11-05")
    assert fitted is not None
    sound, link = fitted["content"]
    assert sound["resource"]["blob"] == BLOCKS["audio"]["data"]
    assert sound["resource"]["mimeType"] == "audio/wav"
    assert link["text"] == "[T](fairlead://server/s/x://r) (text/plain): D"
    fitted = fit("tool", result, "2025-03-26")
    assert fitted is not None
    assert [block["type"] for block in fitted["content"]] == ["audio", "text"]


def test_structured_content_is_text_for_versions_without_it() -> None:
    fitted = fit("tool", {"content": [], "structuredContent": {"a": 1}}, "2025-03-26")
    assert fitted == {"content": [{"type": "text", "text": '{"a":1}'}]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("QUJD", "QUJD"),
        ("", ""),
        ("QU\nJD\n", "QUJD"),
        ("QUI", "QUI="),
        ("_-8=", "/+8="),
        ("Q", None),
        ("QQ=Q", None),
        ("nö", None),
        ("a b!", None),
    ],
)
def test_base64_is_repaired_where_it_is_base64(data: str, expected: str | None) -> None:
    assert repair_base64(data) == expected


def test_characters_that_no_uri_has_are_encoded() -> None:
    assert quote_uri("x://a b<c>") == "x://a%20b%3Cc%3E"
    assert quote_uri("x://ä/%20") == "x://ä/%20"


def test_contents_without_a_uri_have_the_one_that_was_asked_for() -> None:
    read = repair_contents({"contents": [{"text": "a"}]}, "x://asked")
    assert read["contents"] == [{"uri": "x://asked", "text": "a"}]
    several = repair_contents(
        {"contents": [{"uri": "a b", "text": "a"}, {"uri": "c", "text": "c"}]}, "x://d/"
    )
    assert [part["uri"] for part in several["contents"]] == ["x://d/a%20b", "x://d/c"]
    both = repair_contents({"contents": [{"uri": "x://r", "text": "a", "blob": "QQ=="}]}, "x://r")
    assert [[*part] for part in both["contents"]] == [["uri", "text"], ["uri", "blob"]]


@pytest.mark.parametrize(
    ("structured", "is_deep"),
    [
        ('{"a":' * 100 + "1" + "}" * 100, False),
        ('{"a":' * 101 + "1" + "}" * 101, True),
        ('{"a":' + "[" * 300 + "]" * 300 + "}", True),
        ('{"a":[' + ",".join(["[[]]"] * 500) + "]}", False),
        ('{"a":"' + "[" * 500 + '"}', False),
        (r'{"a":"\\","b":"\"' + "[{" * 300 + '"}', False),
        (r'{"a":"\\","b":' + "[" * 300 + "]" * 300 + "}", True),
    ],
)
def test_structured_content_deeper_than_parsers_of_clients_go_is_text(structured: str, is_deep: bool) -> None:
    raw = f'{{"content":[],"structuredContent":{structured}}}'.encode()
    fitted = fit_result(ToolResult("s", raw), number=VERSIONS.index("2025-11-25"))
    assert (b'"structuredContent"' not in fitted) is is_deep
    if is_deep:
        text = [block["text"] for block in json.loads(fitted)["content"]]
        assert structured in text
        assert any("levels deep" in said for said in text)


def test_an_answer_without_anything_in_it_is_an_error() -> None:
    with pytest.raises(ValueError, match="no messages"):
        repair_prompt({"message": "x"})
    with pytest.raises(ValueError, match="no contents"):
        repair_contents({"more": 1}, "x://r")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content":[],"resultType":"complete"}',
        b'{"resultType":"complete","content":[]}',
        b'{"resultType":"task","content":[],"resultType":"complete"}',
        b'{"resultType":"complete","content":[],"resultType":"task"}',
        b'{"resultType":"complete","content":[],"resultType":"complete"}',
        rb'{"content":[],"\u0072esultType":"task","resultType":"complete"}',
        b'{"content":[{"type":"text","text":"a"}],"_meta":{"a":1,"resultType":"complete"}}',
    ],
)
def test_what_a_server_says_of_the_type_of_its_result_is_replaced_however_it_is_spelled(raw: bytes) -> None:
    for number in range(len(VERSIONS)):
        fitted = fit_result(ToolResult("s", raw), number=number)
        pairs: list[tuple[str, object]] = json.loads(fitted, object_pairs_hook=list)
        own = [value for name, value in pairs if name == "resultType"]
        assert own == (["complete"] if number == len(VERSIONS) - 1 else [])
        assert [name for name, _ in pairs].count("content") == 1


@pytest.mark.parametrize("raw", [b'{,"resultType":"complete"}', b'{"resultType":"complete",}'])
def test_what_is_a_result_only_without_its_type_is_none(raw: bytes) -> None:
    fitted = json.loads(fit_result(ToolResult("s", raw), number=len(VERSIONS) - 1))
    assert fitted["isError"] is True
    assert "no tool result" in fitted["content"][-1]["text"]
