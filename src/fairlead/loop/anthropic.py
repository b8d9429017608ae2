"""Provider: Anthropic's Messages API."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from fairlead.adapters.anthropic import anthropic_result
from fairlead.catalog.results import ToolResult
from fairlead.config.untyped import as_object, is_list
from fairlead.host.model.provider_tools import ProviderTools
from fairlead.host.model.toolset import Toolset
from fairlead.loop.events import Usage
from fairlead.loop.provider import (
    ChatModel,
    Message,
    ModelTurn,
    WantedCall,
    arguments_in,
    complaint_in,
    token_count,
)

BASE_URL: Final = "https://api.anthropic.com"
VERSION: Final = "2023-06-01"
DEFAULT_OUTPUT_TOKENS: Final = 8192
"""The longest answer in one step, which this API requires."""

_STOPS: dict[str, Literal["length", "refused"]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_PIECES = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}


class Anthropic:
    """The Messages API."""

    def url(self, model: ChatModel) -> str:
        """The URL that steps are requested from."""
        return f"{(model.base_url or BASE_URL).rstrip('/').removesuffix('/v1')}/v1/messages"

    def headers(self, model: ChatModel) -> dict[str, str]:
        """Headers that authenticate a request."""
        key = {"x-api-key": model.api_key} if model.api_key else {}
        return {"anthropic-version": VERSION, **key}

    async def tools(self, toolset: Toolset) -> ProviderTools:
        """The tools as they are now."""
        return await toolset.for_anthropic()

    def request(
        self, model: ChatModel, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """The body of a request for one step."""
        body: dict[str, Any] = {
            "model": model.name,
            "max_tokens": model.max_output_tokens or DEFAULT_OUTPUT_TOKENS,
            "system": system,
            "messages": [*messages[:-1], *map(_mark_message_cacheable, messages[-1:])],
            "stream": True,
        }
        if tools:
            body["tools"] = [*tools[:-1], *map(_mark_cacheable, tools[-1:])]
        return body

    def reader(self) -> "BlockReader":
        """Reads the answer."""
        return BlockReader()

    def results(self, answered: Sequence[tuple[WantedCall, ToolResult]]) -> list[Message]:
        """Return the one message for all results."""
        blocks = [anthropic_result(result, call.call_id) for call, result in answered]
        return [{"role": "user", "content": blocks}]


def _mark_cacheable(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block that ends a cached prefix: the next step then costs a fraction."""
    return block | {"cache_control": {"type": "ephemeral"}}


def _mark_message_cacheable(message: Message) -> Message:
    content = message["content"]
    blocks = [*content] if is_list(content) else [{"type": "text", "text": content}]
    return message | {"content": [*blocks[:-1], *map(_mark_cacheable, blocks[-1:])]}


class BlockReader:
    """Parser of the event stream. Blocks return to the conversation unchanged, parsed here or not."""

    def __init__(self) -> None:
        self.ended = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._stop = ""
        self._input = Usage()
        self._output_tokens = 0

    @property
    def whole(self) -> bool:
        """Whether the answer is complete."""
        return self.ended or bool(self._stop)

    def feed(self, data: bytes) -> str:
        """Take in one event and return the text it brought. Unknown events are ignored."""
        event = msgspec.json.decode(data, type=dict[str, Any])
        match event.get("type"):
            case "message_start":
                self._input = _usage(as_object(as_object(event.get("message")).get("usage")))
            case "content_block_start":
                self._blocks[event["index"]] = as_object(event.get("content_block"))
                self._pieces[event["index"]] = []
            case "content_block_delta":
                return self._take(event["index"], as_object(event.get("delta")))
            case "message_delta":
                self._stop = str(as_object(event.get("delta")).get("stop_reason") or self._stop)
                self._output_tokens = token_count(as_object(event.get("usage")).get("output_tokens"))
            case "message_stop":
                self.ended = True
            case "error":
                raise complaint_in(data) or ValueError("an error without a message")
            case _:
                pass
        return ""

    def _take(self, index: int, delta: dict[str, Any]) -> str:
        kind = str(delta.get("type"))
        if kind == "signature_delta":
            self._blocks[index]["signature"] = delta.get("signature")
        piece = delta.get(_PIECES.get(kind, ""))
        if not isinstance(piece, str):
            return ""
        self._pieces[index].append(piece)
        return piece if kind == "text_delta" else ""

    def turn(self) -> ModelTurn:
        """The whole answer."""
        content: list[dict[str, Any]] = []
        calls: list[WantedCall] = []
        for index, block in sorted(self._blocks.items()):
            written = "".join(self._pieces[index])
            match block.get("type"):
                case "text" | "thinking" as kind:
                    content.append(block | {kind: f"{block.get(kind) or ''}{written}"})
                case "tool_use":
                    arguments = arguments_in(written) if written else as_object(block.get("input"))
                    content.append(block | {"input": arguments or {}})
                    calls.append(
                        WantedCall(call_id=str(block["id"]), name=str(block["name"]), arguments=arguments)
                    )
                case _:
                    content.append(block)
        blocks = [block for block in content if block.get("type") != "text" or block["text"]]
        return ModelTurn(
            text="".join(block["text"] for block in blocks if block.get("type") == "text"),
            calls=tuple(calls),
            stop=_STOPS.get(self._stop, "done"),
            usage=self._input + Usage(output_tokens=self._output_tokens),
            message={"role": "assistant", "content": blocks},  # an empty text would be refused
        )


def _usage(usage: dict[str, Any]) -> Usage:
    read = token_count(usage.get("cache_read_input_tokens"))
    written = token_count(usage.get("cache_creation_input_tokens"))
    return Usage(input_tokens=token_count(usage.get("input_tokens")) + read + written, cached_tokens=read)
