"""How much work it is to check a value against a schema, known before the work is done.

A validator cannot be interrupted, and it holds up everything else in the process while it runs. So nothing
is checked whose cost has no bound. The unit is about 10 ns: one schema applied to one value, or one character
seen by one state of a regular expression.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from fairlead.catalog.keywords import Schema, applied_in_place, referenced, subschemas
from fairlead.config.shapes import is_object

MAX_VALUE_DEPTH = 64
"""How deep a value may be nested. The validator follows it on the machine's stack."""
MAX_MEETINGS = 4_000
"""How many pairs of a schema and a value are looked at to find out what a check costs."""

MULTIPLYING = frozenset(("$ref", "unevaluatedProperties", "unevaluatedItems"))
"""Without these a schema costs what there is of it."""

_SIZED = (str, dict, list, tuple)
_FEW = 64
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_UNEVALUATED_FACTOR = 4
"""`unevaluated…` judges what it stands beside once more; measured at not quite 3."""
_UNICODE_CLASS_STATES = 300
_PATTERN_TOKEN = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!]|<[=!]|<\w+>))?|\)|\{(\d*),?(\d*)\}|.",
    re.DOTALL,
)


class Unbounded(Exception):
    """Checking would cost more than is allowed. The message says why."""


class Size(NamedTuple):
    """How large a value is: its parts, and the characters in them."""

    values: int
    characters: int


@dataclass(frozen=True, slots=True)
class Weight:
    """What one value costs at most. Infinite where references lead in a circle."""

    schemas: float
    """How many schemas apply to it."""
    states: float
    """How many states of regular expressions see each of its characters."""
    height: int
    """How many schemas apply inside each other, circles not counted."""

    def of(self, size: Size) -> float:
        """The most that checking a value of this size can cost."""
        return self.schemas * size.values + (self.states * size.characters if self.states else 0)


def weigh(root: dict[str, Any]) -> Weight:
    """What a schema costs with all its references followed. Raises `Unbounded` if it is nested too deeply."""
    known: dict[int, Weight] = {}

    def of(schema: Schema) -> Weight:
        if isinstance(schema, bool):
            return Weight(1, 0, 1)
        if id(schema) not in known:
            known[id(schema)] = Weight(math.inf, 0, 0)  # what whoever comes back here in a circle finds
            inner = [of(sub) for keyword, sub in subschemas(schema) if keyword != "$defs"]
            if (target := referenced(schema, root)) is not None:
                inner.append(of(target))
            factor = _factor(schema)
            known[id(schema)] = Weight(
                factor * (1 + sum(part.schemas for part in inner)),
                factor * (_own_states(schema) + sum(part.states for part in inner)),
                1 + max((part.height for part in inner), default=0),
            )
        return known[id(schema)]

    try:
        return of(root)
    except RecursionError:
        raise Unbounded("it is nested too deeply") from None


def measure(value: object, most: float) -> Size:
    """The size of a value. Raises `Unbounded` if it has more parts than `most`, or is nested too deeply."""
    flat = _measure_flat(value)
    if flat is not None:
        return flat
    values = characters = 0
    level: list[object] = [value]
    for _ in range(MAX_VALUE_DEPTH):
        values += len(level)
        inner: list[object] = []
        sized: list[object] = [item for item in level if isinstance(item, _SIZED)]
        for item in sized:
            if isinstance(item, str):
                characters += len(item)
            elif is_object(item):
                inner += item.values()
                characters += sum(map(len, item))
            elif _is_array(item):
                inner += item
        if not inner:
            return Size(values, characters)
        if values + len(inner) > most:
            raise Unbounded("there is too much to check")
        level = inner
    raise Unbounded("the value is nested too deeply")


def _measure_flat(value: object) -> Size | None:
    """The size of a few texts and numbers by name, as nearly all arguments are; None for anything else."""
    if not is_object(value) or len(value) > _FEW:
        return None
    characters = 0
    for name, item in value.items():
        characters += len(name)
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, _SIZED):
            return None
    return Size(1 + len(value), characters)


def effort(root: dict[str, Any], value: object, most: int) -> int:
    """What checking this very value costs. Raises `Unbounded` if that is more than `most`."""
    try:
        return _Count(root, most).of(root, value)
    except RecursionError:
        raise Unbounded("its schema refers to itself too often") from None


class _Count:
    """Counts without doing: a schema that meets a value again is looked at once, and counted every time."""

    def __init__(self, root: dict[str, Any], most: int) -> None:
        self._root = root
        self._most = most
        self._meetings: dict[tuple[int, int], int] = {}

    def of(self, schema: Schema, value: object) -> int:
        if isinstance(schema, bool):
            return 1
        meeting = id(schema), id(value)
        if meeting in self._meetings:
            return self._bounded(self._meetings[meeting])
        if len(self._meetings) >= MAX_MEETINGS:
            raise Unbounded("there is too much to check")
        self._meetings[meeting] = self._most + 1  # what whoever comes back here in a circle finds
        total = 1 + sum(self.of(inner, value) for inner in applied_in_place(schema, self._root))
        if isinstance(value, str):
            total += pattern_states(schema.get("pattern", "")) * len(value)
        elif is_object(value):
            total += self._of_object(schema, value)
        elif _is_array(value):
            total += self._of_array(schema, value)
        self._meetings[meeting] = self._bounded(total * _factor(schema))
        return self._meetings[meeting]

    def _bounded(self, total: int) -> int:
        if total > self._most:
            raise Unbounded("its schema takes too long to check")
        return total

    def _of_object(self, schema: dict[str, Any], value: dict[str, Any]) -> int:
        properties = schema.get("properties", {})
        total = sum(self.of(properties[name], child) for name, child in value.items() if name in properties)
        for pattern, inner in schema.get("patternProperties", {}).items():
            states = pattern_states(pattern)
            total += sum(states * len(name) + self.of(inner, child) for name, child in value.items())
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                total += sum(self.of(schema[keyword], child) for child in value.values())
        if "propertyNames" in schema:
            total += sum(self.of(schema["propertyNames"], name) for name in value)
        return total

    def _of_array(self, schema: dict[str, Any], value: Sequence[Any]) -> int:
        total = sum(map(self.of, schema.get("prefixItems", ()), value))
        for keyword in ("items", "contains", "unevaluatedItems"):
            if keyword in schema:
                total += sum(self.of(schema[keyword], child) for child in value)
        return total


def pattern_states(pattern: str) -> int:
    """About how large the automaton of a regular expression is: its length, with repetitions written out."""
    sizes = [0]  # of the groups that are open, the innermost last
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
            atom = sizes.pop() if closing else _UNICODE_CLASS_STATES if text[:2].lower() == "\\p" else 1
            sizes[-1] += atom
    return sum(sizes)


def _is_array(value: object) -> TypeGuard[Sequence[Any]]:
    """Is it one to the validator? A tuple is."""
    return isinstance(value, list | tuple)


def _own_states(schema: dict[str, Any]) -> int:
    patterns = [schema.get("pattern", ""), *schema.get("patternProperties", ())]
    return sum(map(pattern_states, patterns))


def _factor(schema: dict[str, Any]) -> int:
    return _UNEVALUATED_FACTOR if any(keyword in schema for keyword in _UNEVALUATED) else 1
