"""Tools for OpenAI's Responses and Chat Completions APIs, also in its strict subset of JSON Schema.

Strict: closed objects, every property required, few keywords.
"""

from typing import Any, Literal

import msgspec

from fairlead.adapters.content import FAILED, UNEXPLAINED, Media, Part, describe_media, parts_of
from fairlead.adapters.definition import AdaptedTool, DefinitionChanges, adapt, description_of
from fairlead.adapters.json_schema import (
    FURTHER_RULES,
    add_description,
    complete_schema,
    name_types,
    with_objects_for_booleans,
    with_sound_patterns,
    without_root_choices,
)
from fairlead.catalog.results import ToolResult
from fairlead.catalog.schema.coerce import TypesOf
from fairlead.catalog.schema.keywords import Schema, below
from fairlead.catalog.schema.portable import is_pattern
from fairlead.catalog.tools import ToolEntry
from fairlead.config.untyped import is_list, is_object

MAX_DEPTH = 10
MAX_PROPERTIES = 5_000
MAX_ENUM_VALUES = 1_000
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_KEPT = (
    *("enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minItems", "maxItems"),
)
_LEFT = (*FURTHER_RULES, "minLength", "maxLength")


class NotStrict(Exception):
    """A schema that the strict subset does not support. The message is a predicate about `where`."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def strict_schema(root: dict[str, Any], changes: DefinitionChanges) -> dict[str, Any]:
    """Convert a schema to the strict subset. Keywords that only narrow a value are left to the server.

    An optional property is required there and may be null: `coerce` removes such nulls from a call again.
    """
    closed: dict[str, Any] = (
        {} if root.get("properties") else {"properties": {}, "additionalProperties": False}
    )
    return _StrictSubset(root, changes).document(root | closed)


class _StrictSubset:
    def __init__(self, root: dict[str, Any], changes: DefinitionChanges) -> None:
        self._changes = changes
        self._types = TypesOf(root)
        self._defined: dict[str, Any] = root.get("$defs", {})
        self._wanted: list[str] = []
        self._properties = self._enum_values = 0

    def document(self, root: dict[str, Any]) -> dict[str, Any]:
        new = self._schema(root, "", 1)
        definitions: dict[str, Any] = {}
        for name in self._wanted:  # grows meanwhile
            definitions[name] = self._schema(self._defined[name], f"$defs.{name}", 1)
        return new | {"$defs": definitions} if definitions else new

    def _schema(self, schema: Schema, where: str, depth: int) -> dict[str, Any]:
        if isinstance(schema, bool):
            raise NotStrict(where, "accepts anything" if schema else "accepts nothing")
        if depth > MAX_DEPTH:
            raise NotStrict(where, f"is more than {MAX_DEPTH} levels deep")
        schema = self._simplify(schema, where)
        if "$ref" in schema:
            return self._reference(schema["$ref"], where)
        if "anyOf" in schema:
            new = {"anyOf": [self._schema(one, f"{where}.anyOf", depth) for one in schema["anyOf"]]}
            return add_description(new, schema)
        types = name_types(schema, self._types(schema))
        if not types:
            raise NotStrict(where, "accepts anything")
        new: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
        new |= {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
        self._enum_values += len(schema.get("enum", ()))
        if "object" in types:
            new |= self._object(schema, where, depth)
        if "array" in types:
            new["items"] = self._schema(schema.get("items", True), below(where, "items"), depth + 1)
        if self._properties > MAX_PROPERTIES or self._enum_values > MAX_ENUM_VALUES:
            raise NotStrict(where, "is one property or value too many")
        return add_description(new | self._text_rules(schema, where), schema)

    def _simplify(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        """Schema without redundant forms."""
        for keyword in ("patternProperties", "prefixItems"):
            if keyword in schema:
                raise NotStrict(where, f"has `{keyword}`")
        self._changes.leave(schema, _LEFT, where)
        if "allOf" in schema:
            only = schema["allOf"][0]
            if len(schema["allOf"]) > 1 or not is_object(only):
                raise NotStrict(where, "combines several schemas")
            schema = only | {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
        if "oneOf" in schema:
            self._changes.note(below(where, "oneOf"), "becomes `anyOf`")
            schema = schema | {"anyOf": [*schema.get("anyOf", ()), *schema["oneOf"]]}
        if "anyOf" in schema and any(
            keyword in schema for keyword in ("properties", "items", "enum", "const")
        ):
            raise NotStrict(where, "combines alternatives with other keywords")
        return schema

    def _reference(self, reference: str, where: str) -> dict[str, Any]:
        name = reference.removeprefix("#/$defs/")
        if reference != "#" and (name == reference or name not in self._defined):
            raise NotStrict(where, f"refers to `{reference}`")
        if reference != "#" and name not in self._wanted:
            self._wanted.append(name)
        return {"$ref": reference}

    def _object(self, schema: dict[str, Any], where: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        if others not in (None, False) or (not properties and others is not False):
            raise NotStrict(where, "accepts properties that are not named")
        self._properties += len(properties)
        required = schema.get("required", ())
        new: dict[str, Any] = {}
        for name, inner in properties.items():
            place = below(below(where, "properties"), name)
            new[name] = self._schema(inner, place, depth + 1)
            if name not in required and "null" not in self._types(inner):
                new[name] = _nullable(new[name])
                self._changes.note(place, "is required there, and null where it would be left out")
        return {"properties": new, "required": list(new), "additionalProperties": False}

    def _text_rules(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        rules: dict[str, Any] = {}
        for keyword, sound in (("format", _is_format), ("pattern", _is_plain_pattern)):
            if keyword in schema and sound(schema[keyword]):
                rules[keyword] = schema[keyword]
            else:
                self._changes.leave(schema, (keyword,), where)
        return rules


def _is_format(name: str) -> bool:
    return name in FORMATS


def _is_plain_pattern(pattern: str) -> bool:
    return "(?" not in pattern.replace("(?:", "") and is_pattern(pattern)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "type" not in schema or "const" in schema:
        choices = schema.get("anyOf", [schema])
        rest = {"description": schema["description"]} if "anyOf" in schema and "description" in schema else {}
        return {"anyOf": [*choices, {"type": "null"}]} | rest
    types = schema["type"] if is_list(schema["type"]) else [schema["type"]]
    enum = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return schema | {"type": [*types, "null"]} | enum


Api = Literal["responses", "chat"]

MAX_TOOLS = 128
_FOLLOWS = "({}, {} bytes: shown in the user message that follows the results)"
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
FILES = frozenset({"application/pdf"})


def to_openai(
    entry: ToolEntry,
    name: str,
    *,
    api: Literal["responses", "chat"] = "responses",
    strict: bool = False,
    max_description: int | None = None,
) -> AdaptedTool:
    """Convert a tool to an item of `tools` in one of the two APIs.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.
        api: Responses or Chat Completions, which nest a definition differently.
        strict: Hold the model to the schema, where the strict subset supports it. A tool that it does not
            support is sent without, and the change is noted.
        max_description: The limit of a service with this API that cuts descriptions.

    Returns:
        The definition with the changes that were made, or the reason why the tool cannot be used.
    """

    def rewrite(schema: dict[str, Any], changes: DefinitionChanges) -> tuple[dict[str, Any], dict[str, str]]:
        root, hint = without_root_choices(schema, changes)
        function: dict[str, Any] = {"name": name, "description": description_of(entry, hint)}
        if max_description is not None and len(function["description"]) > max_description:
            changes.note("description", f"is cut to {max_description} characters")
            function["description"] = f"{function['description'][: max_description - 1]}…"
        function |= _parameters(root, changes, strict=strict)
        if api == "chat":
            return {"type": "function", "function": function}, {}
        return {"type": "function"} | function, {}

    return adapt(entry, name, rewrite)


def openai_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments of a function call.

    Args:
        text: The arguments as the API has them: JSON text, or empty.

    Returns:
        The arguments by name.

    Raises:
        ValueError: It is not a JSON object.
    """
    try:
        return msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except RecursionError as exc:
        raise ValueError("the arguments are nested too deeply") from exc


