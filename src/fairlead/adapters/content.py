"""Results of tools as parts that every provider understands: text and media."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import as_object

NOTHING = "(the tool returned nothing)"
FAILED = "(the tool failed)"
UNEXPLAINED = "(the tool failed without an error message)"
DEFAULT_MIME_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or a file. Its data is base64, and never becomes text."""

    mime_type: str
    data: str = field(repr=False)
    handle: str | None = None
    """Artifact of it, for a model that does not accept it."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data) * 3 // 4


Part = str | Media


def parts_of(result: ToolResult, *, vision: bool = True) -> list[Part]:
    """Everything of a result that a model should see, in order; never empty.

    Untrusted content stands between two random delimiter lines that say so. Our notes follow after them.
    Without `vision` a note stands in the place of each image.
    """
    if not vision:
        result = result.without_images()
    parts: list[Part] = []
    has_words, ends = False, 0
    for place, block in enumerate(result.content):
        found = [*_parts_of_block(block, result.remarks.handles.get(place))]
        parts += found
        if place not in result.remarks.ours:
            has_words = has_words or any(map(_is_words, found))
            ends = len(parts)
    if result.structured is not None and not has_words:
        parts.append(msgspec.json.encode(result.structured).decode())
        ends = len(parts)
    if not parts:
        return [UNEXPLAINED if result.is_error else NOTHING]
    if not result.untrusted:
        return parts
    begin, end = gate.fence(result.server_id)
    return [begin, *parts[:ends], end, *parts[ends:]]


def text_of(result: ToolResult) -> str:
    """Like `parts_of`, as text alone."""
    return "\n".join(part if isinstance(part, str) else describe_media(part) for part in parts_of(result))


def describe_media(media: Media) -> str:
    """Text in place of media that a provider does not accept."""
    kept = f"; stored as {media.handle}" if media.handle else ""
    return f"({media.mime_type}, {media.size} bytes: cannot be shown here{kept})"


def _is_words(part: Part) -> bool:
    return isinstance(part, str)


def _parts_of_block(block: Mapping[str, Any], handle: str | None) -> Iterator[Part]:
    match block:
        case {"type": "text", "text": str(text)}:
            if text:
                yield text
        case {"type": "image" | "audio", "data": str(data)}:
            yield Media(_mime_type(block), data, handle)
        case {"type": "resource", "resource": {"text": str(text)}}:
            yield f"{_heading(block['resource'])}{text}"
        case {"type": "resource", "resource": {"blob": str(data)}}:
            yield Media(_mime_type(block["resource"]), data, handle)
        case {"type": "resource_link", "uri": str(uri)}:
            texts = [str(block[name]) for name in ("title", "name", "description") if block.get(name)]
            yield " ".join([*texts, f"<{uri}>"])
        case _:
            yield f"(content of type {str(block.get('type'))[:40]!r}: cannot be shown here)"


def _mime_type(holder: Mapping[str, Any]) -> str:
    mime_type = holder.get("mimeType")
    # Case does not count in media types, and providers compare them as written.
    return mime_type.lower() if isinstance(mime_type, str) and mime_type else DEFAULT_MIME_TYPE


def _heading(resource: object) -> str:
    uri = as_object(resource).get("uri")
    return f"{uri}\n" if isinstance(uri, str) and uri else ""
