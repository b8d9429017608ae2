"""Validation of arguments and results against a tool's schema, in bounded time.

The validator is native code that can be neither interrupted nor run in parallel with Python code, so the cost
of a check is computed before it starts (`effort`). Where that is too much the outcome is `unchecked`: the
server validates its own arguments anyway. Regular expressions run on an engine that is linear in the text;
what it does not support (look-around, back-references) is left to the server.

Only arguments that the server would certainly refuse are invalid. A required property with a default is the
server's to fill in; keywords next to a `$ref` do not count, since drafts up to 7 ignore them; and a schema
whose repair may have made it stricter is not used at all. What does not fit in a way that servers of some
language accept (see `Check.may_pass`), such as a member that it forbids, is sent, unless coercion can make it
fit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal

import jsonschema_rs
import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.coerce import coerce
from fairlead.catalog.schema.effort import FLAT_AND_SHORT, EffortExceeded, ValueSize, effort, measure, weigh
from fairlead.catalog.schema.keywords import (
    CLOSING,
    FLAG_WORDS,
    INVERTING,
    Schema,
    all_schemas,
    in_place_schemas,
    map_schemas,
)
from fairlead.catalog.schema.normalize import ScreenedSchema, screen_definition
from fairlead.catalog.schema.portable import without_odd_patterns
from fairlead.catalog.tools import ToolEntry
from fairlead.config.untyped import as_object, is_object

MAX_VALUES = 20_000
"""Largest size of arguments: counting them takes time too."""
MAX_EFFORT = 4_000_000
"""About 50 ms of validation."""
MAX_EXPLAINED_EFFORT = 4_000
"""Describing what is wrong costs about a thousand times as much as finding out that something is."""
MAX_EXPLAINED = ValueSize(values=1_000, characters=20_000)
MAX_PROBLEMS = 8
MAX_MESSAGE = 300

ValidationOutcome = Literal["valid", "invalid", "unchecked"]

_ANNOTATIONS = frozenset(("$ref", "$defs", "title", "description", "default", "examples", "deprecated"))
"""Keywords next to a reference that assert nothing."""
_INVERSIONS = {"not": ("not",), "if": ("if", "then", "else"), "contains": ("contains", "maxContains")}
"""Keywords whose wider schema can make the whole stricter, with those that mean nothing without them."""
_TIMES = frozenset(("date-time", "date", "time", "duration"))
_FLAGS: list[Any] = [
    True,
    False,
    0,
    1,
    *{form for word in FLAG_WORDS for form in (word, word.title(), word.upper())},
]
"""What Pydantic takes for a boolean."""
_BREAKS = re.compile(rb"\\[nru]")
"""Line breaks in JSON, and other characters that are escaped by their number."""
_LINEAR = jsonschema_rs.RegexOptions(size_limit=256 * 1024, dfa_size_limit=256 * 1024)


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationResult:
    """Whether a value matches a schema."""

    outcome: ValidationOutcome
    problems: tuple[str, ...] = ()
    """Violations, for the author of the value."""
    reason: str | None = None
    """Why it was not checked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedArguments:
    """Arguments to send, coerced where needed, and the validation result."""

    arguments: dict[str, Any] = field(repr=False)
    verdict: ValidationResult
    changed: tuple[str, ...] = ()
    """Places where they were changed."""


_VALID = ValidationResult(outcome="valid")
_DOUBTFUL = ValidationResult(outcome="unchecked", reason="servers of some languages accept it")


def check_arguments(entry: ToolEntry, arguments: Mapping[str, Any]) -> ValidationResult:
    """Validate the arguments of a call. The tool's schema is parsed and compiled once."""
    return _check_of(entry.definition).verdict(arguments if isinstance(arguments, dict) else {**arguments})


def fit_arguments(entry: ToolEntry, arguments: Mapping[str, Any]) -> FittedArguments:
    """Validate the arguments of a call, and where they are invalid try again after `coerce`."""
    check = _check_of(entry.definition)
    given = arguments if isinstance(arguments, dict) else {**arguments}
    verdict = check.verdict(given)
    if verdict.outcome != "invalid":
        return FittedArguments(arguments=given, verdict=verdict)
    coerced = coerce(check.schema, given)
    if coerced.changed and (second := check.verdict(coerced.arguments)).outcome != "invalid":
        return FittedArguments(arguments=coerced.arguments, verdict=second, changed=coerced.changed)
    if coerced.changed and check.may_pass(coerced.arguments):
        return FittedArguments(arguments=coerced.arguments, verdict=_DOUBTFUL, changed=coerced.changed)
    return FittedArguments(arguments=given, verdict=_DOUBTFUL if check.may_pass(given) else verdict)