def openai_result(result: ToolResult, call_id: str, *, vision: bool = True) -> dict[str, Any]:
    """Convert a result to a `function_call_output` item of the Responses API.

    Args:
        result: What the tool returned.
        call_id: The `call_id` of the model's function call.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The item, for the next request's `input`.
    """
    parts = _parts(result, vision=vision)
    output: str | list[dict[str, Any]] = _text(parts)
    if any(isinstance(part, Media) for part in parts):
        output = [_item(part) for part in parts]
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def openai_messages(result: ToolResult, call_id: str, *, vision: bool = True) -> list[dict[str, Any]]:
    """Convert a result to messages of the Chat Completions API.

    A tool's message accepts no images there. They follow in a user message, which must come after the
    messages of all tools that were called together.

    Args:
        result: What the tool returned.
        call_id: The id of the model's tool call.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The tool's message, and the user message with images where there are some.
    """
    parts = _parts(result, vision=vision)
    images = [part for part in parts if isinstance(part, Media) and part.mime_type in IMAGES]
    told = [_FOLLOWS.format(part.mime_type, part.size) if part in images else part for part in parts]
    messages: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": call_id, "content": _text(told)}]
    if images:
        shown = [{"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images]
        note = {"type": "text", "text": f"The images that the tool call {call_id} returned:"}
        messages.append({"role": "user", "content": [note, *shown]})
    return messages


def _parameters(root: dict[str, Any], changes: DefinitionChanges, *, strict: bool) -> dict[str, Any]:
    if strict:
        kept = len(changes.made)
        try:
            return {"parameters": strict_schema(root, changes), "strict": True}
        except NotStrict as exc:
            del changes.made[kept:]
            changes.note(exc.where, f"{exc}; the tool is sent without `strict`")
    root = complete_schema(with_objects_for_booleans(with_sound_patterns(root, changes)))
    # The Responses API takes a definition without `strict` as strict.
    return {"parameters": root, "strict": False}


def _parts(result: ToolResult, *, vision: bool) -> list[Part]:
    """Parts of a result. A failure can only be described in text here."""
    parts = parts_of(result, vision=vision)
    return [FAILED, *parts] if result.is_error and parts != [UNEXPLAINED] else parts


def _text(parts: list[Part]) -> str:
    return "\n".join(part if isinstance(part, str) else describe_media(part) for part in parts)


def _item(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.mime_type in IMAGES:
        return {"type": "input_image", "image_url": _data_url(part)}
    if part.mime_type in FILES:
        return {"type": "input_file", "filename": "result.pdf", "file_data": _data_url(part)}
    return {"type": "input_text", "text": describe_media(part)}


def _data_url(media: Media) -> str:
    return f"data:{media.mime_type};base64,{media.data}"
