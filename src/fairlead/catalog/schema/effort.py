"""Cost of validating a value against a schema, computed before validation.

A validator cannot be interrupted, and it holds the interpreter's lock while it runs. So nothing is validated
whose cost has no bound. The unit is about 10 ns: one schema applied to one value costs two, and each keyword
costs what `_COSTS` says, which was measured on the validator with the worst values for it. A keyword without
an entry there has no known cost, and a schema with such a keyword is not run.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from fairlead.catalog.schema.keywords import Schema, in_place_schemas, resolve_reference, subschemas
from fairlead.config.untyped import is_list, is_object

MAX_VALUE_DEPTH = 64
"""Deepest nesting of a value. The validator follows it on the machine's stack."""
MAX_MEETINGS = 4_000
"""Most pairs of a schema and a value that are visited to compute a cost."""

MAX_STEPS = 40_000
"""Most members and items that are visited for the same purpose."""
MAX_NUMBER_BITS = 1_024
"""Larger whole numbers are not validated: the validator's arithmetic is quadratic in their digits."""

MULTIPLYING = frozenset(("$ref", "unevaluatedProperties", "unevaluatedItems"))
"""Keywords without which a schema's cost depends only on its own size."""

_NUMBERS = (int, float)
_SIZED = (str, dict, list, tuple)
_FEW = 64
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_UNEVALUATED_FACTOR = 4
"""`unevaluated…` validates its siblings once more; measured at not quite 3."""
_UNICODE_CLASS_STATES = 300
_WIDE_CLASS_STATES = 4
"""States of a class with nearly every character: a character has up to four bytes."""
_WIDE_CLASS = re.compile(r"\.|\[\^|\\[DSW]")
_LENGTH_COST = 3
"""Microseconds for a character of a pattern."""
_RANGE_PER_COST = 14
"""Characters of a range in a class for each microsecond: Python marks them one by one."""
_WIDEST_RANGE = 0x10000
_FOLDED_FACTOR = 4
_LARGE_CLASS_COST = 200
"""Microseconds for a class that may have characters beyond U+00FF, which Python keeps in a table."""
_SHORTHAND_COST = 4
"""Microseconds for the square of the number of escapes such as `\\d`: after each, all is parsed anew."""
_SHORTHAND = re.compile(r"\\[dDsSwWc]")
_FOLDS_CASE = re.compile(r"\(\?[a-zA-Z]*i")
_RANGE_END = r"(?:\\u(?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{4}))|\\x([0-9a-fA-F]{2})|\\?(.))"
_RANGE = re.compile(f"{_RANGE_END}-{_RANGE_END}", re.DOTALL)

_APPLIED = 2
_LOOKED_UP = 2
_EXACT = 2.0**53
"""Up to here whole numbers and floats are compared as machine words, and hash to different values."""
_TINY = 1e-15
_LARGEST_FACTOR = 1e15
_SMALL_INTEGERS = range(-(2**63), 2**63)
_PATTERN_TOKEN = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!]|<[=!]|<\w+>))?|\)|\{(\d*),?(\d*)\}|.",
    re.DOTALL,
)


class EffortExceeded(Exception):
    """Validation would cost more than is allowed. The message says why."""


class TooDeep(EffortExceeded):
    """A value, or a schema, is nested too deeply to be followed."""


class ValueSize(NamedTuple):
    """Size of a value: its parts, the characters in them, and how many are numbers beyond 53 bits."""

    values: int
    characters: int
    wide_numbers: int = 0


