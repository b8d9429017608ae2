"""No schema, whatever is in it, costs more than its bound: to read, to compile, to apply, to explain."""

import itertools
import time
from typing import Any

import pytest

from fairlead.catalog.schema.coerce import coerce
from fairlead.catalog.schema.effort import weigh
from fairlead.catalog.schema.normalize import screen
from fairlead.catalog.schema.validate import Check, ValidationOutcome
from fairlead.config.untyped import is_object

BOUND = 1.0
"""Seconds of this thread's own processor time: five times the bound, for slow machines."""

NUMBERS = [0.1 * number for number in range(200)]


def _many(schema: dict[str, Any], count: int = 2_900) -> dict[str, Any]:
    return {"properties": {"a": {"items": {"allOf": [schema] * count}}}}


def _one(schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"a": schema}}


CHARACTERS = "z" * 2_000_000
SHAPES: dict[str, tuple[dict[str, Any], object, set[ValidationOutcome]]] = {
    "a tiny factor": (_many({"multipleOf": 1e-300}), NUMBERS, {"unchecked"}),
    "a huge factor": (_many({"multipleOf": 1e300}), [1e300] * 200, {"unchecked"}),
    "a factor of many digits": (_many({"multipleOf": 2**80}), [2**81] * 200, {"unchecked"}),
    "a usual factor, a huge float": (_many({"multipleOf": 0.01}), [1e300] * 200, {"unchecked"}),
    "a usual factor, a tiny float": (_many({"multipleOf": 0.5}), [1e-300] * 200, {"unchecked"}),
    "a usual factor, digits": (_many({"multipleOf": 7}), [7 * 10**300] * 100, {"unchecked"}),
    "a number of 4,000 digits": (_one({"type": "integer"}), 10**4_000, {"unchecked"}),
    "a number of 5,000 digits": (_one({"type": "integer"}), 10**5_000, {"unchecked"}),
    "a limit of 400 digits": (_one({"minimum": 10**400}), 3, {"unchecked"}),
    "a limit far away": (_many({"minimum": -1e300}), NUMBERS * 6, {"unchecked"}),
    "a limit that is a fraction": (_many({"minimum": -0.5}), NUMBERS * 6, {"unchecked"}),
    "a limit, and digits": (_many({"minimum": 0}), [2**1_000] * 100, {"unchecked"}),
    "fractions to choose from": (
        _one({"items": {"enum": [number + 0.5 for number in range(10_000)]}}),
        [9_999.5] * 9_000,
        {"unchecked"},
    ),
    "whole numbers and a word to choose from": (
        _one({"items": {"enum": [*range(10_000), "x"]}}),
        [0.5] * 9_000,
        {"unchecked"},
    ),
    "lists to choose from": (
        _one({"items": {"enum": [[1] * 10 + [number] for number in range(1_500)]}}),
        [[1] * 10 + [1_499]] * 900,
        {"unchecked"},
    ),
    "a constant of fractions": (
        _many({"const": [0.5] * 90}, 150),
        [[0.5] * 90] * 150,
        {"unchecked"},
    ),
    "unique many times": (_many({"uniqueItems": True}), [[{"x": n} for n in range(50)]] * 50, {"unchecked"}),
    "unique numbers of one hash": (
        _one({"uniqueItems": True}),
        [2**60 + n for n in range(9_000)],
        {"unchecked"},
    ),
    "unique digits": (_one({"uniqueItems": True}), [2**1_000 + n for n in range(300)], {"unchecked"}),
    "unique objects of one hash": (
        _one({"uniqueItems": True}),
        [{"x": [2**60 + n]} for n in range(3_000)],
        {"unchecked"},
    ),
    "unique long texts": (
        _one({"allOf": [{"uniqueItems": True}] * 2_000}),
        [CHARACTERS + str(n) for n in range(20)],
        {"unchecked"},
    ),
    "required names": (
        {"required": [f"k{n}" for n in range(15_000)]},
        1,
        {"invalid"},
    ),
    "names that depend on names": (
        _many({"dependentRequired": {f"k{n}": [f"k{m}" for m in range(30)] for n in range(30)}}, 18),
        [{f"k{n}": 1 for n in range(30)}] * 600,
        {"unchecked", "valid"},
    ),
    "patterns of names": (
        {"patternProperties": {f"^a{n}": True for n in range(50)}},
        {f"q{n}": 1 for n in range(15_000)},
        {"unchecked"},
    ),
    "names of properties": (
        {"allOf": [{"propertyNames": {"maxLength": 1_000}}] * 1_400},
        {f"k{n}": 1 for n in range(1_400)},
        {"unchecked"},
    ),
    "long texts, lengths": (
        _many({"minLength": 1, "maxLength": 10**9}),
        ["é" * 1_000_000] * 5,
        {"valid", "unchecked"},
    ),
    "what it contains": (
        _one({"allOf": [{"contains": {"const": -0.5}, "minContains": 0, "maxContains": 9}] * 1_400}),
        [0.5] * 1_500,
        {"unchecked"},
    ),
    "one of many": (
        _many({"oneOf": [{"multipleOf": 1.0}, {"multipleOf": 0.3}]}, 900),
        NUMBERS,
        {"unchecked"},
    ),
    "if and then": (
        _many({"if": {"minimum": 0.5}, "then": {"multipleOf": 1.0}, "else": {"maximum": 0.75}}, 700),
        NUMBERS,
        {"unchecked"},
    ),
    "not what is not": (_many({"not": {"not": {"multipleOf": 0.01}}}, 900), NUMBERS, {"unchecked"}),
    "the rest of a union": (
        {"anyOf": [{"propertyNames": {"maxLength": 9}}] * 500, "unevaluatedProperties": {"minimum": 0.5}},
        {f"k{n}": 1.5 for n in range(1_500)},
        {"unchecked"},
    ),
    "the rest of a list": (
        _one(
            {
                "allOf": [{"contains": {"enum": [0.5, n + 1.0]}} for n in range(900)],
                "unevaluatedItems": False,
            }
        ),
        [0.5] * 900,
        {"unchecked"},
    ),
    "content and formats": (
        _many({"contentEncoding": "base64", "contentMediaType": "application/json", "format": "regex"}),
        ["(" * 1_000_000],
        {"valid", "unchecked"},
    ),
    "wide classes": (
        {"properties": {f"p{n}": {"pattern": f".{{400}}[^a]{{90}}{n}"} for n in range(50)}},
        "x" * 100_000,
        {"valid", "unchecked"},
    ),
}


