"""Tools for Pydantic AI. Needs `pydantic-ai-slim`."""

from base64 import b64decode
from typing import Any

from pydantic_ai import ModelRetry, Tool
from pydantic_ai.messages import BinaryContent

from fairlead.adapters.common import to_common
from fairlead.adapters.content import Part, parts_of, text_of
from fairlead.adapters.definition import Caller
from fairlead.catalog.tools import ToolEntry


def to_pydantic_ai(entry: ToolEntry, name: str, call: Caller, *, vision: bool = True) -> Tool[Any] | None:
    """Convert a tool to a Pydantic AI tool. A failure is a `ModelRetry`, within the agent's retries.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.
        call: Makes the call, such as `lambda key, arguments: host.call(key.server_id, key.tool, arguments)`.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The tool; None where its schema cannot be used.
    """
    adapted = to_common(entry, name)
    if adapted.definition is None:
        return None

    async def run(**arguments: object) -> object:
        result = await call(adapted.key, adapted.arguments(arguments))
        if result.is_error:
            raise ModelRetry(text_of(result))
        parts = [_content(part) for part in parts_of(result, vision=vision)]
        return parts[0] if len(parts) == 1 else parts

    return Tool[Any].from_schema(
        run,
        name=name,
        description=adapted.definition["description"],
        json_schema=adapted.definition["input_schema"],
    )


def _content(part: Part) -> str | BinaryContent:
    if isinstance(part, str):
        return part
    return BinaryContent(data=b64decode(part.data), media_type=part.mime_type)
