"""Tools for programs that use several providers: a form that all accept, and all converters by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fairlead.adapters.anthropic import PROPERTY_NAME, to_anthropic
from fairlead.adapters.definition import AdaptedTool, DefinitionChanges, adapt, description_of
from fairlead.adapters.gemini import to_gemini
from fairlead.adapters.json_schema import (
    complete_schema,
    with_legal_names,
    with_objects_for_booleans,
    with_sound_patterns,
    without_root_choices,
)
from fairlead.adapters.openai import to_openai
from fairlead.catalog.tools import ToolEntry

Adapter = Callable[[ToolEntry, str], AdaptedTool]
"""From a tool and its public name to a provider's definition."""

PROVIDERS: dict[str, Adapter] = {
    "openai": to_openai,
    "openai-strict": partial(to_openai, strict=True),
    "anthropic": to_anthropic,
    "gemini": to_gemini,
}
"""The converters of all model providers, to check tools against several of them."""


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