def check_of(entry: ToolEntry) -> "Check":
    """Compiled schema of a tool's arguments, cached."""
    return _check_of(entry.definition)


@lru_cache(maxsize=1024)
def _check_of(definition: bytes) -> "Check":
    return Check(screen_definition(definition))


class Check:
    """A compiled schema.

    Args:
        screened: The schema.
        is_lenient: Whether what a server may accept passes, as arguments do. Clients accept no less of a
            result than its schema says.
    """

    def __init__(self, screened: ScreenedSchema, *, is_lenient: bool = True) -> None:
        self.schema = screened.schema
        self._weight = weigh(screened.schema)
        self._is_cheap_if_flat = self._weight.of(FLAT_AND_SHORT) <= MAX_EFFORT
        self._validator: jsonschema_rs.Validator | None = None
        self._wider: dict[bool, Check] = {}
        self._hindrance = screened.rejected
        if screened.changes and any(not INVERTING.isdisjoint(one) for one in all_schemas(screened.schema)):
            self._hindrance = self._hindrance or "its schema had to be repaired, and may mean something else"
        if self._hindrance is None and self._weight.unknown is not None:
            self._hindrance = f"the cost of checking `{self._weight.unknown}` is unknown"
        if self._hindrance is None:
            try:
                self._validator = _compile(_certain(screened.schema) if is_lenient else screened.schema)
            except ValueError as exc:
                self._hindrance = f"its schema cannot be used: {_message(exc)}"

    @property
    def is_usable(self) -> bool:
        """Whether values can be checked: where they cannot, every outcome is `unchecked`."""
        return self._validator is not None

    def accepts(self, value: Any, *, is_flat: bool = False) -> bool:  # noqa: ANN401 - any JSON value
        """Whether a value certainly matches. A no only asks for `verdict`, which says why.

        With `is_flat`, which promises that `is_flat_and_short` is true of the value, it need not be measured.
        """
        if self._validator is None or not is_object(value):
            return False
        try:
            if is_flat and self._is_cheap_if_flat:
                return self._validator.is_valid(value)
            cost = self._weight.of(measure(value, MAX_VALUES))
            return cost <= MAX_EFFORT and self._validator.is_valid(value)
        except (EffortExceeded, ValueError, TypeError, RecursionError):
            return False

    def verdict(self, value: Any) -> ValidationResult:  # noqa: ANN401 - any JSON value
        """Validate a value."""
        if self._validator is None:
            return ValidationResult(outcome="unchecked", reason=self._hindrance)
        try:
            size = measure(value, MAX_VALUES)
            cost = self._weight.of(size)
            if cost > MAX_EFFORT:
                cost = effort(self.schema, value, MAX_EFFORT)
            if self._validator.is_valid(value):
                return _VALID
        except EffortExceeded as exc:
            return ValidationResult(outcome="unchecked", reason=str(exc))
        except (ValueError, TypeError, RecursionError) as exc:
            return ValidationResult(outcome="invalid", problems=(f"is not JSON: {_message(exc)}",))
        if not self._explainable(value, size, cost):
            return ValidationResult(outcome="invalid", problems=("something in it does not fit the schema",))
        return ValidationResult(outcome="invalid", problems=tuple(_problems(self._validator, value)))

    def may_pass(self, value: dict[str, Any]) -> bool:
        """Whether some server may accept arguments that are invalid here.

        Pydantic, for one, takes `"yes"` and 1 for booleans, numbers for times, and lists with duplicates for
        sets. Regular expressions differ in which letters beyond ASCII and which line breaks they match.
        Servers made with zod drop the members that their schemas forbid, and nearly all take the first of
        several alternatives that fit.
        """
        try:
            text = msgspec.json.encode(value)
        except (ValueError, TypeError, RecursionError):
            return False
        is_plain = text.isascii() and _BREAKS.search(text) is None
        if is_plain not in self._wider:
            # First, since the other pass would have widened a negation before it is seen here.
            wider = map_schemas(self.schema, "", _without_inversions)
            wider = map_schemas(wider, "", partial(_widen, keeps_patterns=is_plain))
            self._wider[is_plain] = Check(ScreenedSchema(schema=as_object(wider)))
        return self._wider[is_plain].verdict(value).outcome != "invalid"

    def _explainable(self, value: object, size: ValueSize, cost: float) -> bool:
        """Whether there is time to describe what is wrong."""
        if size.values > MAX_EXPLAINED.values or size.characters > MAX_EXPLAINED.characters:
            return False
        try:
            return cost <= MAX_EXPLAINED_EFFORT or bool(effort(self.schema, value, MAX_EXPLAINED_EFFORT))
        except EffortExceeded:
            return False


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return _validator(schema)
    except ValueError:
        return _validator(without_odd_patterns(schema, is_known_pattern))


