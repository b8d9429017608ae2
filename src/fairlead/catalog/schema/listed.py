"""Input schemas as clients are told of them: valid JSON Schema, whatever the server wrote.

Clients and providers of models refuse a list, or a whole request, for one schema that is not valid. So what
no draft allows is left out of a tool's schema, and each omission is reported: types that do not exist,
keywords of the wrong type, patterns that are not regular expressions, references to nothing or to themselves.
What is left never accepts less than before: a negation of something that had to be repaired is left out as
well. A valid schema stays as it is, byte for byte, also one of an older draft that it names.

The check of arguments (`validate`) reads the repaired schema, so what clients see is what calls are held to.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.effort import EffortExceeded, measure
from fairlead.catalog.schema.keywords import (
    CLOSING,
    IN_PLACE_LISTS,
    IN_PLACE_SINGLES,
    LISTS,
    MAPS,
    SINGLES,
    Schema,
    all_schemas,
    below,
    resolve,
)
from fairlead.catalog.schema.normalize import (
    MAX_BYTES,
    MAX_VALUES,
    SchemaChange,
    UnusableKeyword,
    keyword_value,
    schema_list,
    schema_map,
    upgrade_to_2020_12,
)
from fairlead.config.untyped import is_list, is_object

MAX_NAMED_CHANGES: Final = 50
"""Most changes of one schema that are named one by one."""

_NEWEST: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS: Final = {
    "json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
    "json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
    "json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
}
"""Names of the older drafts as the validator takes them. Any other name is one of the newest draft."""
_OLD_WORDS: Final = frozenset(
    (
        "$schema",
        "definitions",
        "dependencies",
        "additionalItems",
        "$recursiveRef",
        "$recursiveAnchor",
        "$dynamicRef",
        "$vocabulary",
    )
)
"""Keywords whose meaning `upgrade_to_2020_12` has put into others."""
_CHANGED_MEANING: Final = "would mean something else once repaired"
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_ID: Final = re.compile(r"[^#]*#?")
_ANCHOR: Final = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_NEEDS_WALK: Final = re.compile(rb'"\$|"pattern|\\u|"enum"\s*+:\s*+\[\s*+\]')
"""What the drafts' own schemas do not check: patterns, references and empty choices."""
_MAX_PASSES: Final = 6


class _Definition(msgspec.Struct, rename="camel"):
    input_schema: Any = None


_decode = msgspec.json.Decoder(_Definition).decode


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairedSchema:
    """A valid schema and what was changed for it; no schema where none could be made."""

    schema: dict[str, Any] | None
    changes: tuple[SchemaChange, ...] = ()


def has_valid_input(definition: bytes) -> bool:
    """Whether the input schema of a tool's definition is valid JSON Schema.

    True also for one that is over the limits of size: its tool is not offered.
    """
    if len(definition) > MAX_BYTES:
        return True
    schema: object = _decode(definition).input_schema
    if not is_object(schema):
        return False
    try:
        if len(definition) > MAX_VALUES:  # a value takes a byte at least
            measure(schema, MAX_VALUES, max_bits=math.inf)
    except EffortExceeded:
        return True
    if not _is_of_its_draft(schema):
        return False
    return _NEEDS_WALK.search(definition) is None or _is_sound(schema)


def repair_input(raw: dict[str, Any]) -> RepairedSchema:
    """Make an input schema valid. The size and the nesting must have been checked (`normalize.screen`).

    Args:
        raw: A schema of an object, as parsed from JSON.

    Returns:
        The same schema where it is valid already; else one of the draft 2020-12.
    """
    if _is_of_its_draft(raw) and _is_sound(raw):
        return RepairedSchema(schema=raw)
    changes: list[SchemaChange] = []
    schema = raw
    for _ in range(_MAX_PASSES):
        repair = _SchemaRepair(_lost_references(schema) if schema is not raw else {}, is_again=bool(changes))
        repaired = repair.read_object(schema, "")
        is_settled = not repair.changes and schema is not raw
        changes += repair.changes
        schema = repaired
        if is_settled and not _lost_references(schema):
            break
    else:
        return RepairedSchema(schema=None)
    if not _is_of_its_draft(schema):
        return RepairedSchema(schema=None)
    if not changes:
        changes.append(SchemaChange(where="", what="is not valid in the draft 2020-12; rewritten"))
    if (more := len(changes) - MAX_NAMED_CHANGES) > 0:
        changes[MAX_NAMED_CHANGES:] = [SchemaChange(where="", what=f"has {more} more faults of this kind")]
    return RepairedSchema(schema=schema, changes=tuple(changes))


