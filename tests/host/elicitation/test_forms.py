"""Forms of servers: what is shown, what is refused, and that no answer goes out that does not fit."""

import sys
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.host.elicitation.form_schema import (
    MAX_CHOICES,
    MAX_DESCRIPTION_CHARACTERS,
    MAX_FIELDS,
    MAX_LABEL_CHARACTERS,
    FormRefused,
    asks_for_secret,
    read_form,
    read_form_steps,
)
from fairlead.host.elicitation.forms import (
    ChoiceField,
    ChoicesField,
    Form,
    FormContent,
    FormProblems,
    TextField,
)

COLOURS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]


def form_of(*required: str, **properties: dict[str, Any]) -> Form:
    form = read_form({"type": "object", "properties": properties, "required": list(required)})
    assert isinstance(form, Form), form
    return form


def refusal_of(**definition: Any) -> FormRefused:
    refused = read_form({"type": "object", "properties": {"x": definition}})
    assert isinstance(refused, FormRefused), refused
    return refused


def accepted(form: Form, **answers: object) -> dict[str, Any]:
    checked = form.check(answers)
    assert isinstance(checked, FormContent), checked
    return checked.content


def problem(form: Form, **answers: object) -> str:
    checked = form.check(answers)
    assert isinstance(checked, FormProblems), checked
    ((_, words),) = checked.by_field.items()
    return words


# Reading a form.


def test_every_kind_of_field_of_the_protocol_is_read() -> None:
    form = form_of(
        "name",
        name={"type": "string", "title": "Your name", "description": "As in the passport", "maxLength": 9},
        age={"type": "integer", "minimum": 18, "maximum": 120},
        height={"type": "number"},
        agree={"type": "boolean", "default": False},
        size={"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        colour={"type": "string", "oneOf": COLOURS, "default": "#0f0"},
        days={"type": "array", "items": {"type": "string", "enum": ["Mon", "Tue"]}, "minItems": 1},
        shades={"type": "array", "items": {"anyOf": COLOURS}, "default": ["#f00", "#0f0"]},
    )
    name, age, height, agree, size, colour, days, shades = form.fields
    assert isinstance(name, TextField)
    assert (name.label, name.description, name.required) == ("Your name", "As in the passport", True)
    assert [field.expects for field in (name, age, height, agree)] == [
        "text, at most 9 characters long",
        "a whole number, 18 to 120",
        "a number",
        "yes or no",
    ]
    assert isinstance(size, ChoiceField)
    assert [(choice.value, choice.label) for choice in size.choices] == [("s", "Small"), ("m", "Medium")]
    assert colour.expects == "one of Red, Green"
    assert days.expects == "at least 1 of Mon, Tue"
    assert isinstance(shades, ChoicesField)
    assert form.defaults() == {"agree": False, "colour": "#0f0", "shades": ["#f00", "#0f0"]}


def test_a_form_without_fields_asks_for_a_yes_alone() -> None:
    assert accepted(form_of()) == {}


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({"type": "object", "properties": {}}, "type `object`"),
        ({"type": "array", "items": {"type": "string"}}, "`enum` is not a list"),
        ({"type": ["string", "null"]}, "type `list`"),
        ({}, "type `NoneType`"),
        ({"type": "string", "pattern": "^(a+)+$"}, "`pattern` is not part"),
        ({"type": "string", "format": "uuid"}, "format `uuid`"),
        ({"type": "string", "$ref": "https://example.com/"}, "`$ref` is not part"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "within its limits"),
        ({"type": "string", "minLength": -1}, "not a count"),
        ({"type": "string", "minLength": True}, "not a finite number"),
        ({"type": "number", "minimum": float("nan")}, "not a finite number"),
        ({"type": "number", "maximum": 10**400}, "not a finite number"),
        ({"type": "integer", "minimum": "1"}, "not a finite number"),
        ({"type": "string", "title": 5}, "`title` is not text"),
        ({"type": "string", "enum": []}, "choices are not valid"),
        ({"type": "string", "enum": ["a", "a"]}, "choices are not valid"),
        ({"type": "string", "enum": ["a"], "enumNames": ["A", "B"]}, "choices are not valid"),
        ({"type": "string", "enum": ["a", 5]}, "other than short text"),
        ({"type": "string", "enum": ["x"] * (MAX_CHOICES + 1)}, "at most"),
        ({"type": "string", "oneOf": [{"const": "a", "pattern": "b"}]}, "`pattern` is not part"),
        ({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}, "within its limits"),
        ("text", "not described by an object"),
    ],
)
def test_what_goes_beyond_the_protocol_is_refused_with_the_reason(definition: Any, words: str) -> None:
    refused = read_form({"type": "object", "properties": {"x": definition}})
    assert isinstance(refused, FormRefused)
    assert words in refused.reason
    assert str(refused).startswith("`x`: ")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "not described by an object"),
        ({"type": "string"}, "not an object of fields"),
        ({"type": "object", "properties": {}, "required": ["y"]}, "requires `y`"),
        ({"type": "object", "properties": {"": {"type": "string"}}}, "its name"),
        ({"type": "object", "properties": dict.fromkeys(map(str, range(MAX_FIELDS + 1)))}, "51 fields"),
        ({"type": "object", "properties": {}, "$defs": {}}, "`$defs` is not part"),
    ],
)
def test_what_is_no_form_is_refused(schema: object, words: str) -> None:
    refused = read_form(schema)
    assert isinstance(refused, FormRefused)
    assert words in refused.reason


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("password", {}),
        ("DB_PASSWORD", {}),
        ("apiKey", {}),
        ("api_key", {}),
        ("githubToken", {}),
        ("value", {"title": "Access token"}),
        ("value", {"description": "Paste the API key of your account here."}),
        ("value", {"title": "\uff30assw\u200bord"}),
        ("value", {"format": "password"}),
        ("clientSecret", {}),
        ("PIN", {}),
        ("pin", {"type": "integer"}),
        ("cvv", {"type": "number"}),
        ("card", {"description": "Your credit card number"}),
        ("code", {"title": "One-time code"}),
        ("ssh_key", {}),
        ("wort", {"title": "Passwort"}),
        ("x", {"title": "密码"}),
    ],
)
def test_a_form_that_asks_for_a_secret_is_refused(name: str, definition: dict[str, Any]) -> None:
    refused = read_form({"type": "object", "properties": {name: {"type": "string"} | definition}})
    assert isinstance(refused, FormRefused)
    assert "secret" in refused.reason


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("name", {"description": "Your secretary's name"}),
        ("keyboard", {}),
        ("key", {"description": "The key of the setting"}),
        ("max_tokens", {"type": "integer", "description": "How many tokens at most"}),
        ("place", {"description": "Where to put the pin on the map"}),
        ("remember_password", {"type": "boolean"}),
        ("token", {"enum": ["keep", "renew"]}),
        ("email", {"format": "email"}),
    ],
)
def test_a_form_that_only_sounds_a_little_like_it_is_not(name: str, definition: dict[str, Any]) -> None:
    form_of(**{name: {"type": "string"} | definition})


