"""Tools for OpenAI's Responses and Chat Completions APIs."""

import re
from typing import Any, Literal

import msgspec

from fairlead.adapters.adapted import AdaptedTool, Changes, adapt, description_of
from fairlead.adapters.openai_strict import NotStrict, strict_schema
from fairlead.adapters.parts import FAILED, UNEXPLAINED, Media, Part, parts_of, unseen
from fairlead.adapters.rewriting import (
    completed,
    with_objects_for_booleans,
    with_sound_patterns,
    without_root_choices,
)
from fairlead.catalog.entries import ToolEntry
from fairlead.catalog.results import ToolResult

Api = Literal["responses", "chat"]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_TOOLS = 128
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
FILES = frozenset({"application/pdf"})


def to_openai(
    entry: ToolEntry,
    name: str,
    *,
    api: Api = "responses",
    strict: bool = False,
    max_description: int | None = None,
) -> AdaptedTool:
    """A tool as `tools` takes it in one of the two APIs.

    With `strict` the model is held to the schema, where it can be said within the strict subset; a tool whose
    schema cannot is sent without, and the change is noted. `max_description` is for services that speak this
    API and take no more than so many characters.
    """

    def rewrite(schema: dict[str, Any], changes: Changes) -> tuple[dict[str, Any], dict[str, str]]:
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
    """The arguments of a function call, which come as JSON text. Raises ValueError if it is no object."""
    try:
        return msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except RecursionError as exc:
        raise ValueError("the arguments are nested too deeply") from exc


def openai_result(result: ToolResult, call_id: str) -> dict[str, Any]:
    """What a tool brought as a `function_call_output` item of the Responses API."""
    parts = _parts(result)
    output: str | list[dict[str, Any]] = _text(parts)
    if any(isinstance(part, Media) for part in parts):
        output = [_item(part) for part in parts]
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def openai_messages(result: ToolResult, call_id: str) -> list[dict[str, Any]]:
    """What a tool brought as messages of the Chat Completions API.

    A tool's message takes no images there. They follow in a message of the user's, which must come after the
    messages of all tools that were called together.
    """
    parts = _parts(result)
    messages: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": call_id, "content": _text(parts)}]
    images = [part for part in parts if isinstance(part, Media) and part.mime_type in IMAGES]
    if images:
        shown = [{"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images]
        note = {"type": "text", "text": f"The images that the tool call {call_id} returned:"}
        messages.append({"role": "user", "content": [note, *shown]})
    return messages


def _parameters(root: dict[str, Any], changes: Changes, *, strict: bool) -> dict[str, Any]:
    if strict:
        kept = len(changes.made)
        try:
            return {"parameters": strict_schema(root, changes), "strict": True}
        except NotStrict as exc:
            del changes.made[kept:]
            changes.note(exc.where, f"{exc}; the tool is sent without `strict`")
    root = completed(with_objects_for_booleans(with_sound_patterns(root, changes)))
    # The Responses API takes what says nothing about `strict` as strict.
    return {"parameters": root, "strict": False}


def _parts(result: ToolResult) -> list[Part]:
    """What a tool brought. That it failed can only be said in words here."""
    parts = parts_of(result)
    return [FAILED, *parts] if result.is_error and parts != [UNEXPLAINED] else parts


def _text(parts: list[Part]) -> str:
    return "\n".join(part if isinstance(part, str) else unseen(part) for part in parts)


def _item(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.mime_type in IMAGES:
        return {"type": "input_image", "image_url": _data_url(part)}
    if part.mime_type in FILES:
        return {"type": "input_file", "filename": "result.pdf", "file_data": _data_url(part)}
    return {"type": "input_text", "text": unseen(part)}


def _data_url(media: Media) -> str:
    return f"data:{media.mime_type};base64,{media.data}"
