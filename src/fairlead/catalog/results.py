"""What a tool call brought."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.errors import CallFailed

if TYPE_CHECKING:
    from mcp_types import CallToolResult


class _Shape(msgspec.Struct, rename="camel"):
    content: list[dict[str, Any]] = []
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


_decode = msgspec.json.Decoder(_Shape).decode


class ToolResult:
    """A tool's result: the bytes as they came, read when somebody asks."""

    def __init__(self, server_id: str, raw: msgspec.Raw) -> None:
        self._server_id = server_id
        self._raw = raw

    @classmethod
    def failed(cls, text: str) -> "ToolResult":
        """A result that says why there is none, for a model to read."""
        content = {"content": [{"type": "text", "text": text}], "isError": True}
        return cls("", msgspec.Raw(msgspec.json.encode(content)))

    @property
    def raw(self) -> bytes:
        """The result as the server wrote it."""
        return bytes(self._raw)

    @cached_property
    def _shape(self) -> _Shape:
        try:
            return _decode(self._raw)
        except (msgspec.DecodeError, RecursionError) as exc:
            message = f"what it answered is not a tool result: {exc}"
            raise CallFailed(self._server_id, message, delivery="done") from exc

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks, as plain data."""
        return self._shape.content

    @property
    def structured(self) -> dict[str, Any] | None:
        """The structured content, if the tool gave any."""
        return self._shape.structured_content

    @property
    def is_error(self) -> bool:
        """Did the tool itself say that it failed?"""
        # From the end, where it stands as a rule; in a large result `in` would take three times as long.
        return self.raw.rfind(b'"isError"') >= 0 and self._shape.is_error

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        blocks = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in blocks if isinstance(text, str))

    def typed(self) -> "CallToolResult":
        """The result as the SDK's model."""
        from mcp_types import CallToolResult

        return CallToolResult.model_validate_json(self.raw, by_name=False)
