"""Input schemas as servers send them, made fit for use: bounded, self-contained and of one dialect (2020-12).

What is broken is repaired, and the repair told; what could do harm (a reference that would have to be
fetched, more than the caps allow) makes the tool unusable, with the reason. Other tools are not affected.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.catalog import gate
from fairlead.catalog.effort import MULTIPLYING, Unbounded, Weight, measure, pattern_states, weigh
from fairlead.catalog.keywords import LISTS, MAPS, SINGLES, Schema, all_schemas, below, resolve
from fairlead.catalog.modern import (
    MAX_PATTERN_STATES,
    Unusable,
    keyword_value,
    local_reference,
    modernised,
    pattern_value,
    schema_list,
    schema_map,
    supported_dialect,
)
from fairlead.config.shapes import is_object

MAX_BYTES = 256 * 1024
"""Of a tool's whole definition."""
MAX_VALUES = 20_000
MAX_SCHEMAS = 3_000
MAX_PROPERTIES = 2_000
MAX_PATTERNS = 50
MAX_STATES = 4 * MAX_PATTERN_STATES
"""Of all patterns together."""
MAX_REFERENCE_LENGTH = 500
MAX_HEIGHT = 64
"""How many schemas may stand inside each other, references followed."""
MAX_EXPANSION = 100_000_000
"""How many schemas it may be with every reference written out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Something that was changed in a tool's definition."""

    where: str
    """A dotted path into the schema, such as `properties.tags.items`; empty for all of it."""
    what: str
    """The rest of a sentence that begins with the place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """A schema that can be used, or the reason why its tool cannot."""

    schema: dict[str, Any] = field(repr=False)
    changes: tuple[Change, ...] = ()
    rejected: str | None = None


def permissive() -> dict[str, Any]:
    """A schema that lets any arguments through."""
    return {"type": "object", "additionalProperties": True}


def screen(raw: object) -> Screened:
    """An input schema, as it comes out of JSON."""
    if raw is False:
        return _rejected("its schema takes no arguments at all, not even none")
    try:
        if not is_object(raw):
            what = "is missing" if raw is None else "is not an object"
            change = Change(where="", what=f"{what}; any arguments are let through")
            return Screened(schema=permissive(), changes=(change,))
        measure(raw, MAX_VALUES, max_bits=math.inf)  # numbers are for those to mind who compute
        reading = _Reading()
        schema = reading.read_root(raw)
        return Screened(schema=schema, changes=tuple(reading.changes))
    except Unbounded as exc:
        return _rejected(f"its schema cannot be used: {exc}")
    except _Harmful as exc:
        return _rejected(str(exc))


def screen_output(raw: dict[str, Any]) -> Screened:
    """An output schema, of any type: rejected where it is malformed, and never guessed at.

    Clients refuse results that do not fit it, so that one which means something else would cost results. The
    same schema where every validator can compile it; one of an older draft is said anew in 2020-12.
    """
    from fairlead.catalog.validation import is_well_formed, portable_schema  # native code, which few need

    try:
        measure(raw, MAX_VALUES, max_bits=math.inf)
        reading = _Reading()
        schema = reading.read_any_root(raw)
    except Unbounded as exc:
        return _rejected(str(exc))
    except _Harmful as exc:
        return _rejected(str(exc).removeprefix("its schema "))
    if reading.changes:
        first = reading.changes[0]
        return _rejected(f"{first.where or 'it'} {first.what}")
    if not is_well_formed(raw):
        return _rejected("it is not a schema in any draft")
    portable = portable_schema(raw)
    if portable is None:
        portable = portable_schema(schema)
    return _rejected("not every validator can compile it") if portable is None else Screened(schema=portable)


class _Harmful(Exception):
    """This tool cannot be offered. The message says why."""


class _Definition(msgspec.Struct, rename="camel"):
    input_schema: Any = None


_decode = msgspec.json.Decoder(_Definition).decode


@lru_cache(maxsize=2048)
def screen_definition(definition: bytes) -> Screened:
    """The input schema in a tool's definition. Asked again about the same bytes, it answers at once."""
    if len(definition) > MAX_BYTES:
        return _rejected(f"its definition has {len(definition)} bytes, and {MAX_BYTES} are allowed")
    try:
        return screen(_decode(definition).input_schema)
    except (ValueError, RecursionError):
        return _rejected("its definition cannot be read")


def _rejected(reason: str) -> Screened:
    return Screened(schema=permissive(), rejected=reason)


