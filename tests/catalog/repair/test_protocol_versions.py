"""Lists that are valid for each protocol version, entry by entry."""

import json
from typing import Any

import msgspec
import pytest
from mcp_types.methods import validate_server_result

from fairlead.catalog.catalog import usable_tool
from fairlead.catalog.definitions import DefinitionKind
from fairlead.catalog.repair.definitions import repair_definition
from fairlead.catalog.repair.protocol_versions import VERSIONS, definition_for, valid_listing, version_number
from fairlead.catalog.schema.validate import check_arguments
from fairlead.catalog.tools import LISTED_TWICE, Listing, read_tools
from tests.fixtures.definitions_corpus import read_corpus

pytestmark = pytest.mark.requirement("HARD-85")

METHODS: dict[DefinitionKind, tuple[str, str]] = {
    "tool": ("tools/list", "tools"),
    "resource": ("resources/list", "resources"),
    "template": ("resources/templates/list", "resourceTemplates"),
    "prompt": ("prompts/list", "prompts"),
}
OBJECT = {"type": "object"}
PERMISSIVE = {"type": "object", "additionalProperties": True}


def encode(definition: object) -> bytes:
    return json.dumps(definition).encode()


def listing_of_the_corpus() -> Listing:
    definitions: dict[str, list[bytes]] = {kind: [] for kind in METHODS}
    for case in read_corpus():
        definitions[case["kind"]].append(encode(case["definition"]))
    tools, rejected = read_tools("c", iter(definitions["tool"]))
    return Listing(
        tools=tuple(tools),
        rejected=tuple(rejected),
        resources=tuple(definitions["resource"]),
        templates=tuple(definitions["template"]),
        prompts=tuple(definitions["prompt"]),
    )


def lists(listing: Listing) -> dict[DefinitionKind, list[dict[str, Any]]]:
    return {
        "tool": [entry.read() for entry in listing.tools],
        "resource": [json.loads(each) for each in listing.resources],
        "template": [json.loads(each) for each in listing.templates],
        "prompt": [json.loads(each) for each in listing.prompts],
    }


def repaired(kind: DefinitionKind, definition: object) -> dict[str, Any] | None:
    raw = definition if isinstance(definition, bytes) else encode(definition)
    found = repair_definition(kind, raw).definition
    return None if found is None else json.loads(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_entry_of_the_corpus_is_valid_for_every_protocol_version_by_itself(version: str) -> None:
    for kind, entries in lists(valid_listing(listing_of_the_corpus())).items():
        method, name = METHODS[kind]
        more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        for entry in entries:
            fitted = definition_for(kind, entry, version_number(version))
            assert None not in fitted.values()
            validate_server_result(method, version, {name: [fitted], **more})


def test_exactly_what_cannot_be_made_valid_is_left_out_and_named() -> None:
    listing = valid_listing(listing_of_the_corpus())
    for kind, entries in lists(listing).items():
        cases = [case for case in read_corpus() if case["kind"] == kind]
        identity = {"resource": "uri", "template": "uriTemplate"}.get(kind, "name")
        kept = {case["definition"][identity] for case in cases if case["kept"]}
        assert {entry[identity] for entry in entries} == kept
        left_out = [repair for repair in listing.repairs if repair.kind == kind and repair.reason]
        assert len(left_out) == sum(not case["kept"] for case in cases)
    assert sum("left out:" in note.partition("`")[0] for note in listing.notes) == 4
    assert all(len(note) < 2000 for note in listing.notes)


def test_of_two_entries_with_one_identity_the_first_is_kept_and_the_other_named() -> None:
    first, again = ({"name": "p", "uri": "x://p", "uriTemplate": "x://{p}", "title": t} for t in ("A", "B"))
    three = (
        encode(first),
        encode(again),
        encode({**first, "name": "q", "uri": "x://q", "uriTemplate": "x://{q}"}),
    )
    listing = valid_listing(Listing(resources=three, templates=three, prompts=three))
    for kind, entries in lists(listing).items():
        assert [entry["title"] for entry in entries] == ([] if kind == "tool" else ["A", "A"])
    assert {(each.kind, each.name, each.reason) for each in listing.repairs} == {
        ("resource", "x://p", LISTED_TWICE),
        ("template", "x://{p}", LISTED_TWICE),
        ("prompt", "p", LISTED_TWICE),
    }
    assert len(listing.notes) == 3
    assert lists(valid_listing(listing)) == lists(listing)


def test_making_a_listing_valid_again_changes_nothing() -> None:
    once = valid_listing(listing_of_the_corpus())
    twice = valid_listing(once)
    assert lists(twice) == lists(once)
    assert twice.notes == once.notes


def test_every_tool_of_the_corpus_can_be_called_without_arguments() -> None:
    for entry in valid_listing(listing_of_the_corpus()).tools:
        usable = usable_tool(entry)
        assert usable.rejected is None
        assert check_arguments(usable.entry, {}).outcome != "invalid", entry.definition


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": None}, {"type": ["object"]}, {"type": "Object"}, {"type": []}, {"type": ["array", "null"]}],
)
def test_an_input_schema_that_says_nothing_of_use_is_one_of_an_object(schema: object) -> None:
    tool = repaired("tool", {"name": "a", "inputSchema": schema})
    assert tool == {"name": "a", "inputSchema": OBJECT}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "object",
        5,
        True,
        False,
        {"type": "string"},
        {"type": ["array", "string"]},
        {"type": "array", "items": {"type": "object"}},
        {"type": "object", "default": json.loads("[" * 80 + "]" * 80)},
    ],
)
def test_a_schema_that_cannot_be_repaired_is_offered_as_one_that_accepts_any_arguments(
    schema: object,
) -> None:
    """Seed 003, 7.2: `inputSchema` invalid or undefined."""
    assert repaired("tool", {"name": "a", "inputSchema": schema}) == {"name": "a", "inputSchema": PERMISSIVE}


