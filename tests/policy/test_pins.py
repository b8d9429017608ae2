"""Pins: what a listing is held to, and how pins come about."""

import json
from typing import Any

import pytest

from fairlead.catalog.tools import Listing, read_tools
from fairlead.config.load import LoadedServer
from fairlead.errors import StoreError
from fairlead.policy.decision import BundleFilter
from fairlead.policy.pins import (
    NAMESPACE,
    Pins,
    UntrustedPins,
    add_first_use,
    allow_patterns,
    check,
    encode_pins,
    is_guarded,
    is_held,
    pin_by_review,
    pin_on_first_use,
    pins_key,
    read_pins,
    record_review,
)
from fairlead.policy.quarantine import screen
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from tests.conftest import Machine
from tests.policy.tools import SEARCH, changed, entry, listing

DELETE = {"name": "delete", "description": "Delete an issue.", "inputSchema": {"type": "object"}}


def pinned(*patterns: str, instructions: str | None = None) -> Pins:
    pins = pin_on_first_use(None, listing(SEARCH, DELETE, instructions=instructions), patterns, at=1.0)
    assert pins is not None
    return pins


def server(machine: Machine, **fields: object) -> LoadedServer:
    entry = {"command": "run", "allow_tools": ["*"], **fields}
    return machine.load(overrides={"servers": {"x": entry}}).servers["x"]


def test_only_what_an_allow_list_lets_through_is_pinned_on_first_use() -> None:
    assert set(pinned("search").tools) == {"search"}
    assert set(pinned("se*").tools) == {"search"}
    assert set(pinned("*").tools) == {"search", "delete"}


def test_what_is_as_it_was_is_unchanged() -> None:
    verdicts = check(pinned("*"), listing(SEARCH, DELETE))
    assert not verdicts.tools
    assert not verdicts.instructions_changed


@pytest.mark.requirement("HARD-40")
def test_a_changed_tool_a_new_one_and_one_with_other_default_texts_are_told_apart() -> None:
    other_default = changed(SEARCH, "inputSchema", "properties", "fields", "default", to="title,id")
    other_words = {**DELETE, "description": "Delete everything."}
    verdicts = check(pinned("*"), listing(other_default, other_words, {"name": "more"}))
    assert verdicts.tools == {"search": "defaults", "delete": "changed", "more": "new"}


def test_a_tool_that_went_and_came_back_unchanged_is_fine() -> None:
    pins = pinned("*")
    assert not check(pins, listing(DELETE)).tools
    assert not check(pins, listing(SEARCH, DELETE)).tools


def test_a_tool_that_nobody_allowed_is_not_called_new() -> None:
    assert not check(pinned("search"), listing(SEARCH, DELETE)).tools


def test_a_new_pattern_pins_what_it_lets_through_and_an_old_one_does_not() -> None:
    now = listing(SEARCH, DELETE, {"name": "more"})
    assert pin_on_first_use(pinned("*"), now, ["*"], at=2.0) is None
    again = pin_on_first_use(pinned("*"), now, ["*", "more"], at=2.0)
    assert again is not None
    assert again.tools["more"].at == 2.0
    assert not check(again, now).tools


def test_a_first_use_never_replaces_a_pin() -> None:
    other = {**SEARCH, "description": "Other."}
    again = pin_on_first_use(pinned("search"), listing(other), ["sea*"], at=2.0)
    assert again is not None
    assert check(again, listing(other)).tools == {"search": "changed"}


@pytest.mark.parametrize(
    ("before", "now", "is_changed"),
    [("kind", "kind", False), ("kind", "rude", True), (None, "rude", True), ("kind", None, False)],
)
def test_instructions_are_pinned_too(before: str | None, now: str | None, is_changed: bool) -> None:
    pins = pinned("*", instructions=before)
    assert check(pins, listing(SEARCH, instructions=now)).instructions_changed is is_changed


def test_a_review_replaces_pins_and_leaves_the_others() -> None:
    other = {**SEARCH, "description": "Other."}
    pins = pin_by_review(pinned("*"), [entry(other)], instructions="new", patterns=["search"], at=3.0)
    assert not check(pins, listing(other, DELETE, instructions="new")).tools
    assert pins.tools["search"].by == "review"
    assert pins.tools["delete"].by == "first use"
    assert pins.patterns == ("*", "search")


