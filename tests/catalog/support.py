"""Tools for tests."""

import json
from typing import Any

from hypothesis import strategies as st

from fairlead.catalog.tools import ToolEntry, ToolKey


def tool(
    schema: object, *, name: str = "tool", server: str = "server", description: str = "Does it."
) -> ToolEntry:
    """A tool with that input schema, as a server would define it."""
    definition: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    return ToolEntry(
        key=ToolKey(server, name), definition=json.dumps(definition).encode(), description=description
    )


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "required",
            "items",
            "prefixItems",
            "additionalItems",
            "additionalProperties",
        ),
        *("patternProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const"),
        *(
            "pattern",
            "minimum",
            "exclusiveMinimum",
            "maxLength",
            "minItems",
            "uniqueItems",
            "format",
            "title",
        ),
        *(
            "dependencies",
            "dependentRequired",
            "definitions",
            "$defs",
            "$ref",
            "$dynamicRef",
            "$id",
            "$anchor",
        ),
        *("nullable", "default"),
    ]
)
broken_schemas: st.SearchStrategy[Any] = st.recursive(
    json_values,
    lambda inner: st.dictionaries(keywords, inner | st.lists(inner, max_size=2) | json_values, max_size=4),
    max_leaves=12,
)
"""Nearly anything that a server may send for a schema."""