def test_a_tool_without_a_schema_accepts_any_arguments() -> None:
    assert repaired("tool", {"name": "a"}) == {"name": "a", "inputSchema": PERMISSIVE}


def test_the_real_tool_without_a_type_in_its_schema_is_repaired_and_keeps_its_properties() -> None:
    schema = {
        "properties": {"project": {"type": "string"}},
        "required": ["project"],
        "$schema": "http://x/y#",
    }
    tool = repaired("tool", {"name": "a", "inputSchema": schema})
    assert tool is not None
    schema.pop("$schema")
    assert tool["inputSchema"] == {**schema, **OBJECT}


@pytest.mark.parametrize("value", [b"[" * 150 + b"]" * 150, b"9" * 5000, b"1e999"])
def test_what_a_parser_of_some_client_refuses_costs_its_field(value: bytes) -> None:
    definition = b'{"name":"a","inputSchema":{"type":"object","default":' + value + b'},"_meta":{"ui":1}}'
    found = repair_definition("tool", definition)
    assert json.loads(found.definition or b"") == {"name": "a", "inputSchema": PERMISSIVE, "_meta": {"ui": 1}}
    found = repair_definition(
        "tool", definition.replace(b"_meta", b"title").replace(b"inputSchema", b"_meta")
    )
    assert json.loads(found.definition or b"") == {"name": "a", "inputSchema": PERMISSIVE}


@pytest.mark.parametrize(
    "definition",
    [
        b'{"name":"a","inputSchema":{"type":"object","description":"\\ud800"}}',
        b'{"name":"","inputSchema":{"type":"object"}}',
        b"[]",
        b"null",
        b'"text"',
        b"{",
    ],
)
def test_what_a_parser_of_some_client_refuses_is_left_out_with_a_reason(definition: bytes) -> None:
    found = repair_definition("tool", definition)
    assert found.definition is None
    assert found.reason


@pytest.mark.parametrize(
    ("schema", "offered"),
    [
        ({"type": "object"}, {"type": "object"}),
        ({"type": "array", "items": {}}, None),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "type": "object"}),
        ({"anyOf": [{"type": "object"}]}, None),
        ({}, None),
    ],
)
def test_versions_before_2026_get_output_schemas_of_objects_only(
    schema: dict[str, Any], offered: dict[str, Any] | None
) -> None:
    tool = repaired("tool", {"name": "a", "inputSchema": OBJECT, "outputSchema": schema})
    assert tool is not None
    assert definition_for("tool", tool, version_number("2026-07-28"))["outputSchema"] == schema
    assert definition_for("tool", tool, version_number("2025-11-25")).get("outputSchema") == offered
    assert "outputSchema" not in definition_for("tool", tool, version_number("2025-03-26"))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"properties": {"a": {"enum": []}}},
        {"properties": {"a": {"$ref": "#/nothing"}}},
        {"properties": {"a": {"$ref": "https://example.com/schema"}}},
        {"properties": {"a": None}},
        {"required": "a"},
        {"patternProperties": {"[": {}}},
        {"patternProperties": {"^y": {"type": "STRING"}}},
        {"patternProperties": {"\\\\(?i:y)": {}}},
        {"not": {"pattern": "\\_"}},
        {"$ref": 5},
        {"allOf": [None]},
        {"minimum": "3"},
        {"uniqueItems": "yes"},
        {"type": "int"},
    ],
)
def test_an_output_schema_that_validators_cannot_compile_is_left_out(schema: dict[str, Any]) -> None:
    tool = repaired("tool", {"name": "a", "inputSchema": OBJECT, "outputSchema": schema})
    assert tool == {"name": "a", "inputSchema": OBJECT}