def test_words_of_a_server_can_be_asked_about_alone() -> None:
    assert asks_for_secret("Please enter your API key")
    assert not asks_for_secret("Please enter your name")


@pytest.mark.requirement("HARD-41", "HARD-48")
def test_what_is_shown_is_clean_and_has_an_end() -> None:
    form = form_of(
        a={"type": "string", "title": "\x1b[31mRed\x1b[0m\r\nalert\u202e", "description": "a\x07b\nc\u200b"},
        b={"type": "string", "title": "x" * 5000, "description": "y" * 50_000},
        **{"\x1b]0;evil\x07c": {"type": "string", "enum": ["\x1b[2Jv"]}},
    )
    clean, long, named = form.fields
    assert (clean.label, clean.description) == ("Red alert", "ab\nc")
    assert (len(long.label), len(long.description)) == (MAX_LABEL_CHARACTERS, MAX_DESCRIPTION_CHARACTERS)
    assert (named.label, named.expects) == ("c", "one of v")
    assert named.name == "\x1b]0;evil\x07c"
    assert "\x1b" not in str(refusal_of(type="\x1b[31mred"))


def test_a_default_that_does_not_fit_is_not_offered() -> None:
    form = form_of(
        mail={"type": "string", "format": "email", "default": ""},
        age={"type": "integer", "maximum": 5, "default": 6},
        size={"type": "string", "enum": ["s"], "default": "xl"},
        none={"type": "boolean", "default": None},
    )
    assert form.defaults() == {}