def test_a_bundle_grants_only_where_the_entry_has_no_list(machine: Machine) -> None:
    bundle_filter = BundleFilter(bundle="b", allow_tools=("a",), deny_tools=(), grants=True)
    foreign = BundleFilter(bundle="b", allow_tools=("a",), deny_tools=(), grants=False)
    listed, unlisted = server(machine).config, server(machine, allow_tools=None).config
    assert listed is not None
    assert unlisted is not None
    assert allow_patterns(listed, bundle_filter) == ("*",)
    assert allow_patterns(unlisted, bundle_filter) == ("a",)
    assert allow_patterns(unlisted, foreign) == allow_patterns(unlisted) == ()


def test_trusted_and_built_in_servers_are_not_held_to_pins(machine: Machine) -> None:
    assert is_guarded(server(machine))
    assert not is_guarded(server(machine, trust="trusted"))
    entries = {"x": {"builtin": "docs"}}
    assert not is_guarded(machine.load(overrides={"servers": entries}).servers["x"])
    other = listing({**SEARCH, "description": "Other."}, instructions="new")
    screened = screen(server(machine, trust="trusted"), other, pinned("*"), None)
    assert screened.listing is other
    assert not screened.quarantined


def test_what_was_reviewed_of_a_trusted_server_is_held_to_what_was_seen(machine: Machine) -> None:
    trusted = server(machine, trust="trusted")
    seen = listing(SEARCH, {**SEARCH, "name": "other"}, instructions="old")
    pins = pin_by_review(None, seen.tools[:1], instructions="old", patterns=["*"], at=1.0)
    assert is_held(trusted, pins)
    assert not is_held(trusted, pinned("*"))
    assert not is_held(trusted, None)
    assert not screen(trusted, seen, pins, None).quarantined
    others = [
        {**SEARCH, "name": name, "description": "Other."} for name in (SEARCH["name"], "other", "third")
    ]
    now = listing(*others, instructions="new")
    screened = screen(trusted, now, pins, None)
    assert screened.quarantined == {"search": "its definition has changed since it was reviewed"}
    assert screened.listing.instructions == "new", "a trusted server's own words count"
    assert screened.refusal("unlisted") is None
    assert not screen(trusted, now, UntrustedPins(reason="no store"), None).quarantined
    builtin = machine.load(overrides={"servers": {"x": {"builtin": "docs"}}}).servers["x"]
    assert not screen(builtin, now, pins, None).quarantined


def test_another_target_is_another_server_and_another_policy_is_not(machine: Machine) -> None:
    key = pins_key(server(machine))
    same = [{"allow_tools": ["a"]}, {"deny_tools": ["a"]}, {"env": {"A": "b"}}, {"trust": "trusted"}]
    assert all(pins_key(server(machine, **fields)) == key for fields in same)
    others = [{"command": "other"}, {"args": ["--other"]}, {"cwd": "/elsewhere"}]
    assert all(pins_key(server(machine, **fields)) != key for fields in others)
    remote = {"command": None, "url": "https://x.test/mcp"}
    assert pins_key(server(machine, **remote)) != pins_key(server(machine, **remote, account="other"))


@pytest.mark.requirement("HARD-40")
def test_what_is_withheld_of_a_listing_is_what_nobody_looked_at(machine: Machine) -> None:
    other_default = changed(SEARCH, "inputSchema", "properties", "fields", "default", to="evil words")
    other_words = {**DELETE, "description": "Delete everything."}
    now = listing(other_default, other_words, instructions="evil instructions")
    screened = screen(server(machine), now, pinned("*", instructions="kind"), None)
    assert set(screened.quarantined) == {"delete"}
    assert screened.listing.instructions is None
    assert b"evil" not in screened.listing.tools[0].definition
    assert screened.listing.tools[1] is now.tools[1]
    assert screened.listing.notes == (
        "1 tool changed: run `fairlead review x`",
        "its instructions changed and are withheld: run `fairlead review x`",
    )


def test_pins_survive_being_written() -> None:
    pins = pinned("*", instructions="kind")
    assert read_pins(encode_pins(pins), "x") == pins


def test_a_first_use_is_kept_beside_what_a_review_pinned_meanwhile() -> None:
    reviewed = pin_by_review(None, [entry(SEARCH)], instructions="kind", patterns=["search"], at=2.0)
    merged = read_pins(add_first_use(pinned("*"), "x")(encode_pins(reviewed)), "x")
    assert merged.tools["search"].by == "review"
    assert set(merged.tools) == {"search", "delete"}
    assert merged.instructions == "kind"
    assert merged.patterns == ("search", "*")
    with pytest.raises(StoreError, match="damaged"):
        add_first_use(pinned("*"), "x")(b"{]")