def _is_of_its_draft(schema: dict[str, Any]) -> bool:
    """Whether it is valid in the draft that it names, or in the newest one.

    What the drafts' own schemas leave open `_is_sound` checks.
    """
    import jsonschema_rs  # native code, which few commands need

    named = schema.get("$schema")
    name = (
        named.removeprefix("http://").removeprefix("https://").rstrip("#") if isinstance(named, str) else ""
    )
    try:
        return jsonschema_rs.meta.is_valid({**schema, "$schema": _DRAFTS.get(name, _NEWEST)})
    except (ValueError, RecursionError):
        return False


def _is_sound(root: dict[str, Any]) -> bool:
    """Whether its patterns are regular expressions and its references lead to something."""
    from fairlead.catalog.schema.portable import is_pattern

    references: list[str] = []
    anchors: set[str] = set()
    has_bases = False
    for schema in _raw_schemas(root):
        pattern, named, choices = schema.get("pattern"), schema.get("patternProperties"), schema.get("enum")
        if isinstance(pattern, str) and not is_pattern(pattern):
            return False
        if is_object(named) and not all(map(is_pattern, named)):
            return False
        if is_list(choices) and not choices:
            return False
        has_bases |= schema is not root and ("$id" in schema or "id" in schema)
        anchors |= _anchors(schema)
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            references.append(reference)
    if not references or has_bases:  # what a reference inside of another base leads to is not decided here
        return True
    if any(one[1:] not in anchors and resolve(root, one) is None for one in references):
        return False
    newest = _upgraded(root)
    return is_object(newest) and not _closing_references(newest)


def _anchors(schema: dict[str, Any]) -> set[str]:
    found = {schema.get(word) for word in ("$anchor", "$dynamicAnchor")}
    found |= {schema[word].removeprefix("#") for word in ("$id", "id") if isinstance(schema.get(word), str)}
    return {name for name in found if isinstance(name, str)}


