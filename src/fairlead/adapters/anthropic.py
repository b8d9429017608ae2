"""Tools for Anthropic's Messages API."""

import re
from typing import Any

from fairlead.adapters.content import Part, describe_media, parts_of
from fairlead.adapters.definition import AdaptedTool, DefinitionChanges, adapt, description_of
from fairlead.adapters.json_schema import with_legal_names, with_sound_patterns, without_root_choices
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolEntry

PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
DOCUMENTS = frozenset({"application/pdf"})


def to_anthropic(entry: ToolEntry, name: str) -> AdaptedTool:
    """Convert a tool to an item of `tools`: `name`, `description` and `input_schema`.

    The API refuses a whole request for one schema that is invalid by draft 2020-12, is composed at its top,
    or has property names outside of `[a-zA-Z0-9_.-]{1,64}`.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.

    Returns:
        The definition with the changes that were made, or the reason why the tool cannot be used.
    """

    def rewrite(schema: dict[str, Any], changes: DefinitionChanges) -> tuple[dict[str, Any], dict[str, str]]:
        root, hint = without_root_choices(schema, changes)
        root, renamed = with_legal_names(with_sound_patterns(root, changes), PROPERTY_NAME, changes)
        return {"name": name, "description": description_of(entry, hint), "input_schema": root}, renamed

    return adapt(entry, name, rewrite)


def anthropic_result(result: ToolResult, tool_use_id: str, *, vision: bool = True) -> dict[str, Any]:
    """Convert a result to a `tool_result` block, for the next user message.

    Args:
        result: What the tool returned.
        tool_use_id: The id of the model's `tool_use` block.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The block, with `is_error` where the tool failed.
    """
    content = [_block(part) for part in parts_of(result, vision=vision)]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return block | {"is_error": True} if result.is_error else block


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.mime_type in IMAGES | DOCUMENTS:
        kind = "image" if part.mime_type in IMAGES else "document"
        source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
        return {"type": kind, "source": source}
    return {"type": "text", "text": describe_media(part)}