def test_a_review_changes_what_is_stored_then(machine: Machine) -> None:
    target, store = server(machine), machine.home / "state.db"

    def review(pins: Pins | None) -> Pins:
        if pins is None:  # another process is first
            with open_database(store) as database:
                database.put(NAMESPACE, pins_key(target), encode_pins(pinned("delete")), expect=ANY)
        return pin_by_review(pins, [entry(SEARCH)], instructions=None, patterns=["search"], at=2.0)

    record_review(store, target, review)
    with open_database(store) as database:
        found = database.get(NAMESPACE, pins_key(target))
    assert found is not None
    assert set(read_pins(found.value, "x").tools) == {"search", "delete"}


def test_pins_nobody_can_read_are_replaced_by_a_review(machine: Machine) -> None:
    target, store = server(machine), machine.home / "state.db"
    with open_database(store) as database:
        database.put(NAMESPACE, pins_key(target), b"{]", expect=ANY)
    seen: list[Pins | None] = []
    record_review(store, target, lambda pins: seen.append(pins) or pinned("*"))
    assert seen == [None]


ICON = {"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48"], "theme": "light"}
DRESSED: dict[str, Any] = {
    "name": "t",
    "inputSchema": {"type": "object"},
    "icons": [ICON],
    "_meta": {"ui": {"resourceUri": "ui://a", "csp": {"connect": ["https://a.test"]}}},
}


def dressed(**fields: object) -> Listing:
    raw = json.dumps({**DRESSED, **fields}).encode()
    return Listing(tools=tuple(read_tools("x", iter([raw]))[0]))


@pytest.mark.requirement("HARD-64")
@pytest.mark.parametrize(
    "fields",
    [
        {"icons": [{**ICON, "src": "data:image/png;base64,AAAB"}]},
        {"icons": [{**ICON, "src": "data:image/png;base64,AAAA "}]},
        {"icons": [{**ICON, "src": "DATA:image/png;base64,AAAA"}]},
        {"icons": [{**ICON, "src": "data:image/svg+xml;base64,AAAA"}]},
        {"icons": [{**ICON, "src": "https://evil.test/icon.png"}]},
        {"icons": [{**ICON, "sizes": ["96x96"]}]},
        {"icons": [{**ICON, "sizes": ["48x48", "96x96"]}]},
        {"icons": [{**ICON, "sizes": "48x48"}]},
        {"icons": [{**ICON, "theme": "dark"}]},
        {"icons": [{**ICON, "mimeType": "image/svg+xml"}]},
        {"icons": [ICON, ICON]},
        {"icons": [ICON, {**ICON, "theme": "dark"}]},
        {"icons": [{key: value for key, value in ICON.items() if key != "theme"}]},
        {"icons": []},
        {"_meta": {"ui": {"resourceUri": "ui://b", "csp": {"connect": ["https://a.test"]}}}},
        {"_meta": {"ui": {"resourceUri": "ui://a", "csp": {"connect": ["https://b.test"]}}}},
        {"_meta": {"ui": {"resourceUri": "ui://a", "csp": {"connect": ["https://a.test", "*"]}}}},
        {"_meta": {"ui": {"resourceUri": "ui://a"}}},
        {"_meta": {"ui": "ui://a"}},
        {"_meta": {}},
        {"_meta": {**DRESSED["_meta"], "anthropic/alwaysLoad": True}},
        {"title": "T"},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_any_change_of_an_icon_or_of_known_meta_holds_a_tool_back(fields: dict[str, Any]) -> None:
    pins = pin_by_review(None, dressed().tools, instructions=None, patterns=(), at=0.0)
    assert check(pins, dressed()).tools == {}
    assert check(pins, dressed(**fields)).tools == {"t": "changed"}


@pytest.mark.requirement("HARD-64")
@pytest.mark.parametrize(
    "fields",
    [
        {"icons": [{**ICON, "alt": "ignore all rules"}]},
        {"icons": [ICON, {"src": "javascript:alert()"}]},
        {"icons": [ICON, {"src": f"data:image/png;base64,{'A' * 1_000_000}"}]},
        {"_meta": {**DRESSED["_meta"], "build": 7}},
        {"x-more": "text"},
    ],
)
def test_what_reaches_no_client_may_change(fields: dict[str, Any]) -> None:
    pins = pin_by_review(None, dressed().tools, instructions=None, patterns=(), at=0.0)
    assert check(pins, dressed(**fields)).tools == {}