# Answers.


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    ("definition", "answer", "sent"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "éé", "éé"),
        ({"type": "string", "format": "email"}, " ada@example.com ", "ada@example.com"),
        ({"type": "string", "format": "uri"}, "urn:isbn:1", "urn:isbn:1"),
        ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29"),
        ({"type": "string", "format": "date-time"}, "2024-02-29 12:00:00z", "2024-02-29T12:00:00Z"),
        (
            {"type": "string", "format": "date-time"},
            "2024-02-29T12:00:00.123456789+05:30",
            "2024-02-29T12:00:00.123456789+05:30",
        ),
        ({"type": "integer"}, " 42 ", 42),
        ({"type": "integer"}, 42.0, 42),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "number"}, "-1.5", -1.5),
        ({"type": "number"}, 3, 3),
        ({"type": "number", "exclusiveMinimum": 0}, "0.1", 0.1),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "off", False),
        ({"type": "boolean"}, True, True),
        ({"type": "string", "oneOf": COLOURS}, "green", "#0f0"),
        ({"type": "string", "oneOf": COLOURS}, "#0F0", "#0f0"),
        ({"type": "string", "enum": ["a", "A"]}, "A", "A"),
        ({"type": "array", "items": {"anyOf": COLOURS}}, "green, red,", ["#0f0", "#f00"]),
        ({"type": "array", "items": {"anyOf": COLOURS}}, ["#0f0", "#0f0"], ["#0f0"]),
        ({"type": "array", "items": {"enum": ["a, b", "a"]}}, "a, b", ["a, b"]),
        ({"type": "array", "items": {"enum": ["a"]}}, "", []),
    ],
)
def test_what_a_person_types_becomes_what_the_server_wants(
    definition: dict[str, Any], answer: object, sent: object
) -> None:
    content = accepted(form_of("x", x=definition), x=answer)
    assert content == {"x": sent}
    assert type(content["x"]) is type(sent)


@pytest.mark.requirement("HARD-48")
@pytest.mark.parametrize(
    ("definition", "answer", "words"),
    [
        ({"type": "string"}, 5, "must be text"),
        ({"type": "string"}, "x" * 20_001, "must be text"),
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "format": "email"}, "ada", "an email address"),
        ({"type": "string", "format": "email"}, "Ada <ada@example.com>", "an email address"),
        ({"type": "string", "format": "uri"}, "example.com", "with its scheme"),
        ({"type": "string", "format": "uri"}, "https://a b", "with its scheme"),
        ({"type": "string", "format": "uri"}, "https://[::1", "with its scheme"),
        ({"type": "string", "format": "date"}, "2023-02-29", "a date like"),
        ({"type": "string", "format": "date"}, "2026-W05-1", "a date like"),
        ({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00", "with its zone"),
        ({"type": "string", "format": "date-time"}, "2024-02-30T12:00:00Z", "with its zone"),
        ({"type": "integer"}, "4.5", "a whole number"),
        ({"type": "integer"}, 4.5, "a whole number"),
        ({"type": "integer"}, True, "a whole number"),
        ({"type": "integer"}, "1_000", "a whole number"),
        ({"type": "integer"}, "٤", "a whole number"),
        ({"type": "integer"}, "9" * 41, "a whole number"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, float("inf"), "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "number"}, 10**400, "a number"),
        ({"type": "number", "minimum": 1, "maximum": 1_234_567}, 0, "1 to 1234567"),
        ({"type": "number", "exclusiveMaximum": 0.5}, 0.5, "less than 0.5"),
        ({"type": "boolean"}, "maybe", "yes or no"),
        ({"type": "boolean"}, 1, "yes or no"),
        ({"type": "string", "oneOf": COLOURS}, "blue", "one of Red, Green"),
        ({"type": "string", "enum": ["a", "A"]}, " a", "one of a, A"),
        ({"type": "string", "enum": ["a"]}, ["a"], "one of a"),
        ({"type": "string", "enum": [str(n) for n in range(30)]}, "x", "9, … (30 in all)"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, ["a", "b"], "at most 1 of a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a", "c"], "any of a, b"),
        ({"type": "array", "items": {"enum": ["a"]}}, 5, "any of a"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_what_would(
    definition: dict[str, Any], answer: object, words: str
) -> None:
    assert words in problem(form_of(x=definition), x=answer)


def test_defaults_stand_in_for_what_is_not_answered_and_a_blank_is_no_answer() -> None:
    form = form_of(
        "name",
        name={"type": "string"},
        town={"type": "string", "default": "London"},
        age={"type": "integer"},
    )
    assert accepted(form, name="Ada", town=None) == {"name": "Ada", "town": "London"}
    assert accepted(form, name="Ada", town=" ", age="") == {"name": "Ada"}
    assert problem(form, name="") == problem(form) == "must be text"


def test_all_that_is_wrong_is_said_at_once() -> None:
    checked = form_of("a", a={"type": "string"}, b={"type": "boolean"}).check({"b": "?", "c": 1})
    assert isinstance(checked, FormProblems)
    assert checked.by_field == {
        "a": "must be text",
        "b": "must be yes or no",
        "c": "the form has no such field",
    }


# Whatever comes.

texts = st.text(max_size=6)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    texts,
    st.lists(texts, max_size=3),
    st.emails(),
    st.from_regex(r"[a-z.]{1,3}@[a-z0-9.-]{1,5}", fullmatch=True),
    st.from_regex(r"[a-z]{1,3}:[!-~]{1,4}", fullmatch=True),
    st.dates().map(str),
    st.from_regex(
        r"\d{4}-[01]\d-[0-3]\d[T ][012]\d:[0-5]\d:[0-6]\d(\.\d)?(Z|[+-][012]\d:[0-6]0)", fullmatch=True
    ),
)
texts_to_choose = st.lists(texts, min_size=1, max_size=3, unique=True)


def definition(kinds: list[str], **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    needed: dict[str, st.SearchStrategy[Any]] = {"type": st.sampled_from(kinds)}
    if "items" in parts:
        needed["items"] = parts.pop("items")
    return st.fixed_dictionaries(needed, optional={"default": values, **parts})


definitions = st.one_of(
    definition(
        ["string"],
        minLength=st.integers(0, 3),
        maxLength=st.integers(3, 30),
        format=st.sampled_from(["email", "uri", "date", "date-time"]),
    ),
    definition(
        ["number", "integer"],
        minimum=st.integers(-5, 0),
        maximum=st.floats(1, 5),
        exclusiveMinimum=st.integers(-5, 0),
    ),
    definition(["boolean"]),
    definition(
        ["array"],
        items=texts_to_choose.map(lambda choices: {"enum": choices}),
        minItems=st.integers(0, 1),
        maxItems=st.integers(1, 4),
    ),
)


@pytest.mark.requirement("HARD-48")
@given(definitions, st.booleans(), values)
def test_no_answer_goes_out_that_its_schema_forbids(
    asked: dict[str, Any], required: bool, answer: object
) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"x": asked},
        "required": ["x"] if required else [],
    }
    form = read_form(schema)
    assert isinstance(form, Form)
    checked = form.check({"x": answer})
    if isinstance(checked, FormContent):
        assert jsonschema_rs.is_valid(schema, checked.content, validate_formats=True)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "properties", "enum", "oneOf", "items", "title", "default", "minimum"])
            | texts,
            inner,
            max_size=4,
        ),
    ),
    max_leaves=15,
)