def test_a_version_that_is_not_known_counts_as_the_newest_before_it() -> None:
    assert [VERSIONS[version_number(each)] for each in ("2020-01-01", "2025-05-05", "2030-01-01", None)] == [
        "2024-11-05",
        "2025-03-26",
        "2026-07-28",
        "2026-07-28",
    ]


def test_a_valid_definition_stays_the_same_object() -> None:
    tool = encode({"name": "a", "inputSchema": OBJECT, "outputSchema": {"type": "object", "x-more": 1}})
    assert repair_definition("tool", tool).definition is tool


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {
            "properties": {"x": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        },
        {"allOf": [{"$ref": "#"}]},
        {"not": {"not": {"$ref": "#"}}},
        {"$defs": {"a": {"if": {"anyOf": [True, {"$ref": "#/$defs/a"}]}}}},
    ],
)
def test_an_output_schema_that_no_validator_gets_to_the_end_of_is_left_out(more: dict[str, Any]) -> None:
    definition = {"name": "t", "inputSchema": OBJECT, "outputSchema": {**OBJECT, **more}}
    assert repaired("tool", definition) == {"name": "t", "inputSchema": OBJECT}


def test_an_output_schema_of_nested_values_is_kept() -> None:
    tree = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/tree"}]}}
    output = {**OBJECT, "properties": {"x": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    definition = {"name": "t", "inputSchema": OBJECT, "outputSchema": output}
    assert repaired("tool", definition) == definition


@pytest.mark.parametrize(
    "odd",
    [
        {"example": {"$anchor": "1 bad"}},
        {"x-source": {"of": [{"$id": "https://e.x/seen-before"}]}},
        {"properties": {"a": {"x-vendor": {"deep": {"$dynamicAnchor": "("}}}}},
    ],
)
def test_identifiers_outside_of_schemas_cost_an_output_schema_only_their_keyword(odd: dict[str, Any]) -> None:
    plain: dict[str, Any] = {**OBJECT, "properties": {"a": {}}}
    definition = {"name": "t", "inputSchema": OBJECT, "outputSchema": {**plain, **odd}}
    assert repaired("tool", definition) == {**definition, "outputSchema": plain}


@pytest.mark.parametrize(
    "more",
    [
        {"$schema": "http://json-schema.org/draft-07/schema##"},
        {"contentSchema": {"pattern": "(?<a>x)|(?<a>y)"}},
        {"additionalItems": {"pattern": "["}},
    ],
)
def test_keywords_that_only_some_validators_read_are_left_out_of_output_schemas(more: dict[str, Any]) -> None:
    values = {"type": "string", **more}
    definition = {"name": "t", "inputSchema": OBJECT, "outputSchema": {**OBJECT, "properties": {"a": values}}}
    plain = {**OBJECT, "properties": {"a": {"type": "string"}}}
    assert repaired("tool", definition) == {**definition, "outputSchema": plain}


def test_names_and_values_that_look_like_identifiers_stay_in_an_output_schema() -> None:
    names = {
        "$id": {"type": "string"},
        "$anchor": {"default": {"$id": "x"}},
        "a": {"enum": [{"$anchor": "("}]},
    }
    output = {**OBJECT, "properties": names, "dependentRequired": {"$id": ["a"]}}
    definition = {"name": "t", "inputSchema": OBJECT, "outputSchema": output}
    assert repaired("tool", definition) == definition


OLDER: list[dict[str, Any]] = [
    {"items": [{"type": "string"}], "prefixItems": 5},
    {"dependencies": {"a": ["b"]}, "dependentRequired": 5},
    {"dependencies": {"a": {"required": ["b"]}}, "dependentSchemas": 5},
    {"properties": {"x": {"anyOf": [{"items": [{}], "prefixItems": {"a": 1}}]}}},
]


@pytest.mark.parametrize("older", OLDER)
def test_keywords_that_a_schemas_older_draft_does_not_know_may_hold_anything(older: dict[str, Any]) -> None:
    named = {"$schema": "http://json-schema.org/draft-07/schema#", **OBJECT, **older}
    definition = {"name": "t", "inputSchema": named, "outputSchema": {**OBJECT, **older}}
    tool = repaired("tool", definition)
    assert tool is not None
    assert tool["inputSchema"] == definition["inputSchema"]
    assert all(each not in (5, {"a": 1}) for each in tool["outputSchema"].values())


@pytest.mark.parametrize("number", range(VERSIONS.index("2025-06-18"), len(VERSIONS)))
def test_an_output_schema_asserts_nothing_that_only_some_clients_check(number: int) -> None:
    times = {"type": "string", "format": "date-time"}
    properties = {"at": times, "constructor": {"type": "string"}, "format": {"type": "string"}}
    output = {**OBJECT, "properties": properties, "additionalProperties": {"items": times}}
    shown = definition_for("tool", {"name": "t", "inputSchema": OBJECT, "outputSchema": output}, number)
    assert shown["outputSchema"] == {
        **OBJECT,
        "properties": {"at": {"type": "string"}, "constructor": {}, "format": {"type": "string"}},
        "additionalProperties": {"items": {"type": "string"}},
    }


def test_limits_of_formats_are_left_out_with_them_however_they_are_spelled() -> None:
    output = (
        b'{"type":"object","properties":'
        b'{"a":{"format":"date","formatMinimum":"2020-01-01"},"b":{"\\u0066ormatMaximum":"2030-01-01"}}}'
    )
    shown = definition_for("tool", {"outputSchema": msgspec.Raw(output)}, 3)
    assert shown["outputSchema"] == {"type": "object", "properties": {"a": {}, "b": {}}}


def test_what_clients_read_in_different_ways_is_left_out_where_that_accepts_more() -> None:
    fraction: dict[str, Any] = {"multipleOf": 0.01, "type": "number"}
    pair = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}}
    output = {**OBJECT, "properties": {"price": fraction, "even": {"multipleOf": 2}, "pair": pair}}
    shown = definition_for("tool", {"outputSchema": output}, 3)["outputSchema"]
    assert shown["properties"] == {
        "price": {"type": "number"},
        "even": {"multipleOf": 2},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}]},
    }


