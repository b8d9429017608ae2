"""Sampling requests of servers, made safe for a model or client: cleaned, masked and bounded.

Text has the budget that results have (`max_result_bytes`), media a fixed one, and everything else together
(options, metadata, messages without text) must be small, or the request is refused. What is left out is named
where it was, so that a model does not take a part for the whole.
"""

from typing import Any, Final

import mcp_types as types
import msgspec

from fairlead.catalog import gate
from fairlead.config.shapes import is_list

MAX_MEDIA_BYTES: Final = 1024 * 1024
"""Of all images and sounds of a request, as base64."""
MAX_OTHER_BYTES: Final = 64 * 1024
"""Of all that is neither text for the model nor media."""

_Params = types.CreateMessageRequestParams


async def make_safe(params: _Params, limit: int) -> tuple[_Params, list[str]]:
    """Clean, mask and bound a sampling request.

    Args:
        params: What the server sent.
        limit: How many bytes of text a model may be given.

    Returns:
        The request as a model may see it, and what was left out of it, in words.

    Raises:
        ValueError: It is too large in what cannot be cut.
    """
    raw = params.model_dump_json(by_alias=True, exclude_none=True).encode()
    cleaned = await gate.run(gate.answer_steps(raw))
    if len(cleaned) <= min(limit, MAX_OTHER_BYTES):
        return (params if cleaned is raw else _Params.model_validate_json(cleaned)), []
    said: dict[str, Any] = msgspec.json.decode(cleaned)
    bounding = _Bounding(limit)
    bounding.cut(said)
    if len(msgspec.json.encode(said)) - bounding.spent > MAX_OTHER_BYTES:
        raise ValueError(
            f"the request has more than {MAX_OTHER_BYTES:,} bytes of options, metadata or empty messages"
        )
    return _Params.model_validate(said), bounding.notes


class _Bounding:
    """One pass over a request: spends the budgets in order, and notes what was left out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text_left = limit
        self._media_left = MAX_MEDIA_BYTES
        self.spent = 0
        """The bytes of JSON that the budgets paid for."""
        self.notes: list[str] = []

    def cut(self, said: dict[str, Any]) -> None:
        if isinstance(said.get("systemPrompt"), str):
            said["systemPrompt"] = self._text(said["systemPrompt"])
        for message in said["messages"]:
            content: Any = message["content"]
            message["content"] = [*map(self._block, content)] if is_list(content) else self._block(content)

    def _block(self, block: dict[str, Any]) -> dict[str, Any]:
        if isinstance(block.get("text"), str):
            block["text"] = self._text(block["text"])
        elif isinstance(block.get("data"), str):
            size = len(block["data"])
            if size > self._media_left:
                kind = "an image" if block["type"] == "image" else "a sound"
                return {"type": "text", "text": self._left_out(f"{kind} of {size:,} bytes")}
            self._media_left -= size
            self.spent += size
        return block

    def _text(self, text: str) -> str:
        encoded = text.encode(errors="replace")
        if len(encoded) <= self._text_left:
            self._text_left -= len(encoded)
            self.spent += len(msgspec.json.encode(text))
            return text
        kept = encoded[: self._text_left].decode(errors="ignore")
        more = len(encoded) - len(kept.encode())
        self._text_left = 0
        self.spent += len(msgspec.json.encode(kept))
        return f"{kept}\n{self._left_out(f'{more:,} bytes of text')}"

    def _left_out(self, what: str) -> str:
        self.notes.append(what)
        return f"[{what} left out by Fairlead: more than a request may hold]"
