"""A form from a tool's schema, and the arguments from what was typed into it."""

from typing import Any

import pytest

from fairlead.web.schema_form import argument_fields, defaults_of, read_arguments, type_words

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["city", "units", "place"],
    "properties": {
        "days": {"type": "integer", "default": 3, "description": "How many days."},
        "city": {"type": "string"},
        "wind": {"type": ["number", "null"]},
        "exact": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "units": {"enum": ["metric", "imperial", 7]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "place": {"$ref": "#/$defs/place"},
        "when": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "a/b~c": {"type": "string"},
    },
    "$defs": {
        "place": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "at": {"type": "object", "properties": {}}},
        }
    },
}


def kinds() -> dict[str, str]:
    fields = argument_fields(SCHEMA)
    assert fields is not None
    return {field.label: field.kind for field in fields}


def test_each_kind_of_value_has_an_input_of_its_own_and_a_union_is_typed_as_json() -> None:
    assert kinds() == {
        "city": "text",
        "units": "choice",
        "place": "object",
        "days": "integer",
        "wind": "number",
        "exact": "boolean",
        "tags": "lines",
        "sizes": "lines",
        "when": "json",
        "a/b~c": "text",
    }
    fields = argument_fields(SCHEMA)
    assert fields is not None
    assert [field.label for field in fields][:3] == ["city", "units", "place"], "required ones come first"
    assert defaults_of(fields) == {"arg/days": "3"}


def test_what_was_typed_becomes_arguments_of_the_right_types() -> None:
    fields = argument_fields(SCHEMA)
    assert fields is not None
    typed = {
        "arg/city": "Bern\r\nor so",
        "arg/units": "7",
        "arg/days": " 5 ",
        "arg/wind": "1.5",
        "arg/exact": "false",
        "arg/tags": "a\r\nb c\r\n",
        "arg/sizes": "1\n2",
        "arg/place/name": "x",
        "arg/when": '"now"',
        "arg/a~1b~0c": "y",
    }
    found = read_arguments(fields, typed)
    assert found.problems == {}
    assert found.arguments == {
        "city": "Bern\nor so",
        "units": 7,
        "days": 5,
        "wind": 1.5,
        "exact": False,
        "tags": ["a", "b c"],
        "sizes": [1, 2],
        "place": {"name": "x"},
        "when": "now",
        "a/b~c": "y",
    }


def test_what_is_missing_or_of_a_wrong_type_is_said_at_its_input() -> None:
    fields = argument_fields(SCHEMA)
    assert fields is not None
    typed = {
        "arg/units": '"none"',
        "arg/days": "1.5",
        "arg/sizes": "1\nx",
        "arg/when": "{",
        "arg/wind": "true",
    }
    found = read_arguments(fields, typed)
    assert set(found.problems) == {
        "arg/city",
        "arg/units",
        "arg/days",
        "arg/sizes",
        "arg/when",
        "arg/wind",
        "arg/place/name",
    }
    assert found.problems["arg/days"] == ["`1.5` is no whole number"]


def test_an_optional_object_is_left_out_unless_something_of_it_is_given() -> None:
    inner = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    }
    fields = argument_fields({"type": "object", "properties": {"o": inner}})
    assert fields is not None
    assert read_arguments(fields, {}).arguments == {}
    assert read_arguments(fields, {"arg/o/b": "x"}).problems == {"arg/o/a": ["it is required"]}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {"type": "object"},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}},
    ],
)
def test_a_schema_that_no_form_fits_is_for_json(schema: object) -> None:
    assert argument_fields(schema) is None


ODD: list[object] = [
    {"$ref": "#/properties/x"},
    {"$ref": "#/$defs/none"},
    {"$ref": 7},
    {"type": 5, "enum": "x", "items": 3, "default": [{}], "description": 4},
    {"anyOf": [{"anyOf": [{"$ref": "#"}]}]},
    {"type": "object", "properties": {"x": {"$ref": "#/properties/x"}}},
    [],
]


@pytest.mark.parametrize("inner", ODD)
def test_an_odd_schema_costs_no_more_than_its_input(inner: object) -> None:
    schema = {"type": "object", "properties": {"x": inner, "y": {"type": "string"}}}
    fields = argument_fields(schema)
    assert fields is not None
    assert {"x", "y"} == {field.label for field in fields}
    assert read_arguments(fields, {"arg/y": "1"}).arguments["y"] == "1"
    assert type_words(inner)
