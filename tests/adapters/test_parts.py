"""What a tool brought, as text and media."""

import json

import pytest

from fairlead.adapters.parts import Media, parts_of, text_of
from tests.adapters.support import PIXEL, answer, image, text


def test_blocks_of_every_kind() -> None:
    parts = parts_of(
        answer(
            text("said"),
            image(),
            {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PIXEL}},
            {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "The other."},
            {"type": "resource_link", "uri": "file:///c.txt"},
        )
    )
    assert parts == [
        "said",
        Media("image/png", PIXEL),
        Media("audio/wav", PIXEL),
        "file:///a.txt\ninside",
        Media("application/octet-stream", PIXEL),
        "b The other. <file:///b.txt>",
        "<file:///c.txt>",
    ]


@pytest.mark.requirement("NEED-31")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "data": PIXEL},
        {"type": "image"},
        {"type": "image", "data": 5},
        {"type": "text", "text": None},
        {"type": "resource", "resource": {"uri": "x"}},
        {"type": "resource", "resource": PIXEL},
        {"data": PIXEL},
    ],
)
def test_what_nobody_knows_is_named_and_its_data_never_shown(block: dict[str, object]) -> None:
    shown = text_of(answer(block))
    assert "cannot be shown" in shown
    assert PIXEL not in shown


def test_structured_content_stands_in_where_there_is_no_text() -> None:
    assert json.loads(text_of(answer(structuredContent={"n": [1]}))) == {"n": [1]}
    assert text_of(answer(text("one"), structuredContent={"n": 1})) == "one"


def test_there_is_always_something_to_say() -> None:
    assert text_of(answer()) == "(the tool returned nothing)"
    assert text_of(answer(isError=True)) == "(the tool failed and did not say why)"