class Cost(NamedTuple):
    """Cost that a keyword adds to one application of its schema."""

    value: float = 0
    """For a value of any kind, in the worst case."""
    character: float = 0
    wide_number: float = 0
    """Extra cost of a number beyond 53 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """Highest cost of one value. Infinite for circular references."""

    schemas: float
    """Number of schemas that apply to it."""
    units: float
    """Cost of those and their keywords."""
    states: float = 0
    """States of regular expressions that see each of its characters."""
    wide_numbers: float = 0
    """Extra cost of a number beyond 53 bits."""
    height: int = 1
    """Depth of schemas that apply inside each other, circles not counted."""
    unknown: str | None = None
    """Keyword whose cost is unknown, if there is one; then nothing may be validated."""

    def of(self, size: ValueSize) -> float:
        """Highest cost of validating a value of this size."""
        if size.wide_numbers and self.wide_numbers:
            return math.inf  # their comparisons have to be counted
        return self.units * size.values + (self.states * size.characters if self.states else 0)


def weigh(root: dict[str, Any]) -> Weight:
    """Cost of a schema, references followed. Raises `EffortExceeded` if it is nested too deeply."""
    known: dict[int, Weight] = {}

    def of(schema: Schema) -> Weight:
        if isinstance(schema, bool):
            return Weight(schemas=1, units=_APPLIED)
        if id(schema) not in known:
            # Found by a circular reference.
            known[id(schema)] = Weight(schemas=math.inf, units=math.inf, height=0)
            inner = [of(sub) for keyword, sub in subschemas(schema) if keyword != "$defs"]
            if (target := resolve_reference(schema, root)) is not None:
                inner.append(of(target))
            factor = _factor(schema)
            own, unknown = _own_cost(schema)
            known[id(schema)] = Weight(
                schemas=factor * (1 + sum(part.schemas for part in inner)),
                units=factor * (own.value + sum(part.units for part in inner)),
                states=factor * (own.character + sum(part.states for part in inner)),
                wide_numbers=own.wide_number + sum(part.wide_numbers for part in inner),
                height=1 + max((part.height for part in inner), default=0),
                unknown=unknown or next((part.unknown for part in inner if part.unknown), None),
            )
        return known[id(schema)]

    try:
        return of(root)
    except RecursionError:
        raise TooDeep("it is nested too deeply") from None


def measure(value: object, most: float, *, max_bits: float = MAX_NUMBER_BITS) -> ValueSize:
    """Size of a value.

    Raises:
        EffortExceeded: It has more parts than `most`, is nested too deeply, or has too long a number.
    """
    flat = _measure_flat(value, max_bits)
    if flat is not None:
        return flat
    values = characters = wide = 0
    level: list[object] = [value]
    for _ in range(MAX_VALUE_DEPTH):
        values += len(level)
        inner: list[object] = []
        sized: list[object] = [item for item in level if isinstance(item, _SIZED)]
        wide += sum([_is_wide(item, max_bits) for item in level if isinstance(item, _NUMBERS)])
        for item in sized:
            if isinstance(item, str):
                characters += len(item)
            elif is_object(item):
                inner += item.values()
                characters += sum(map(len, item))
            elif _is_array(item):
                inner += item
        if not inner:
            return ValueSize(values, characters, wide)
        if values + len(inner) > most:
            raise EffortExceeded("there is too much to check")
        level = inner
    raise TooDeep("the value is nested too deeply")


def _measure_flat(value: object, max_bits: float) -> ValueSize | None:
    """Size of a few texts and numbers by name, as nearly all arguments are; None for anything else."""
    if not is_object(value) or len(value) > _FEW:
        return None
    characters = wide = 0
    for name, item in value.items():
        characters += len(name)
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, _NUMBERS):
            wide += _is_wide(item, max_bits)
        elif isinstance(item, _SIZED):
            return None
    return ValueSize(1 + len(value), characters, wide)


_FEW_KEYS = 16
_SHORT_CHARACTERS = 256
FLAT_AND_SHORT = ValueSize(1 + _FEW_KEYS, 2 * _FEW_KEYS * _SHORT_CHARACTERS)
"""Largest size of a value for which `is_flat_and_short` is true."""


def is_flat_and_short(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether these are a few short texts and plain numbers by name, as nearly all arguments are.

    A shallow copy of such a dict is cheap and never changes, in any thread; and the cost of validating it is
    known without measuring it.
    """
    if not isinstance(value, dict):
        return False
    members: dict[object, Any] = value  # pyright: ignore[reportUnknownVariableType] - `cast` costs a frame
    if len(members) > _FEW_KEYS:
        return False
    # Exact types, and one loop: this runs for every call.
    for key, item in members.items():
        if type(key) is not str or len(key) > _SHORT_CHARACTERS:
            return False
        if type(item) is str:
            if len(item) > _SHORT_CHARACTERS:
                return False
        elif type(item) is int:
            if not -_EXACT <= item <= _EXACT:
                return False
        elif item is not None and type(item) is not bool and (type(item) is not float or _is_wide(item)):
            return False
    return True


