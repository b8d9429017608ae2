"""Tools in a form that all providers accept, for programs that use several."""

from typing import Any

from fairlead.adapters.anthropic import PROPERTY_NAME
from fairlead.adapters.definition import AdaptedTool, DefinitionChanges, adapt, description_of
from fairlead.adapters.json_schema import (
    complete_schema,
    with_legal_names,
    with_objects_for_booleans,
    with_sound_patterns,
    without_root_choices,
)
from fairlead.catalog.tools import ToolEntry


def to_common(entry: ToolEntry, name: str) -> AdaptedTool:
    """Convert a tool to a plain JSON Schema: `name`, `description` and `input_schema`.

    Nothing is composed at its top, lists and objects describe their content, and property names are ones that
    most providers accept. Clients of Gemini rewrite the rest.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.

    Returns:
        The definition with the changes that were made, or the reason why the tool cannot be used.
    """

    def rewrite(schema: dict[str, Any], changes: DefinitionChanges) -> tuple[dict[str, Any], dict[str, str]]:
        root, hint = without_root_choices(schema, changes)
        root = complete_schema(with_objects_for_booleans(with_sound_patterns(root, changes)))
        root, renamed = with_legal_names(root, PROPERTY_NAME, changes)
        return {"name": name, "description": description_of(entry, hint), "input_schema": root}, renamed

    return adapt(entry, name, rewrite)
