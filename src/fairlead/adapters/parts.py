"""What a tool brought, cut into what every provider understands: text and media."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.config.shapes import as_object

NOTHING = "(the tool returned nothing)"
UNEXPLAINED = "(the tool failed and did not say why)"
DEFAULT_MIME_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or a file. Its data is base64, and never becomes text."""

    mime_type: str
    data: str = field(repr=False)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.data) * 3 // 4


Part = str | Media


def parts_of(result: ToolResult) -> list[Part]:
    """Everything a model should see, in order. There is always something."""
    parts = [part for block in result.content for part in _parts_of_block(block)]
    if result.structured is not None and not any(isinstance(part, str) for part in parts):
        parts.append(msgspec.json.encode(result.structured).decode())
    return parts or [UNEXPLAINED if result.is_error else NOTHING]


def text_of(result: ToolResult) -> str:
    """The same for who can show text alone."""
    return "\n".join(part if isinstance(part, str) else unseen(part) for part in parts_of(result))


def unseen(media: Media) -> str:
    """What stands in for media that a provider does not take."""
    return f"({media.mime_type}, {media.size} bytes: cannot be shown here)"


def _parts_of_block(block: Mapping[str, Any]) -> Iterator[Part]:
    match block:
        case {"type": "text", "text": str(text)}:
            if text:
                yield text
        case {"type": "image" | "audio", "data": str(data)}:
            yield Media(_mime_type(block), data)
        case {"type": "resource", "resource": {"text": str(text)}}:
            yield f"{_heading(block['resource'])}{text}"
        case {"type": "resource", "resource": {"blob": str(data)}}:
            yield Media(_mime_type(block["resource"]), data)
        case {"type": "resource_link", "uri": str(uri)}:
            said = [str(block[name]) for name in ("title", "name", "description") if block.get(name)]
            yield " ".join([*said, f"<{uri}>"])
        case _:
            yield f"(content of type {str(block.get('type'))[:40]!r}: cannot be shown here)"


def _mime_type(holder: Mapping[str, Any]) -> str:
    mime_type = holder.get("mimeType")
    return mime_type if isinstance(mime_type, str) and mime_type else DEFAULT_MIME_TYPE


def _heading(resource: object) -> str:
    uri = as_object(resource).get("uri")
    return f"{uri}\n" if isinstance(uri, str) and uri else ""