def _raw_schemas(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every schema in a schema of any draft. Those of older drafts are read as the newest one."""
    pending: list[dict[str, Any]] = [root]
    while pending:
        schema = upgrade_to_2020_12(pending.pop())
        yield root if schema is root else schema
        pending += [inner for _, inner in _inner_schemas(schema) if is_object(inner)]


def _inner_schemas(schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Schemas directly inside, each with its path from here; values of the wrong type have none."""
    for keyword, value in schema.items():
        if keyword in SINGLES:
            yield keyword, value
        elif keyword in LISTS:
            yield from (
                (f"{keyword}[{index}]", item) for index, item in enumerate(value if is_list(value) else ())
            )
        elif keyword in MAPS and is_object(value):
            yield from ((below(keyword, name), item) for name, item in value.items())


def _upgraded(raw: object) -> object:
    """The schema in the newest draft."""
    if not is_object(raw):
        return raw
    new: dict[str, Any] = {}
    for keyword, value in upgrade_to_2020_12(raw).items():
        if keyword in SINGLES:
            new[keyword] = _upgraded(value)
        elif keyword in LISTS and is_list(value):
            new[keyword] = [_upgraded(item) for item in value]
        elif keyword in MAPS and is_object(value):
            new[keyword] = {name: _upgraded(item) for name, item in value.items()}
        elif keyword == "$ref" and isinstance(value, str) and value.startswith("#/definitions/"):
            new[keyword] = f"#/$defs/{value.removeprefix('#/definitions/')}"
        else:
            new[keyword] = value
    return new


# References.


def _lost_references(root: dict[str, Any]) -> dict[str, str]:
    """References that cannot be followed, as their paths and why. The schema is of the newest draft."""
    if not _has_reference(root):
        return {}
    sound = {id(schema) for schema in all_schemas(root)}
    anchors: set[str] = set()
    for schema in all_schemas(root):
        anchors |= _anchors(schema)
    lost = dict.fromkeys(_closing_references(root), "leads back to itself without end")
    pending: list[tuple[str, dict[str, Any]]] = [("", root)]
    while pending:
        where, schema = pending.pop()
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference[1:] not in anchors:
            target = resolve(root, reference)
            if not isinstance(target, bool) and id(target) not in sound:
                lost[where] = "leads to nothing"
        pending += [(below(where, step), inner) for step, inner in _inner_schemas(schema) if is_object(inner)]
    return lost


def _closing_references(root: dict[str, Any]) -> list[str]:
    """Paths of references by which a schema would be applied to the same value again: no check would end."""
    paths = _paths(root)
    closing: dict[int, None] = {}
    finished: set[int] = set()
    for start in all_schemas(root):
        if id(start) in finished:
            continue
        # What is under way, with the way into each: whether it was a reference.
        under_way: dict[int, tuple[dict[str, Any], Iterator[tuple[dict[str, Any], bool]]]] = {
            id(start): (start, _in_place(start, root))
        }
        by_reference: dict[int, int] = {}  # target -> the schema with the reference
        while under_way:
            latest, inner = next(reversed(under_way.values()))
            target, is_reference = next(inner, (None, False))
            if target is None:
                finished.add(id(latest))
                del under_way[id(latest)]
            elif id(target) in under_way:
                closing[id(latest) if is_reference else _last_reference(under_way, by_reference, target)] = (
                    None
                )
            elif id(target) not in finished:
                by_reference.pop(id(target), None)
                if is_reference:
                    by_reference[id(target)] = id(latest)
                under_way[id(target)] = (target, _in_place(target, root))
    return [paths[one] for one in closing if one in paths]


def _last_reference(under_way: dict[int, Any], by_reference: dict[int, int], target: dict[str, Any]) -> int:
    """The schema whose reference was the last one taken on a way that comes back to `target`."""
    for one in reversed(under_way):
        if one == id(target):
            break
        if one in by_reference:
            return by_reference[one]
    return id(target)


def _in_place(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Schemas that apply to the same value, and whether each is the target of a reference."""
    inner: list[object] = []
    for keyword in IN_PLACE_LISTS:
        inner += schema[keyword] if is_list(schema.get(keyword)) else ()
    inner += [schema[keyword] for keyword in IN_PLACE_SINGLES if keyword in schema]
    dependents = schema.get("dependentSchemas")
    inner += dependents.values() if is_object(dependents) else ()
    for one in inner:
        if is_object(one):
            yield one, False
    reference = schema.get("$ref")
    target = resolve(root, reference) if isinstance(reference, str) else None
    if is_object(target):
        yield target, True


def _paths(root: dict[str, Any]) -> dict[int, str]:
    """Path of every schema, by identity."""
    paths: dict[int, str] = {}
    pending: list[tuple[str, dict[str, Any]]] = [("", root)]
    while pending:
        where, schema = pending.pop()
        paths[id(schema)] = where
        pending += [(below(where, step), inner) for step, inner in _inner_schemas(schema) if is_object(inner)]
    return paths


# Repair.


class _SchemaRepair:
    """One pass over a schema: what is not valid is left out.

    Args:
        lost: References that cannot be followed, by the path of their schema, with the reason.
        is_again: Whether something was left out before: a reference may lead to what accepts more now.
    """

    def __init__(self, lost: dict[str, str], *, is_again: bool) -> None:
        self.changes: list[SchemaChange] = []
        self._lost = lost
        self._is_again = is_again

    def read_object(self, raw: dict[str, Any], where: str) -> dict[str, Any]:
        before = len(self.changes)
        schema: dict[str, Any] = {}
        stricter: list[str] = []  # what would forbid more than before
        for keyword, value in upgrade_to_2020_12(raw).items():
            if keyword in _OLD_WORDS:
                continue
            noted = len(self.changes)
            try:
                schema[keyword] = self._keyword(keyword, value, where)
            except UnusableKeyword as exc:
                self._note(below(where, keyword), f"{exc}; left out")
                stricter += sorted(CLOSING) if keyword in ("properties", "patternProperties") else ()
                continue
            if keyword == "patternProperties" and len(schema[keyword]) < len(value):
                stricter += sorted(CLOSING)
            if keyword in ("oneOf", "contains") and self._may_accept_more(noted, schema[keyword]):
                stricter.append("maxContains" if keyword == "contains" else keyword)
        if len(self.changes) > before or self._is_again:
            self._leave_out(schema, [*dict.fromkeys((*stricter, *_UNEVALUATED))], where)
        return schema

    def _note(self, where: str, what: str) -> None:
        self.changes.append(SchemaChange(where=where, what=what))

    def _may_accept_more(self, noted: int, schemas: object) -> bool:
        """Whether schemas were repaired since that many changes, or may refer to one that was."""
        return len(self.changes) > noted or (self._is_again and _has_reference(schemas))

    def _leave_out(self, schema: dict[str, Any], stricter: list[str], where: str) -> None:
        """Leave out keywords that forbid more, now that something inside or beside them accepts more."""
        for keyword in stricter:
            if schema.get(keyword, True) is True or schema[keyword] == {}:
                continue
            value = schema.pop(keyword)
            if keyword == "oneOf" and "anyOf" not in schema:
                schema["anyOf"] = value
                self._note(below(where, keyword), f"{_CHANGED_MEANING}; read as `anyOf`")
            else:
                self._note(below(where, keyword), "would forbid more than before; left out")

    def _read(self, raw: object, where: str) -> Schema:
        if isinstance(raw, bool):
            return raw
        if not is_object(raw):
            self._note(where, "is not a schema; anything is accepted there")
            return {}
        return self.read_object(raw, where)

    def _keyword(self, keyword: str, value: Any, at: str) -> Any:  # noqa: ANN401 - any JSON value
        where = below(at, keyword)
        if keyword in SINGLES or keyword == "contentSchema":
            noted = len(self.changes)
            read = self._read(value, where)
            if keyword in ("not", "if") and self._may_accept_more(noted, read):
                raise UnusableKeyword(_CHANGED_MEANING)
            return read
        if keyword in LISTS:
            return [self._read(item, f"{where}[{index}]") for index, item in enumerate(schema_list(value))]
        if keyword in MAPS:
            named = schema_map(value)
            kept = [name for name in named if keyword != "patternProperties" or self._is_pattern(name, where)]
            return {name: self._read(named[name], below(where, name)) for name in kept}
        if keyword == "$ref":
            return self._reference(value, at)
        if keyword in _TEXTS:
            if not isinstance(value, str) or not _TEXTS[keyword](value):
                raise UnusableKeyword(_NOT_VALID.get(keyword, "is not valid"))
            return value
        return self._plain(keyword, value, where)

    def _is_pattern(self, text: str, where: str) -> bool:
        if _is_expression(text):
            return True
        self._note(where, f"has {_quote(text)}, which is not a regular expression; left out")
        return False

    def _reference(self, value: object, at: str) -> str:
        if not isinstance(value, str):
            raise UnusableKeyword("must be a string")
        if at in self._lost:
            raise UnusableKeyword(f"{_quote(value)} {self._lost[at]}")
        return f"#/$defs/{value[14:]}" if value.startswith("#/definitions/") else value

    def _plain(self, keyword: str, value: Any, where: str) -> Any:  # noqa: ANN401 - any JSON value
        """Value of a keyword that holds no schemas. Unknown keywords stay."""
        if keyword == "examples" and value == []:
            return value
        read = keyword_value(keyword, value)
        if read is None or read == value:
            return value
        if keyword in ("type", "required") and value != [read]:
            self._note(where, f"is read as {_quote(read)}")
        return read


def _quote(value: object) -> str:
    """Short excerpt of a schema, through the gate before it is cut: half a secret is not found."""
    return f"`{gate.content(value if isinstance(value, str) else msgspec.json.encode(value).decode(), 100)}`"


def _has_reference(schemas: object) -> bool:
    roots: list[object] = schemas if is_list(schemas) else [schemas]
    return any("$ref" in one for root in roots if is_object(root) for one in all_schemas(root))


def _is_expression(text: str) -> bool:
    from fairlead.catalog.schema.portable import is_pattern

    return is_pattern(text)


_TEXTS: Final[dict[str, Callable[[str], bool]]] = {
    "pattern": _is_expression,
    "$id": lambda text: _ID.fullmatch(text) is not None,
    "$anchor": lambda text: _ANCHOR.fullmatch(text) is not None,
    "$dynamicAnchor": lambda text: _ANCHOR.fullmatch(text) is not None,
    "$comment": lambda _: True,
}
"""Keywords with a text, and whether one is valid."""
_NOT_VALID: Final = {"pattern": "is not a regular expression", "$comment": "must be a string"}