def _arguments(value: object) -> dict[str, Any]:
    return value if is_object(value) else {"a": value}


@pytest.mark.requirement("HARD-69")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_schema_costs_more_than_its_bound(shape: str) -> None:
    schema, value, outcomes = SHAPES[shape]
    arguments = _arguments(value)
    steps: list[float] = [time.thread_time()]
    screened = screen(schema)
    steps.append(time.thread_time())
    check = Check(screened)
    steps.append(time.thread_time())
    verdict = check.verdict(arguments)
    steps.append(time.thread_time())
    coerce(check.schema, arguments)
    steps.append(time.thread_time())
    assert screened.rejected is None
    assert verdict.outcome in outcomes
    assert max(after - before for before, after in itertools.pairwise(steps)) < BOUND


@pytest.mark.requirement("HARD-69")
def test_what_servers_usually_write_is_still_checked_and_explained() -> None:
    schema = {
        "type": "object",
        "properties": {
            "price": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1.7976931348623157e308},
            "count": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
            "kind": {"enum": [*(f"kind{number}" for number in range(100)), None]},
            "level": {"enum": [1, 2, 3, 4, 5]},
            "tags": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[a-z]+$"},
                "uniqueItems": True,
            },
        },
        "required": ["price"],
    }
    check = Check(screen(schema))
    good = {"price": 12.34, "count": 3, "kind": None, "level": 5, "tags": ["a", "b"]}
    assert check.verdict(good).outcome == "valid"
    for wrong in ({"price": 12.345}, {"kind": "other"}, {"level": 6}, {"tags": ["a", "a"]}, {"count": 2**60}):
        verdict = check.verdict(good | wrong)
        assert verdict.outcome == "invalid"
        assert next(iter(wrong)) in verdict.problems[0]


@pytest.mark.requirement("HARD-69")
def test_a_keyword_without_a_known_cost_is_not_run() -> None:
    assert weigh({"properties": {"a": {"someday": 1}}}).unknown == "someday"
    assert weigh({"$defs": {}, "items": {"$ref": "#/$defs/none"}}).unknown is None


@pytest.mark.requirement("HARD-69")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"allOf": [{"required": ["k"]}] * 2_900}}, [{"x": None}] * 6_000),
        ({"required": [f"r{n}" for n in range(15_000)]}, {f"k{n}": None for n in range(15_000)}),
        ({"items": {"type": "array"}}, ["[" + "1," * 400_000 + "1]"] * 30),
        (
            {"additionalProperties": {"type": "integer"}},
            {"n" * 1_000_000: {f"{n}": "1" for n in range(9_000)}},
        ),
    ],
)
def test_fitting_arguments_costs_no_more_than_its_bound(schema: dict[str, Any], value: object) -> None:
    check = Check(screen(_one(schema)))
    started = time.thread_time()
    coerced = coerce(check.schema, {"a": value})
    assert time.thread_time() - started < BOUND
    assert sum(map(len, coerced.changed)) < 100_000
