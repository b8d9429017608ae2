"""A resource is found by its owner, never by order."""

import itertools
import json
from typing import Annotated, Any

import pytest
from pydantic import AnyUrl, TypeAdapter, UrlConstraints

from fairlead.catalog.tools import Listing
from fairlead.host.offers.resources import (
    MAX_COMPARED,
    MAX_TEMPLATES,
    OwnedUri,
    ResourceOwners,
    UriConflict,
    qualify,
    split_qualified,
)

NOTES = "file:///notes"


def listing(*uris: str, templates: tuple[str, ...] = ()) -> Listing:
    return Listing(
        resources=tuple(json.dumps({"uri": uri, "name": uri}).encode() for uri in uris),
        templates=tuple(json.dumps({"uriTemplate": text, "name": text}).encode() for text in templates),
    )


def orders(listings: dict[str, Listing]) -> list[ResourceOwners]:
    """The owners, in every order in which the servers can be configured. Servers whose id begins with `t` are
    trusted."""
    trusted = [name for name in listings if name.startswith("t")]
    return [ResourceOwners(dict(order), trusted) for order in itertools.permutations(listings.items())]


def owner(found: OwnedUri | UriConflict | None) -> str | tuple[str, ...] | None:
    if isinstance(found, UriConflict):
        return tuple(sorted(found.servers))
    return found.server_id if found else None


CASES: list[tuple[str, dict[str, Listing], str, str | tuple[str, ...] | None]] = [
    ("listed by one", {"a": listing(NOTES), "b": listing("file:///other")}, NOTES, "a"),
    ("listed by a trusted one too", {"t": listing(NOTES), "a": listing(NOTES)}, NOTES, "t"),
    ("listed by two equals", {"a": listing(NOTES), "b": listing(NOTES)}, NOTES, ("a", "b")),
    (
        "listed by two trusted",
        {"t1": listing(NOTES), "t2": listing(NOTES), "a": listing(NOTES)},
        NOTES,
        ("t1", "t2"),
    ),
    ("any template", {"t": listing(NOTES), "a": listing(templates=("{+any}",))}, NOTES, "t"),
    ("any template, of equals", {"b": listing(NOTES), "a": listing(templates=("{+any}",))}, NOTES, "b"),
    (
        "any template, what nobody lists",
        {"t": listing(NOTES), "a": listing(templates=("{+any}",))},
        "file:///unlisted",
        None,
    ),
    ("any scheme", {"t": listing(NOTES), "a": listing(templates=("{scheme}://{+rest}",))}, "db://x", None),
    ("alone, any template is fine", {"a": listing(templates=("{+any}",))}, "db://x", "a"),
    (
        "a template that matches what another lists speaks for nothing plain",
        {"t": listing(NOTES), "a": listing(templates=("file:///{+path}",))},
        "file:///unlisted",
        None,
    ),
    (
        "a template beside what others have",
        {"t": listing(NOTES), "a": listing(templates=("own://{+path}",))},
        "own://x",
        "a",
    ),
    (
        "a trusted template before an untrusted one",
        {"t": listing(templates=("db://{table}",)), "a": listing(templates=("db://{+any}",))},
        "db://users",
        "t",
    ),
    (
        "a trusted template before an untrusted list",
        {"t": listing(templates=("db://{table}",)), "a": listing("db://users")},
        "db://users",
        "t",
    ),
    (
        "a trusted list before a trusted template",
        {"t1": listing("db://users"), "t2": listing(templates=("db://{table}",))},
        "db://users",
        "t1",
    ),
    (
        "a list before a template of equals",
        {"a": listing("db://users"), "b": listing(templates=("db://{table}",))},
        "db://users",
        "a",
    ),
    (
        "two equal templates",
        {"a": listing(templates=("db://{x}",)), "b": listing(templates=("db://{+y}",))},
        "db://users",
        ("a", "b"),
    ),
    (
        "a trusted template that cannot be read backwards",
        {"t": listing(templates=("db://find{?q}",)), "a": listing(templates=("db://{+any}",))},
        "db://find?q=1",
        "t",
    ),
    ("spelled otherwise: scheme", {"t": listing(NOTES), "a": listing("FILE:///notes")}, NOTES, "t"),
    ("spelled otherwise: percent", {"t": listing(NOTES), "a": listing("file:///%6eotes")}, NOTES, "t"),
    (
        "spelled otherwise, as asked for",
        {"t": listing(NOTES), "a": listing("file:///%6Eotes")},
        "file:///%6Eotes",
        "t",
    ),
    ("nobody's", {"a": listing(NOTES), "b": listing()}, "nowhere://", None),
    ("an empty URI", {"a": listing(""), "b": listing(NOTES)}, "", "a"),
    ("a qualified one", {"t": listing(NOTES), "a": listing(NOTES)}, qualify("a", NOTES), "a"),
    ("a qualified one that is not listed", {"t": listing(NOTES), "a": listing()}, qualify("a", "x://y"), "a"),
    ("a qualified one of no server", {"t": listing(NOTES)}, qualify("gone", NOTES), None),
    (
        "a qualified one that another server lists",
        {"t": listing(NOTES), "a": listing(qualify("t", NOTES), "FAIRLEAD://server/t/x")},
        qualify("t", NOTES),
        "t",
    ),
    (
        "a qualified one that another server has a template for",
        {"t": listing(NOTES), "a": listing(templates=("fairlead://{+any}", "fairlead://server/t/{+any}"))},
        qualify("t", "x"),
        "t",
    ),
]