def _is_wide(number: float, max_bits: float = MAX_NUMBER_BITS) -> bool:
    """Whether the validator compares this number by digits. Raises `EffortExceeded` for too many."""
    if -_EXACT <= number <= _EXACT:
        return isinstance(number, float) and 0 < abs(number) < _TINY
    if isinstance(number, int) and number.bit_length() > max_bits:
        raise EffortExceeded("a number in it has too many digits")
    return True


def effort(root: dict[str, Any], value: object, most: int) -> int:
    """Cost of validating this very value. Raises `EffortExceeded` if that is more than `most`."""
    try:
        return _Count(root, most).of(root, value)
    except RecursionError:
        raise EffortExceeded("its schema refers to itself too often") from None


class _Count:
    """Counts without validating: a repeated pair of schema and value is visited once, counted each time."""

    def __init__(self, root: dict[str, Any], most: int) -> None:
        self._root = root
        self._most = most
        self._meetings: dict[tuple[int, int], int] = {}
        self._steps = 0
        self._own_costs: dict[int, Cost] = {}

    def of(self, schema: Schema, value: object) -> int:
        if isinstance(schema, bool):
            return _APPLIED
        meeting = id(schema), id(value)
        if meeting in self._meetings:
            return self._check_effort(self._meetings[meeting])
        if len(self._meetings) >= MAX_MEETINGS:
            raise EffortExceeded("there is too much to check")
        self._meetings[meeting] = self._most + 1  # found by a circular reference
        total = self._check_effort(self._own(schema, value))
        for inner in in_place_schemas(schema, self._root):
            total = self._check_effort(total + self.of(inner, value))
        if is_object(value):
            total += self._of_object(schema, value)
        elif _is_array(value):
            total += self._of_array(schema, value)
        self._meetings[meeting] = self._check_effort(total * _factor(schema))
        return self._meetings[meeting]

    def _check_effort(self, total: int) -> int:
        if total > self._most:
            raise EffortExceeded("its schema takes too long to check")
        return total

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > MAX_STEPS:
            raise EffortExceeded("there is too much to check")

    def _own(self, schema: dict[str, Any], value: object) -> int:
        """Cost of the keywords of this very schema, except those that hold schemas."""
        own = self._own_costs.get(id(schema))
        if own is None:
            own, unknown = _own_cost(schema)
            if unknown:
                raise EffortExceeded(f"the cost of `{unknown}` is unknown")
            self._own_costs[id(schema)] = own
        if isinstance(value, str):
            return _APPLIED + len(schema) + int(own.character * len(value)) + _choices_cost(schema, value)
        if isinstance(value, bool) or value is None:
            return _APPLIED + len(schema) + _choices_cost(schema, value)
        if isinstance(value, int | float):
            wide = own.wide_number if _is_wide(value) else 0
            total = int(own.value - _any_choice(schema) + wide)
            return total + (_choices_cost(schema, value) if "enum" in schema or "const" in schema else 0)
        total = int(own.value)
        if schema.get("uniqueItems") and _is_array(value):
            self._step(len(value))
            size = measure(value, self._most / _UNIQUE.value)
            # Wide numbers share one hash, so each is compared with each.
            total += int(_UNIQUE.value * size.values + _UNIQUE.wide_number * size.wide_numbers**2)
            total += int(_UNIQUE.character * size.characters)
        return total

    def _of_object(self, schema: dict[str, Any], value: dict[str, Any]) -> int:
        properties = schema.get("properties", {})
        self._step(min(len(properties), len(value)))
        names = properties.keys() & value.keys()
        total = sum(_LOOKED_UP + self.of(properties[name], value[name]) for name in names)
        extended = "additionalProperties" in schema  # tries the patterns once more
        for pattern, inner in schema.get("patternProperties", {}).items():
            self._step(len(value))
            states = pattern_states(pattern) * (1 + extended)
            total += sum(states * len(name) + self.of(inner, child) for name, child in value.items())
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                self._step(len(value))
                total += sum(self.of(schema[keyword], child) for child in value.values())
        if "propertyNames" in schema:
            self._step(len(value))
            total += sum(_NAME + self.of(schema["propertyNames"], name) for name in value)
        return total

    def _of_array(self, schema: dict[str, Any], value: Sequence[Any]) -> int:
        total = sum(map(self.of, schema.get("prefixItems", ()), value))
        for keyword in ("items", "contains", "unevaluatedItems"):
            if keyword in schema:
                self._step(len(value))
                total += sum(self.of(schema[keyword], child) for child in value)
        return total