@given(json_values)
def test_nothing_a_server_sends_breaks_the_reading_of_forms(schema: object) -> None:
    assert isinstance(read_form(schema), Form | FormRefused)
    assert isinstance(read_form({"type": "object", "properties": {"x": schema}}), Form | FormRefused)


LONGEST_STEP = 0.05 if sys.gettrace() is None else 1.0
"""In seconds of a processor; under a tracer each step takes many times as long."""


def longest_step(schema: object) -> float:
    steps, longest = read_form_steps(schema), 0.0
    while True:
        started = time.thread_time()
        try:
            next(steps)
        except StopIteration:
            return longest
        finally:
            longest = max(longest, time.thread_time() - started)


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("words", ["x", "\u200b", "aB ", "\U000e0041"])
@pytest.mark.parametrize("size", [20, 500, 1_900])
def test_no_form_takes_long_to_read_at_once(words: str, size: int) -> None:
    labels = [f"{number}{words * (size // len(words))}" for number in range(100)]
    described = {"type": "string", "title": words * size, "description": words * size}
    fields: dict[str, Any] = {f"f{number}": {"type": "string", "enum": labels} for number in range(40)}
    fields |= {f"g{number}": described for number in range(10)}
    assert longest_step({"type": "object", "properties": fields}) < LONGEST_STEP


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    "definition",
    [
        {"type": "string", "description": "x" * 300_000},
        {"type": "string", "title": "\u200b" * 300_000},
        {"type": "string", "examples": ["a"] * 20_000},
        {"type": "string", "enum": ["a"] * 20_000},
        {"type": "string", "default": {str(number): number for number in range(20_000)}},
    ],
)
def test_a_form_that_is_more_than_people_read_is_refused(definition: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": definition}}
    assert "more than" in str(read_form(schema))
    assert longest_step(schema) < LONGEST_STEP
