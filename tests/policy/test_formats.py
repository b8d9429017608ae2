"""Pins and locks of earlier releases: compared as they were made, and extended where nothing changed."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.catalog.definitions import FORMAT
from fairlead.catalog.tools import Listing, read_tools
from fairlead.errors import ConfigUnreadable, StoreError
from fairlead.policy.lockfile import Lock, check_lock, drifts, lock_server, lock_text, read_lock
from fairlead.policy.pins import Pins, check, encode_pins, extend, merge_pins, pin_by_review, read_pins
from fairlead.policy.review import tools_to_review
from tests.conftest import Machine

DATA = Path(__file__).parents[1] / "data"
STORED: dict[str, Any] = json.loads((DATA / "pins_format_1.json").read_text())
"""What a release that had no formats pinned of these very definitions."""


def old_pins() -> Pins:
    return read_pins(STORED["pins"].encode(), "x")


def listing(*definitions: bytes, instructions: str | None = "Be kind.") -> Listing:
    raw = definitions or tuple(text.encode() for text in STORED["definitions"])
    return Listing(tools=tuple(read_tools("x", iter(raw))[0]), instructions=instructions)


def edited(name: str, **fields: object) -> Listing:
    """The definitions, one of them with other fields."""
    found: list[bytes] = []
    for text in STORED["definitions"]:
        if f'"name": "{name}"' in text:
            found.append(json.dumps({**json.loads(text), **fields}).encode())
        else:
            found.append(text.encode())
    return listing(*found)


@pytest.mark.requirement("HARD-64", "HARD-90")
def test_nothing_is_quarantined_by_an_upgrade_and_every_pin_is_extended_once() -> None:
    pins = old_pins()
    assert {pin.format for pin in pins.tools.values()} == {1}
    assert check(pins, listing()).tools == {}
    extended = extend(pins, listing())
    assert extended is not None
    assert {pin.format for pin in extended.tools.values()} == {FORMAT}
    assert check(extended, listing()).tools == {}
    assert extend(extended, listing()) is None
    assert read_pins(encode_pins(extended), "x") == extended
    kept = {name: (pin.by, pin.at) for name, pin in extended.tools.items()}
    assert kept == {name: (pin.by, pin.at) for name, pin in pins.tools.items()}


@pytest.mark.requirement("HARD-64", "HARD-90")
@pytest.mark.parametrize(
    "fields",
    [
        {"icons": [{"src": "https://example.com/other.png"}]},
        {"icons": []},
        {"_meta": {"ui": {"resourceUri": "ui://other"}}},
        {"_meta": {}},
        {"unknown": "other"},
        {"execution": {"taskSupport": "forbidden"}},
    ],
)
def test_what_an_old_pin_did_not_cover_may_differ_until_it_is_extended(fields: dict[str, Any]) -> None:
    now = edited("full", **fields)
    assert check(old_pins(), now).tools == {}
    extended = extend(old_pins(), now)
    assert extended is not None
    assert check(extended, now).tools == {}
    dropped = set(fields) <= {"unknown"}
    assert check(extended, listing()).tools == ({} if dropped else {"full": "changed"})


@pytest.mark.requirement("HARD-64", "HARD-90")
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("plain", {"description": "Say it to me."}),
        ("plain", {"title": "New"}),
        ("full", {"annotations": {"readOnlyHint": False, "title": "Full"}}),
        ("full", {"outputSchema": {"type": "object"}}),
        ("categorised", {"inputSchema": {"type": "object"}}),
        ("defaulted", {"description": "Another."}),
    ],
)
def test_a_tool_that_changed_since_an_old_pin_is_quarantined_as_before(
    name: str, fields: dict[str, Any]
) -> None:
    now = edited(name, **fields)
    assert check(old_pins(), now).tools == {name: "changed"}
    extended = extend(old_pins(), now)
    assert extended is not None
    assert extended.tools[name].format == 1
    assert check(extended, now).tools == {name: "changed"}


@pytest.mark.requirement("HARD-64")
def test_a_default_that_changes_at_every_start_does_not_keep_a_pin_from_being_extended() -> None:
    def starting(text: str) -> Listing:
        schema = {"type": "object", "properties": {"fields": {"type": "string", "default": text}}}
        return edited("defaulted", inputSchema=schema)

    extended = extend(old_pins(), starting("second"))
    assert extended is not None
    assert extended.tools["defaulted"].format == FORMAT
    assert b"second" not in bytes(extended.tools["defaulted"].definition)
    assert check(extended, starting("third")).tools == {"defaulted": "defaults"}
    with_icon = starting("third").tools[3].definition[:-1] + b',"icons":[{"src":"https://e.test/i"}]}'
    assert check(extended, listing(with_icon)).tools == {"defaulted": "changed"}


@pytest.mark.requirement("HARD-64")
def test_an_extended_pin_replaces_the_old_one_in_the_store_and_no_newer_review() -> None:
    extended = extend(old_pins(), listing())
    assert extended is not None
    assert merge_pins(extended, old_pins()) == extended
    reviewed = pin_by_review(old_pins(), listing().tools[:1], instructions=None, patterns=[], at=1.0)
    assert merge_pins(extended, reviewed).tools["plain"] == reviewed.tools["plain"]


@pytest.mark.requirement("HARD-83", "HARD-90")
@pytest.mark.parametrize(
    ("stored", "match"),
    [
        (b"", "damaged"),
        (b"{]", "damaged"),
        (b"null", "damaged"),
        (b"[]", "damaged"),
        (b'{"tools": {"a": {}}}', "damaged"),
        (b'{"tools": 7}', "damaged"),
        (b"\x00\xff", "damaged"),
        (b'{"tools": {"a": {"strict": "", "loose": "", "definition": {}, "by": "x", "at": 0}}}', "damaged"),
        (
            b'{"tools":{"a":{"strict":"","loose":"","definition":{},"by":"review","at":0,"format":9}}}',
            "newer",
        ),
        (
            b'{"tools":{"a":{"strict":"","loose":"","definition":{},"by":"review","at":0,"format":0}}}',
            "newer",
        ),
    ],
)
def test_pins_that_cannot_be_read_are_an_error_and_not_none(stored: bytes, match: str) -> None:
    with pytest.raises(StoreError, match=match) as caught:
        read_pins(stored, "x")
    assert caught.value.hint


# Locks.


def old_lock(machine: Machine) -> Lock:
    path = machine.project / "fairlead.lock"
    path.write_text((DATA / "lock_format_1.json").read_text())
    found = read_lock(path)
    assert found is not None
    return found


@pytest.mark.requirement("HARD-64", "HARD-90")
def test_an_old_lock_holds_as_it_was_made_and_one_written_anew_covers_icons_and_meta(
    machine: Machine,
) -> None:
    old = old_lock(machine).servers["x"]
    assert check_lock(old, listing()).tools == {}
    other_icon = edited("full", icons=[{"src": "https://example.com/b.png"}])
    assert check_lock(old, other_icon).tools == {}
    assert check_lock(old, edited("full", description="Other.")).tools == {"full": "changed"}

    machine.write_user(json.dumps({"servers": {"x": {"url": "http://127.0.0.1:9/mcp"}}}))
    server = machine.load().servers["x"]
    now = lock_server(server, listing(), protocol="2025-11-25", reported="x 1")
    assert check_lock(now, listing()).tools == {}
    assert check_lock(now, other_icon).tools == {"full": "changed"}
    same = lock_server(server, listing(), protocol="2025-11-25", reported="x 1", format=1)
    assert drifts({"x": old}, {"x": same}) == []


@pytest.mark.requirement("HARD-90")
def test_a_lock_of_two_formats_is_read_as_it_was_written(machine: Machine) -> None:
    old = old_lock(machine)
    machine.write_user(json.dumps({"servers": {"y": {"url": "http://127.0.0.1:9/mcp"}}}))
    new = lock_server(machine.load().servers["y"], listing(), protocol="2025-11-25", reported=None)
    path = machine.project / "fairlead.lock"
    path.write_text(lock_text(Lock(servers={**old.servers, "y": new})))
    found = read_lock(path)
    assert found is not None
    assert {name: of.format for name, of in found.servers.items()} == {"x": 1, "y": FORMAT}
    assert check_lock(found.servers["x"], listing()).tools == {}
    text = json.loads(path.read_text())
    text["servers"]["y"]["format"] = 3
    path.write_text(json.dumps(text))
    with pytest.raises(ConfigUnreadable, match="newer"):
        read_lock(path)


@pytest.mark.requirement("HARD-64")
def test_a_review_shows_icons_and_meta_that_changed_and_nothing_that_is_dropped(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"url": "http://127.0.0.1:9/mcp"}}}))
    server = machine.load().servers["x"]
    pins = extend(old_pins(), listing())
    now = edited("full", _meta={"ui": {"resourceUri": "ui://other"}, "example.com/tags": ["b"]}, unknown="x")
    tool = next(tool for tool in tools_to_review(server, now, pins) if tool.name == "full")
    assert tool.state == "changed"
    before = tool.before()
    assert before is not None
    assert before["_meta"] == {"ui": {"resourceUri": "ui://full"}}
    assert tool.definition()["_meta"] == {"ui": {"resourceUri": "ui://other"}}
    assert "unknown" not in msgspec.json.encode(tool.definition()).decode()