@pytest.mark.requirement("HARD-65")
@pytest.mark.parametrize(
    ("listings", "uri", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_uri_leads_to_its_owner_in_every_order(
    listings: dict[str, Listing], uri: str, expected: str | tuple[str, ...] | None
) -> None:
    for owners in orders(listings):
        assert owner(owners.resolve(uri)) == expected


@pytest.mark.requirement("HARD-65")
@pytest.mark.parametrize("listings", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_everything_is_listed_under_a_uri_that_leads_to_it_and_to_nothing_else(
    listings: dict[str, Listing],
) -> None:
    for owners in orders(listings):
        public = [definition["uri"] for _, definition in owners.resources]
        assert len(public) == len(set(public)) == sum(len(each.resources) for each in listings.values())
        for owned, definition in owners.resources:
            found = owners.resolve(definition["uri"])
            assert isinstance(found, OwnedUri)
            assert (found.server_id, found.uri) == (owned.server_id, owned.uri)
        texts = [definition["uriTemplate"] for _, definition in owners.templates]
        assert len(texts) == len(set(texts))
        for owned, definition in owners.templates:
            assert owners.resolve_template(definition["uriTemplate"]) == owned


@pytest.mark.requirement("HARD-65")
def test_a_clash_is_named_and_says_how_each_is_reached() -> None:
    for owners in orders({"a": listing(NOTES), "b": listing(NOTES), "c": listing("own://c")}):
        (clash,) = owners.clashes
        assert clash.uri == NOTES
        assert sorted(clash.servers) == ["a", "b"]
        assert qualify("a", NOTES) in clash.hint
        assert {definition["uri"] for _, definition in owners.resources} == {
            qualify("a", NOTES),
            qualify("b", NOTES),
            "own://c",
        }
    for owners in orders({"t": listing(NOTES), "a": listing(NOTES)}):
        assert owners.clashes == ()
        assert {definition["uri"] for _, definition in owners.resources} == {NOTES, qualify("a", NOTES)}
    same = {"a": listing(templates=("x://{y}",)), "b": listing(templates=("x://{y}",))}
    for owners in orders(same):
        assert [clash.uri for clash in owners.clashes] == ["x://{y}"]


@pytest.mark.requirement("HARD-65")
@pytest.mark.parametrize(
    "uri",
    ["file:///a b", "x:y/z?q=1#f", "", "fairlead://server/t/x", "ü://ö", "a" * 9000, "//x//y", "%2F%2f"],
)
def test_a_qualified_uri_can_be_read_back(uri: str) -> None:
    assert split_qualified(qualify("some-server_1", uri)) == OwnedUri(server_id="some-server_1", uri=uri)
    assert split_qualified(uri) is None or uri.startswith("fairlead://server/")


@pytest.mark.requirement("HARD-65")
def test_links_of_a_server_lead_back_to_it() -> None:
    for owners in orders({"t": listing(NOTES), "a": listing(templates=("{+any}",)), "b": listing("own://b")}):
        assert owners.public_uri("t", NOTES) == NOTES
        assert owners.public_uri("a", NOTES) == qualify("a", NOTES)
        assert owners.public_uri("t", "file:///made/just/now") == qualify("t", "file:///made/just/now")
        assert owners.public_uri("b", "own://b") == "own://b"


ODD_URIS = (
    "memo://user:today",
    "http://host:99999/",
    "http://[::1",
    "http://",
    "ws:",
    "http://%zz/",
    "http://256.256.256.256/",
    "x://[",
    "notes.txt",
    "x://a b",
)
"""Names of resources that the URL type of the Python SDK 1 refuses, and with one of them the whole list."""


def test_every_client_accepts_the_uris_of_a_list_and_reads_the_resources_by_them() -> None:
    client = TypeAdapter[AnyUrl](Annotated[AnyUrl, UrlConstraints(host_required=False)])
    owners = ResourceOwners({"a": listing(NOTES, *ODD_URIS)}, [])
    for owned, definition in owners.resources:
        client.validate_python(definition["uri"])
        assert owners.resolve(definition["uri"]) == owned
        assert owners.public_uri("a", owned.uri) == definition["uri"]
        assert owners.resolve(owned.uri) == owned  # as the server's own words name it
    assert owners.public_uri("a", NOTES) == NOTES


@pytest.mark.requirement("HARD-65")
def test_thousands_of_templates_and_uris_cost_little_and_take_nothing() -> None:
    many = tuple(f"file:///{number}/{{+path}}" for number in range(3000))
    uris = tuple(f"file:///{number % 50}/{number}" for number in range(20_000))
    hostile = listing(templates=(*many, "file:///{+any}"))
    owners = ResourceOwners({"a": hostile, "t": listing(*uris)}, ["t"])
    assert owner(owners.resolve(uris[7])) == "t"
    assert owner(owners.resolve("file:///7/not/listed")) is None
    assert owner(owners.resolve("file:///99/free")) == "a"
    assert owner(owners.resolve(f"file:///{MAX_TEMPLATES + 5}/free")) is None
    assert len(owners.templates) == 3001
    assert MAX_COMPARED < 50


def test_definitions_keep_everything_but_the_uri() -> None:
    definition: dict[str, Any] = {
        "uri": NOTES,
        "name": "n",
        "size": 3,
        "icons": [{"src": "https://e.test/i"}],
    }
    one = Listing(resources=(json.dumps(definition).encode(),))
    owners = ResourceOwners({"a": one, "b": one}, [])
    assert [found for _, found in owners.resources] == [
        {**definition, "uri": qualify("a", NOTES)},
        {**definition, "uri": qualify("b", NOTES)},
    ]
