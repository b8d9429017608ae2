"""What the strictest client of each protocol version takes: JSON Schemas of results, by version."""

from functools import cache
from typing import Any

import jsonschema
from mcp_types.methods import validate_server_result

from fairlead.catalog.repair.protocol_versions import VERSIONS

METHODS = {
    "tool": "tools/call",
    "prompt": "prompts/get",
    "resource": "resources/read",
    "completion": "completion/complete",
}
BASE64 = {
    "type": "string",
    "pattern": r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}
URI = {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*$"}
TEXT = {"type": "string"}
META: dict[str, Any] = {
    "type": "object",
    "properties": {
        "progressToken": {"type": ["string", "integer"], "exclusiveMaximum": 2**53},
        "io.modelcontextprotocol/related-task": {
            "type": "object",
            "properties": {"taskId": TEXT},
            "required": ["taskId"],
        },
        "io.modelcontextprotocol/serverInfo": {
            "type": "object",
            "properties": {"name": TEXT, "version": TEXT},
            "required": ["name", "version"],
        },
    },
}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
    }


@cache
def _validator(kind: str, version: str) -> Any:
    return jsonschema.Draft202012Validator(_schema(kind, version))


def _schema(kind: str, version: str) -> dict[str, Any]:
    number = VERSIONS.index(version)
    meta: dict[str, Any] = {"_meta": META} if number >= 2 else {}
    hints: dict[str, Any] = {
        "audience": {"type": "array", "items": {"enum": ["user", "assistant"]}},
        "priority": {"type": "number", "minimum": 0, "maximum": 1},
    }
    if number >= 2:
        hints["lastModified"] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:\d\d)$"}
    more: dict[str, Any] = {"annotations": _object({}, hints), **meta}
    if number < 2:
        more["annotations"]["properties"]["lastModified"] = False
    part = {
        "not": {"required": ["text", "blob"]},
        "anyOf": [
            _object({"uri": URI, "text": TEXT}, {"mimeType": TEXT, **meta}),
            _object({"uri": URI, "blob": BASE64}, {"mimeType": TEXT, **meta}),
        ],
    }
    media = {"data": BASE64, "mimeType": TEXT}
    blocks = [
        _object({"type": {"const": "text"}, "text": TEXT}, more),
        _object({"type": {"const": "image"}, **media}, more),
        _object({"type": {"const": "resource"}, "resource": part}, more),
    ]
    if number >= 1:
        blocks.append(_object({"type": {"const": "audio"}, **media}, more))
    if number >= 2:
        link = {"title": TEXT, "description": TEXT, "mimeType": TEXT, "size": {"type": "integer"}}
        icons: dict[str, Any] = {"icons": {"type": "array"}} if number >= 3 else {}
        named = {"type": {"const": "resource_link"}, "uri": URI, "name": {"type": "string", "minLength": 1}}
        blocks.append(_object(named, {**link, **more, **icons}))
    block = {"anyOf": blocks}
    results: dict[str, dict[str, Any]] = {
        "tool": _object(
            {"content": {"type": "array", "items": block}},
            {"isError": {"type": "boolean"}, "structuredContent": _structured(number), "_meta": META},
        ),
        "prompt": _object(
            {
                "messages": {
                    "type": "array",
                    "items": _object({"role": {"enum": ["user", "assistant"]}, "content": block}, {}),
                }
            },
            {"description": TEXT, "_meta": META},
        ),
        "resource": _object({"contents": {"type": "array", "items": part}}, {"_meta": META}),
        "completion": _object(
            {
                "completion": _object(
                    {"values": {"type": "array", "items": TEXT, "maxItems": 100}},
                    {"total": {"type": "integer", "minimum": 0}, "hasMore": {"type": "boolean"}},
                )
            },
            {"_meta": META},
        ),
    }
    return results[kind]


def _structured(number: int) -> Any:
    return {} if number == 4 else {"type": "object"} if number >= 2 else False


def check(kind: str, version: str, result: dict[str, Any]) -> None:
    """Raise where some client of this version would not take the result."""
    _validator(kind, version).validate(result)
    if version == VERSIONS[-1]:
        assert result["resultType"] == "complete"
    validate_server_result(METHODS[kind], version, result)
