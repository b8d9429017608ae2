"""Definitions for the tests of pins and locks."""

from typing import Any

import msgspec

from fairlead.catalog.tools import Listing, ToolEntry, ToolKey

SEARCH: dict[str, Any] = {
    "name": "search",
    "title": "Search",
    "description": "Find issues.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "fields": {"type": "string", "default": "id,title"},
            "order": {"enum": ["up", "down"], "default": "up"},
        },
        "required": ["query"],
    },
    "outputSchema": {"type": "object", "properties": {"hits": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
}


def encoded(definition: dict[str, Any]) -> bytes:
    return msgspec.json.encode(definition)


def entry(definition: dict[str, Any], server_id: str = "x") -> ToolEntry:
    return ToolEntry(
        key=ToolKey(server_id, definition["name"]),
        definition=encoded(definition),
        title=definition.get("title"),
        description=definition.get("description"),
    )


def listing(*definitions: dict[str, Any], instructions: str | None = None) -> Listing:
    return Listing(tools=tuple(map(entry, definitions)), instructions=instructions)


def changed(definition: dict[str, Any], *path: str, to: object) -> dict[str, Any]:
    """The definition with another value at a path; the rest is shared, and nobody changes it."""
    first, *rest = path
    return {**definition, first: changed(definition.get(first, {}), *rest, to=to) if rest else to}