# ── costs of keywords ──

_NAME = 5
_CHOICES = ("enum", "const")
_UNIQUE = Cost(value=90, character=0.1, wide_number=300)
_NUMBER_MEMBER = Cost(value=240, wide_number=700)
_OTHER_MEMBER = 10


def _own_cost(schema: dict[str, Any]) -> tuple[Cost, str | None]:
    """Cost of a schema's own keywords, and the one whose cost is unknown."""
    value, character, wide = float(_APPLIED), 0.0, 0.0
    for keyword, setting in schema.items():
        cost_of = _COSTS.get(keyword)
        cost = cost_of(setting) if cost_of else None
        if cost is None:
            return Cost(), keyword
        value, character, wide = value + cost.value, character + cost.character, wide + cost.wide_number
    return Cost(value, character, wide), None


def _constant_cost(value: float) -> Callable[[Any], Cost]:
    cost = Cost(value)
    return lambda _: cost


def _limit_cost(limit: float) -> Cost | None:
    if isinstance(limit, int):
        return Cost(4, wide_number=700) if limit in _SMALL_INTEGERS else None
    return Cost(120, wide_number=700)


def _factor_cost(factor: float) -> Cost | None:
    """The validator works with fractions: with a factor like 1e-300, with a thousand bits on either side."""
    if not _TINY <= factor <= _LARGEST_FACTOR:
        return None
    return Cost(30 if isinstance(factor, int) else 400, wide_number=4_000)


def _names_cost(names: Sequence[str]) -> Cost:
    return Cost(3 * len(names))


def _members_cost(members: object) -> Cost:
    """Cost of each value in `enum` and `const`, however deep: it may be compared with the validated one."""
    numbers = others = 0
    pending: list[object] = [members]
    while pending:
        member = pending.pop()
        if isinstance(member, int | float) and not isinstance(member, bool):
            numbers += 1
        else:
            others += 1
        if is_object(member):
            pending += member.values()
        elif is_list(member):
            pending += member
    return Cost(
        _NUMBER_MEMBER.value * numbers + _OTHER_MEMBER * others,
        wide_number=_NUMBER_MEMBER.wide_number * numbers,
    )


def _any_choice(schema: dict[str, Any]) -> float:
    """Cost of `enum` and `const` for an unknown value."""
    return sum([_members_cost(schema[keyword]).value for keyword in _CHOICES if keyword in schema])


def _choices_cost(schema: dict[str, Any], value: object) -> int:
    """Cost of `enum` and `const` for a value that holds no others."""
    members: list[object] = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 4 * len(members)
    numbers = [member for member in members if isinstance(member, _NUMBERS)]
    is_plain = isinstance(value, int) and not _is_wide(value)
    if is_plain and len(numbers) == len(members) and all(isinstance(member, int) for member in numbers):
        return 5 + len(members) // 100  # looked up by hash
    return int(_NUMBER_MEMBER.value) * len(numbers) + 4 * len(members)


