"""Tools for Google's Gemini API, in its subset of OpenAPI 3.0.

One type per schema, no references, enums of strings alone.
"""

import re
from typing import Any

import msgspec

from fairlead.adapters.content import Media, Part, describe_media, parts_of
from fairlead.adapters.definition import AdaptedTool, DefinitionChanges, adapt, description_of
from fairlead.adapters.json_schema import (
    FURTHER_RULES,
    add_description,
    name_types,
    with_legal_names,
    without_root_choices,
)
from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.coerce import TypesOf
from fairlead.catalog.schema.keywords import Schema, below, resolve_reference
from fairlead.catalog.schema.portable import is_pattern
from fairlead.catalog.tools import ToolEntry

MAX_SCHEMAS = 1_000
"""Limit with every reference expanded."""
FORMATS = {
    "STRING": frozenset({"date-time"}),
    "INTEGER": frozenset({"int32", "int64"}),
    "NUMBER": frozenset({"float", "double"}),
}
LIMITS = {
    "STRING": ("minLength", "maxLength"),
    "INTEGER": ("minimum", "maximum"),
    "NUMBER": ("minimum", "maximum"),
    "ARRAY": ("minItems", "maxItems"),
}

_ANYTHING = ["string", "number", "boolean"]
_LEFT = (*FURTHER_RULES, "multipleOf", "patternProperties")
_ONLY_NULL = frozenset(("null",))


def gemini_schema(root: dict[str, Any], changes: DefinitionChanges) -> dict[str, Any]:
    """Convert the parameters of a tool that has some."""
    changes.leave(root, _LEFT, "")
    return _GeminiSubset(root, changes).object_with(root, "")


