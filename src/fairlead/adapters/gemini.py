"""Tools for Google's Gemini API."""

import re
from typing import Any

import msgspec

from fairlead.adapters.adapted import AdaptedTool, Changes, adapt, description_of
from fairlead.adapters.gemini_schema import gemini_schema
from fairlead.adapters.parts import Media, Part, parts_of, unseen
from fairlead.adapters.rewriting import with_legal_names, without_root_choices
from fairlead.catalog import gate
from fairlead.catalog.entries import ToolEntry
from fairlead.catalog.results import ToolResult

TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
PROPERTY_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
MEDIA = ("image/", "audio/", "application/pdf")


def to_gemini(entry: ToolEntry, name: str) -> AdaptedTool:
    """A tool as a `FunctionDeclaration`, to be listed under `functionDeclarations`.

    What its subset of OpenAPI cannot say (an object whose properties are not named, a choice of numbers) is
    asked for as text: `coerce` makes of it what the server's own schema demands.
    """

    def rewrite(schema: dict[str, Any], changes: Changes) -> tuple[dict[str, Any], dict[str, str]]:
        root, hint = without_root_choices(schema, changes)
        root, renamed = with_legal_names(root, PROPERTY_NAME, changes)
        declaration: dict[str, Any] = {"name": name, "description": description_of(entry, hint)}
        if root.get("properties"):  # an object without any is refused
            declaration["parameters"] = gemini_schema(root, changes)
        elif root.get("additionalProperties") not in (None, False):
            changes.note("additionalProperties", "cannot be said; the tool seems to take no arguments")
        return declaration, renamed

    return adapt(entry, name, rewrite)


def gemini_result(
    result: ToolResult, name: str, call_id: str | None = None, *, media: bool = True
) -> dict[str, Any]:
    """What a tool brought as a `functionResponse` part. Models before Gemini 3 take no `media` in it."""
    parts = parts_of(result)
    taken = [part for part in parts if isinstance(part, Media) and media and part.mime_type.startswith(MEDIA)]
    said = "\n".join(_said(part) for part in parts if part not in taken)
    response: dict[str, Any] = {"name": name, "response": _response(result, said)}
    if call_id is not None:
        response["id"] = call_id
    if taken:
        response["parts"] = [
            {"inlineData": {"mimeType": part.mime_type, "data": part.data}} for part in taken
        ]
    return {"functionResponse": response}


def _response(result: ToolResult, said: str) -> dict[str, Any]:
    if result.is_error:
        return {"error": said}
    if result.structured is None or result.remarks.ours:  # what was left out is only said in words
        return {"output": said}
    if result.untrusted:  # without `output` in it, all of a response is what the function put out
        begin, end = gate.fence(result.server_id)
        return {"output": f"{begin}\n{msgspec.json.encode(result.structured).decode()}\n{end}"}
    return {"output": result.structured}


def _said(part: Part) -> str:
    return part if isinstance(part, str) else unseen(part)