def _certain(schema: dict[str, Any]) -> dict[str, Any]:
    """Schema without assertions that a server may not make: the same object where there are none."""
    doubtful = [one for one in all_schemas(schema) if _doubts(one, schema)]
    if not doubtful:
        return schema
    return as_object(map_schemas(schema, "", partial(_without_doubts, root=schema)))


def _doubts(schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if "$ref" in schema and not _ANNOTATIONS.issuperset(schema):
        return True
    return bool(_find_required_with_default(schema, root))


def _without_doubts(schema: dict[str, Any], _where: str, *, root: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        schema = {keyword: value for keyword, value in schema.items() if keyword in _ANNOTATIONS}
    if defaults := _find_required_with_default(schema, root):
        return {**schema, "required": [name for name in schema["required"] if name not in defaults]}
    return schema


def _widen(schema: dict[str, Any], _where: str, *, keeps_patterns: bool) -> dict[str, Any]:
    """Schema that accepts also what servers of some languages accept."""
    schema = {
        keyword: value
        for keyword, value in schema.items()
        if keyword != "uniqueItems" and not (keyword in CLOSING and value is False)
    }
    if (alternatives := schema.pop("oneOf", None)) is not None:
        one_of_them: dict[str, Any] = {"anyOf": alternatives}
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), one_of_them]
        else:
            schema |= one_of_them
    if schema.get("type") == "boolean" and "enum" not in schema:
        del schema["type"]
        schema["enum"] = _FLAGS
    elif schema.get("type") == "string" and schema.get("format") in _TIMES:
        schema["type"] = ["string", "number"]
    if not keeps_patterns:
        schema.pop("pattern", None)
        if schema.pop("patternProperties", None) is not None:
            schema.pop("additionalProperties", None)
            schema.pop("unevaluatedProperties", None)
    return schema


def _may_widen(schema: dict[str, Any]) -> bool:
    """Whether `_widen` changes a schema, or may change what it refers to."""
    return "$ref" in schema or _widen(schema, "", keeps_patterns=False) != schema


def _without_inversions(schema: dict[str, Any], _where: str) -> dict[str, Any]:
    """Schema without negations and conditions that `_widen` would make stricter."""
    dropped: set[str] = set()
    for keyword, with_it in _INVERSIONS.items():
        inner = schema.get(keyword)
        if is_object(inner) and any(map(_may_widen, all_schemas(inner))):
            dropped.update(with_it)
    return (
        {keyword: value for keyword, value in schema.items() if keyword not in dropped} if dropped else schema
    )


def _find_required_with_default(schema: dict[str, Any], root: dict[str, Any]) -> set[str]:
    properties = as_object(schema.get("properties"))
    required = schema.get("required", ())
    return {name for name in required if name in properties and _has_default(properties[name], root)}


def _has_default(schema: Schema, root: dict[str, Any]) -> bool:
    """Whether it has a default itself, or what it refers to or one of its alternatives has one."""
    pending, seen = [schema], set[int]()
    while pending:
        one = pending.pop()
        if is_object(one) and id(one) not in seen:
            if "default" in one:
                return True
            seen.add(id(one))
            pending += in_place_schemas(one, root)
    return False


def _validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        schema, pattern_options=_LINEAR, validate_formats=False, offline=True
    )


@lru_cache(maxsize=1024)
def is_known_pattern(pattern: str) -> bool:
    """Whether a regular expression can be checked here."""
    try:
        _validator({"pattern": pattern})
    except ValueError:
        return False
    return True


def _problems(validator: jsonschema_rs.Validator, value: object) -> Iterator[str]:
    for error in islice(validator.iter_errors(value), MAX_PROBLEMS):
        closest = _closest(error)
        place = _place(closest.instance_path)
        yield f"{place}: {_message(closest)}" if place else _message(closest)


def _closest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Error in the alternative that was nearly met, rather than that none was."""
    branches: list[list[jsonschema_rs.ValidationError]] = getattr(error.kind, "context", [])
    inner = [_closest(errors[0]) for errors in branches if errors]
    deepest = max(inner, key=lambda one: len(one.instance_path), default=error)
    return deepest if len(deepest.instance_path) > len(error.instance_path) else error


def _place(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        if len(text) > MAX_MESSAGE:
            break
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return gate.content(text, MAX_MESSAGE)


def _message(error: Exception) -> str:
    text = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
    return gate.content(text, MAX_MESSAGE)  # quotes the schema, and is masked before it is cut