class _Reading:
    """One schema on its way in."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._schemas = self._properties = self._patterns = self._states = 0
        self._multiplies = False

    def read_root(self, raw: dict[str, Any]) -> dict[str, Any]:
        root = self._read_object(raw, "")
        kind = root.get("type", "object")
        if kind != "object":
            if "object" not in kind:
                raise _Harmful(f"its schema wants a value of type {kind}, and arguments are always an object")
            self._note("type", "names other types beside `object`, which arguments never are")
        return self._with_references({"type": "object"} | root | {"type": "object"})

    def read_any_root(self, raw: dict[str, Any]) -> dict[str, Any]:
        return self._with_references(self._read_object(raw, ""))

    def _with_references(self, root: dict[str, Any]) -> dict[str, Any]:
        if self._multiplies:
            self._drop_lost_references(root)
            _limit(weigh(root))
        return root

    def _note(self, where: str, what: str) -> None:
        self.changes.append(Change(where=where, what=what))

    def _read(self, raw: object, where: str) -> Schema:
        if isinstance(raw, bool):
            return raw
        if not is_object(raw):
            self._note(where, "is not a schema; anything is let through there")
            return {}
        return self._read_object(raw, where)

    def _read_object(self, raw: dict[str, Any], where: str) -> dict[str, Any]:
        if not supported_dialect(raw.get("$schema")):
            raise _Harmful(f"its schema is in a dialect that is not supported: {_quoted(raw['$schema'])}")
        schema: dict[str, Any] = {}
        modern = modernised(raw)
        self._multiplies |= not MULTIPLYING.isdisjoint(modern)
        self._count(modern)
        for keyword, value in modern.items():
            place = below(where, keyword)
            try:
                read = self._keyword(keyword, value, place)
            except Unusable as exc:
                self._note(place, f"{exc}; ignored")
                continue
            if read is not None or keyword in ("const", "default"):
                schema[keyword] = read
        return schema

    def _keyword(self, keyword: str, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if keyword in SINGLES:
            repairs = len(self.changes)
            schema = self._read(value, where)
            if keyword in ("not", "if") and len(self.changes) > repairs:
                raise Unusable("would mean something else once repaired")
            return schema
        if keyword in LISTS:
            return [self._read(item, f"{where}[{index}]") for index, item in enumerate(schema_list(value))]
        if keyword in MAPS:
            named = schema_map(value)
            for pattern in named if keyword == "patternProperties" else ():
                self._pattern(pattern)
            return {name: self._read(item, below(where, name)) for name, item in named.items()}
        if keyword == "pattern":
            return self._pattern(value)
        return _local(value) if keyword == "$ref" else keyword_value(keyword, value)

    def _pattern(self, value: object) -> str:
        if self._states > MAX_STATES:
            raise Unusable("is one pattern too many")
        pattern = pattern_value(value)
        self._states += pattern_states(pattern)
        if self._states > MAX_STATES:
            raise Unusable("is one pattern too many")
        return pattern

    def _count(self, schema: dict[str, Any]) -> None:
        self._schemas += 1
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        self._properties += len(properties) if is_object(properties) else 0
        self._patterns += ("pattern" in schema) + (len(patterns) if is_object(patterns) else 0)
        if self._schemas > MAX_SCHEMAS:
            raise _Harmful(f"its schema has more than {MAX_SCHEMAS} schemas")
        if self._properties > MAX_PROPERTIES:
            raise _Harmful(f"its schema has more than {MAX_PROPERTIES} properties")
        if self._patterns > MAX_PATTERNS:
            raise _Harmful(f"its schema has more than {MAX_PATTERNS} patterns")

    def _drop_lost_references(self, root: dict[str, Any]) -> None:
        """Take out references to nothing, or to what was not read as a schema."""
        sound = {id(schema) for schema in all_schemas(root)}
        for schema in all_schemas(root):
            if "$ref" not in schema:
                continue
            target = resolve(root, schema["$ref"])
            if not isinstance(target, bool) and id(target) not in sound:
                self._note(schema.pop("$ref"), "leads to nothing; anything is let through there")


def _limit(weight: Weight) -> None:
    if weight.height > MAX_HEIGHT:
        raise _Harmful("its schemas and references are nested too deeply")
    if MAX_EXPANSION < weight.schemas < math.inf:
        raise _Harmful("its references multiply beyond what can be checked")


def _quoted(said: str) -> str:
    """Words of a schema, short, and through the gate before they are cut: half a secret is not found."""
    return repr(gate.content(said, 100))


def _local(value: object) -> str:
    if not isinstance(value, str):
        raise Unusable("must be a string")
    if not value.startswith("#"):
        raise _Harmful(
            f"its schema refers to {_quoted(value)}, which is outside of it, and nothing is fetched"
        )
    if len(value) > MAX_REFERENCE_LENGTH:
        raise Unusable("is longer than any reference need be")
    return local_reference(value)