FORMAT = {"format": "date"}
DISPUTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"not": {"multipleOf": 0.01}}, {}),
    ({"not": {"not": FORMAT}}, {}),
    ({"not": {"$ref": "#/properties/x/$defs/a"}, "$defs": {"a": FORMAT}}, {"$defs": {"a": {}}}),
    ({"not": {"required": ["y"]}, "pattern": "."}, {"not": {"required": ["y"]}}),
    ({"if": FORMAT, "then": {"minLength": 1}, "else": {}}, {"if": {}}),
    (
        {"oneOf": [{"dependentRequired": {"y": ["z"]}}, {}]},
        {"anyOf": [{"dependentRequired": {"y": ["z"]}}, {}]},
    ),
    ({"oneOf": [FORMAT, {"type": "null"}]}, {"anyOf": [{}, {"type": "null"}]}),
    ({"oneOf": [FORMAT], "anyOf": [{}]}, {"anyOf": [{}], "allOf": [{"anyOf": [{}]}]}),
    ({"oneOf": [{"const": 1}, {"const": 2}]}, {"oneOf": [{"const": 1}, {"const": 2}]}),
    ({"contains": FORMAT, "maxContains": 2}, {"contains": {}}),
    ({"contains": {"const": 1}, "minContains": 0}, {}),
    ({"maximum": 2**64 - 1, "minimum": 0, "multipleOf": 2**53}, {"minimum": 0}),
    ({"unevaluatedProperties": False, "additionalProperties": False}, {"additionalProperties": False}),
    *(({"pattern": odd}, {}) for odd in ("^(?!a)", "^.*$", "^\\S+$", "\\bx")),
    *(({"pattern": plain}, {"pattern": plain}) for plain in ("^[.]$", "^a\\.b$", "^\\d+$", "^[a-z]{2}$")),
]
"""What a server declares of a property, and what is listed of that."""


@pytest.mark.parametrize(("declared", "listed"), DISPUTED)
def test_a_listed_output_schema_is_checked_by_all_clients_as_it_is_checked_here(
    declared: dict[str, Any], listed: dict[str, Any]
) -> None:
    output = msgspec.Raw(msgspec.json.encode({**OBJECT, "properties": {"x": declared}}))
    shown = definition_for("tool", {"outputSchema": output}, len(VERSIONS) - 1)["outputSchema"]
    shown = msgspec.json.decode(shown) if isinstance(shown, msgspec.Raw) else shown
    assert shown == {**OBJECT, "properties": {"x": listed}}


def test_an_output_schema_that_cannot_be_checked_here_is_not_listed() -> None:
    output = msgspec.Raw(msgspec.json.encode({**OBJECT, "patternProperties": {"^(?!a)": False}}))
    assert definition_for("tool", {"name": "t", "outputSchema": output}, 3) == {"name": "t"}
