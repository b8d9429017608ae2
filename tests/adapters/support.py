"""Results for tests."""

import json
from typing import Any

import msgspec

from fairlead.catalog.results import ToolResult

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def image(mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mimeType": mime_type, "data": PIXEL}


def answer(*content: dict[str, Any], **rest: Any) -> ToolResult:
    """What a server answered to a call."""
    return ToolResult("server", msgspec.Raw(json.dumps({"content": content} | rest).encode()))