class _GeminiSubset:
    def __init__(self, root: dict[str, Any], changes: DefinitionChanges) -> None:
        self._root = root
        self._changes = changes
        self._types = TypesOf(root)
        self._open: list[int] = []  # schemas being expanded, to detect cycles
        self._schemas = 0

    def object_with(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        """Object with the properties of this schema."""
        properties = schema["properties"]
        place = below(where, "properties")
        new: dict[str, Any] = {
            "type": "OBJECT",
            "properties": {
                name: self._schema(inner, below(place, name)) for name, inner in properties.items()
            },
        }
        if required := [name for name in schema.get("required", ()) if name in properties]:
            new["required"] = required
        return new

    def _schema(self, schema: Schema, where: str) -> dict[str, Any]:
        self._schemas += 1
        opened = len(self._open)
        whole = self._whole(schema)
        try:
            if whole is None or self._schemas > MAX_SCHEMAS:
                self._changes.note(where, "is recursive; requested as text")
                return _as_text("JSON")
            self._changes.leave(whole, _LEFT, where)
            return self._adapt_alternatives(whole, where) or self._adapt_by_type(whole, where)
        finally:
            del self._open[opened:]

    def _whole(self, schema: Schema) -> dict[str, Any] | None:
        """Schema with its references and combinations expanded; None if it is recursive."""
        if isinstance(schema, bool):
            return {}
        whole = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "allOf")}
        target = resolve_reference(schema, self._root)
        for part in (*(() if target is None else (target,)), *schema.get("allOf", ())):
            if id(part) in self._open:
                return None
            self._open.append(id(part))
            inner = self._whole(part)
            if inner is None:
                return None
            properties = {**inner.get("properties", {}), **whole.get("properties", {})}
            required = [*inner.get("required", ()), *whole.get("required", ())]
            whole = inner | whole
            whole |= {"properties": properties} if properties else {}
            whole |= {"required": list(dict.fromkeys(required))} if required else {}
        return whole

    def _adapt_alternatives(self, schema: dict[str, Any], where: str) -> dict[str, Any] | None:
        """Alternatives, where there are any and no other keywords."""
        choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if not choices:
            return None
        if any(keyword in schema for keyword in ("properties", "items", "enum", "const")):
            self._changes.note(
                where, "has alternatives together with other keywords; they are left for the server to check"
            )
            return None
        branches = [one for one in choices if self._types(one) != _ONLY_NULL] or [True]
        adapted = [self._schema(one, below(where, "anyOf")) for one in branches]
        return _alternatives(adapted, schema, nullable=len(branches) < len(choices))

    def _adapt_by_type(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        types = name_types(schema, self._types(schema))
        names = [name for name in types if name != "null"]
        if not names:
            self._changes.note(where, "accepts anything; requested as a string, number or boolean")
        adapted = [self._of_type(name, schema, where) for name in names or _ANYTHING]
        return _alternatives(adapted, schema, nullable="null" in types)

    def _of_type(self, name: str, schema: dict[str, Any], where: str) -> dict[str, Any]:
        if name == "object":
            if schema.get("properties"):
                if schema.get("additionalProperties", False) is not False:
                    self._changes.note(below(where, "additionalProperties"), "not supported by Gemini")
                return self.object_with(schema, where)
            self._changes.note(where, "has properties that are not named; requested as text")
            return _as_text("a JSON object")
        if name == "array":
            return {"type": "ARRAY", "items": self._items(schema, where)} | _limits("ARRAY", schema)
        choices = _choices(name, schema)
        if choices:
            if name != "string":
                self._changes.note(below(where, "enum"), "has values that are not strings; requested as text")
            return {"type": "STRING", "enum": choices}
        return {"type": name.upper()} | self._rules(name.upper(), schema, where)

    def _items(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        if "prefixItems" not in schema:
            return self._schema(schema.get("items", True), below(where, "items"))
        self._changes.note(below(where, "prefixItems"), "becomes a list of any of these")
        adapted: list[dict[str, Any]] = []
        for index, item in enumerate(schema["prefixItems"]):
            new = self._schema(item, f"{below(where, 'prefixItems')}[{index}]")
            if new not in adapted:
                adapted.append(new)
        return _alternatives(adapted, {}, nullable=False)

    def _rules(self, kind: str, schema: dict[str, Any], where: str) -> dict[str, Any]:
        rules = _limits(kind, schema)
        for keyword, kept in (
            ("format", schema.get("format") in FORMATS.get(kind, ())),
            ("pattern", kind == "STRING" and is_pattern(schema.get("pattern", ""))),
        ):
            if keyword in schema and kept:
                rules[keyword] = schema[keyword]
            else:
                self._changes.leave(schema, (keyword,), where)
        return rules


def _alternatives(adapted: list[dict[str, Any]], schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """One schema for several. No keyword may stand next to `anyOf`, so the first of them has the rest."""
    first, *others = adapted
    if not first.get("anyOf"):
        first = _add_description(first, schema) | ({"nullable": True} if nullable else {})
    return {"anyOf": [first, *others]} if others else first


def _add_description(new: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Add the description, and keep an existing remark."""
    whole = add_description({}, schema).get("description", "")
    remark = new.get("description", "")
    joined = f"{whole} {remark}".strip() if remark not in whole else whole
    return new | {"description": joined} if joined else new


def _as_text(what: str) -> dict[str, Any]:
    return {"type": "STRING", "description": f"({what}, as text)"}


def _choices(name: str, schema: dict[str, Any]) -> list[str]:
    """Values of an enum as text. Booleans have none, and an empty string is not accepted."""
    values: list[Any] = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if name not in ("string", "number", "integer"):
        return []
    kinds = str if name == "string" else int | float
    fitting = [value for value in values if isinstance(value, kinds) and not isinstance(value, bool)]
    texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in fitting]
    return [text for text in dict.fromkeys(texts) if text]


def _limits(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    limits = {keyword: schema[keyword] for keyword in LIMITS.get(kind, ()) if keyword in schema}
    if kind in ("INTEGER", "NUMBER"):
        step = 1 if kind == "INTEGER" else 0  # there is no next number after 0.5: that much is widened
        if "exclusiveMinimum" in schema:
            limits.setdefault("minimum", schema["exclusiveMinimum"] + step)
        if "exclusiveMaximum" in schema:
            limits.setdefault("maximum", schema["exclusiveMaximum"] - step)
    return limits


PROPERTY_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
MEDIA = ("image/", "audio/", "application/pdf")


def to_gemini(entry: ToolEntry, name: str) -> AdaptedTool:
    """Convert a tool to a `FunctionDeclaration`, for `functionDeclarations`.

    What the subset of OpenAPI does not support (an object whose properties are not named, an enum of numbers)
    is requested as text: `coerce` converts it to what the server's own schema requires.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.

    Returns:
        The definition with the changes that were made, or the reason why the tool cannot be used.
    """

    def rewrite(schema: dict[str, Any], changes: DefinitionChanges) -> tuple[dict[str, Any], dict[str, str]]:
        root, hint = without_root_choices(schema, changes)
        root, renamed = with_legal_names(root, PROPERTY_NAME, changes)
        declaration: dict[str, Any] = {"name": name, "description": description_of(entry, hint)}
        if root.get("properties"):  # an object without any is refused
            declaration["parameters"] = gemini_schema(root, changes)
        elif root.get("additionalProperties") not in (None, False):
            changes.note(
                "additionalProperties", "not supported by Gemini; the tool seems to take no arguments"
            )
        return declaration, renamed

    return adapt(entry, name, rewrite)


def gemini_result(
    result: ToolResult, name: str, call_id: str | None = None, *, media: bool = True, vision: bool = True
) -> dict[str, Any]:
    """Convert a result to a `functionResponse` part.

    Args:
        result: What the tool returned.
        name: The name of the function that the model called.
        call_id: The id of the model's call, if the API gave it one.
        media: Include images and other media. Models before Gemini 3 accept none.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The part, for the next content of the conversation.
    """
    result = result if vision else result.without_images()
    parts = parts_of(result)
    taken = [part for part in parts if isinstance(part, Media) and media and part.mime_type.startswith(MEDIA)]
    text = "\n".join(_render_part(part) for part in parts if part not in taken)
    response: dict[str, Any] = {"name": name, "response": _response(result, text)}
    if call_id is not None:
        response["id"] = call_id
    if taken:
        response["parts"] = [
            {"inlineData": {"mimeType": part.mime_type, "data": part.data}} for part in taken
        ]
    return {"functionResponse": response}


def _response(result: ToolResult, text: str) -> dict[str, Any]:
    if result.is_error:
        return {"error": text}
    if result.structured is None or result.remarks.ours:  # omissions are described in text only
        return {"output": text}
    if result.untrusted:  # without `output` in it, all of a response is the function's output
        begin, end = gate.fence(result.server_id)
        return {"output": f"{begin}\n{msgspec.json.encode(result.structured).decode()}\n{end}"}
    return {"output": result.structured}


def _render_part(part: Part) -> str:
    return part if isinstance(part, str) else describe_media(part)