def _states_cost(pattern: str) -> Cost:
    return Cost(5, character=pattern_states(pattern))


def _patterns_cost(patterns: dict[str, Any]) -> Cost:
    # Twice: a sibling `additionalProperties` tries them once more.
    return Cost(5 * len(patterns), character=2 * sum(map(pattern_states, patterns)))


_COSTS: dict[str, Callable[[Any], Cost | None]] = {
    # Ignored by the validator.
    **dict.fromkeys(
        ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        _constant_cost(0),
    ),
    **dict.fromkeys(("format", "contentEncoding", "contentMediaType", "$defs"), _constant_cost(0)),
    # Keywords that hold schemas: those are counted themselves.
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref"), _constant_cost(1)),
    **dict.fromkeys(("properties", "additionalProperties", "unevaluatedProperties"), _constant_cost(2)),
    **dict.fromkeys(("prefixItems", "items", "contains", "unevaluatedItems"), _constant_cost(1)),
    "propertyNames": _constant_cost(_NAME),
    "patternProperties": _patterns_cost,
    "dependentSchemas": lambda named: Cost(3 * len(named)),
    # Assertions.
    "type": _constant_cost(1),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _constant_cost(1)),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _constant_cost(1)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _limit_cost),
    "multipleOf": _factor_cost,
    "pattern": _states_cost,
    "required": _names_cost,
    "dependentRequired": lambda named: Cost(sum(3 + 3 * len(names) for names in named.values())),
    "enum": _members_cost,
    "const": _members_cost,
    "uniqueItems": lambda unique: _UNIQUE if unique else Cost(),
}
"""Cost of each keyword; None for a value whose cost has no bound."""


@lru_cache(maxsize=4096)
def pattern_states(pattern: str) -> int:
    """Approximate size of a regular expression's automaton: its length, with repetitions written out."""
    sizes = [0]  # of the open groups, the innermost last
    atom = 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("("):
            sizes.append(0)
        elif text.startswith("{") and (token[1] or token[2]):
            repeated = atom * max(int(token[2] or token[1]), 1)
            sizes[-1] += repeated - atom
            atom = repeated
        elif text not in ("*", "+", "?"):
            closing = text == ")" and len(sizes) > 1
            atom = sizes.pop() if closing else _class_states(text)
            sizes[-1] += atom
    return sum(sizes)


@lru_cache(maxsize=4096)
def pattern_cost(pattern: str) -> int:
    """Microseconds that compiling a regular expression takes at most, here and in Python."""
    cost = pattern_states(pattern) + _LENGTH_COST * len(pattern)
    folds_case = _FOLDS_CASE.search(pattern) is not None
    shorthands = 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("["):
            width = sum(map(_range_width, _RANGE.finditer(text)))
            cost += width * (_FOLDED_FACTOR if folds_case else 1) // _RANGE_PER_COST
            cost += _LARGE_CLASS_COST if folds_case or not text.isascii() or "\\u" in text else 0
        elif _SHORTHAND.fullmatch(text):
            shorthands += 1
    return cost + _SHORTHAND_COST * shorthands**2


def _range_width(found: re.Match[str]) -> int:
    first, last = _range_end(found.groups()[:4]), _range_end(found.groups()[4:])
    return max(0, min(last - first, _WIDEST_RANGE))


def _range_end(groups: Sequence[str | None]) -> int:
    *digits, letter = groups
    return ord(letter) if letter else int(next(filter(None, digits)), 16)


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether the validator takes it for an array, as it does a tuple."""
    return isinstance(value, list | tuple)


def _class_states(token: str) -> int:
    if token[:2].lower() == "\\p":
        return _UNICODE_CLASS_STATES
    return _WIDE_CLASS_STATES if _WIDE_CLASS.match(token) else 1


def _factor(schema: dict[str, Any]) -> int:
    return _UNEVALUATED_FACTOR if any(keyword in schema for keyword in _UNEVALUATED) else 1
