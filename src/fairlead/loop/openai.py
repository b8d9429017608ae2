"""Provider: OpenAI's Chat Completions API, also of Ollama, vLLM, llama.cpp and others."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from yarl import URL

from fairlead.adapters.openai import openai_messages
from fairlead.catalog.results import ToolResult
from fairlead.config.untyped import as_list, as_object, is_object
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

BASE_URL: Final = "https://api.openai.com/v1"

_STOPS: dict[str, Literal["length", "refused"]] = {"length": "length", "content_filter": "refused"}
_OF_THE_STREAM = frozenset({"index", "id", "type", "function"})


class OpenAI:
    """The Chat Completions API."""

    def url(self, model: ChatModel) -> str:
        """The URL that steps are requested from."""
        return f"{(model.base_url or BASE_URL).rstrip('/')}/chat/completions"

    def headers(self, model: ChatModel) -> dict[str, str]:
        """Headers that authenticate a request. A local API often needs none."""
        return {"Authorization": f"Bearer {model.api_key}"} if model.api_key else {}

    async def tools(self, toolset: Toolset) -> ProviderTools:
        """The tools as they are now."""
        return await toolset.for_openai(api="chat")

    def request(
        self, model: ChatModel, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """The body of a request for one step."""
        body: dict[str, Any] = {
            "model": model.name,
            "messages": [{"role": "system", "content": system}, *messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:  # an empty list is refused
            body["tools"] = [*tools]
        if model.max_output_tokens is not None:
            # OpenAI itself does not take the older name for its newer models, others know no newer one.
            ours = URL(self.url(model)).host == URL(BASE_URL).host
            body["max_completion_tokens" if ours else "max_tokens"] = model.max_output_tokens
        return body

    def reader(self) -> "ChunkReader":
        """Reads the answer."""
        return ChunkReader()

    def results(self, answered: Sequence[tuple[WantedCall, ToolResult]]) -> list[Message]:
        """Return the messages for results: one each, then the images, which no tool's message takes."""
        messages = [message for call, result in answered for message in openai_messages(result, call.call_id)]
        return sorted(messages, key=lambda message: message["role"] != "tool")


@dataclass
class _PartialCall:
    """A call that is still being written."""

    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    rest: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of a call, which the API requires back."""


class ChunkReader:
    """Parser of the chunks of a stream. The answer of a server without streaming is one large chunk."""

    def __init__(self) -> None:
        self.ended = False
        self._text: list[str] = []
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self._finish = ""
        self._refused = False
        self._usage = Usage()

    @property
    def whole(self) -> bool:
        """Whether the answer is complete. Not every server marks the end."""
        return self.ended or bool(self._finish)

    def feed(self, data: bytes) -> str:
        """Take in one event and return the text it brought."""
        if data.strip() == b"[DONE]":
            self.ended = True
            return ""
        chunk = msgspec.json.decode(data, type=dict[str, Any])
        if chunk.get("error"):
            raise complaint_in(data) or ValueError("an error without a message")
        if is_object(usage := chunk.get("usage")):
            self._usage = _usage(usage)
        text = ""
        for choice in map(as_object, as_list(chunk.get("choices"))[:1]):
            text += self._take(as_object(choice.get("delta") or choice.get("message")))
            self._finish = str(choice.get("finish_reason") or self._finish)
        self._text.append(text)
        return text

    def turn(self) -> ModelTurn:
        """The whole answer. Calls in it outrank the reason that a server gives for stopping."""
        text = "".join(self._text)
        calls = [(call, arguments_in("".join(call.arguments))) for call in self._calls if call.name]
        message: Message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": _function(call, arguments)} | call.rest
                for call, arguments in calls
            ]
        return ModelTurn(
            text=text,
            calls=tuple(
                WantedCall(call_id=call.call_id, name=call.name, arguments=arguments)
                for call, arguments in calls
            ),
            stop="refused" if self._refused else _STOPS.get(self._finish, "done"),
            usage=self._usage,
            message=message,
        )

    def _take(self, delta: dict[str, Any]) -> str:
        for part in map(as_object, as_list(delta.get("tool_calls"))):
            self._take_call(part)
        content, refusal = delta.get("content"), delta.get("refusal")
        self._refused = self._refused or bool(refusal)
        return "".join(text for text in (content, refusal) if isinstance(text, str))

    def _take_call(self, part: dict[str, Any]) -> None:
        function = as_object(part.get("function"))
        call_id, name, arguments = part.get("id"), function.get("name"), function.get("arguments")
        call = self._call_of(part.get("index"), call_id, name)
        call.call_id = call_id if isinstance(call_id, str) and call_id else call.call_id or _new_id()
        call.name = call.name or (name if isinstance(name, str) else "")
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(msgspec.json.encode(arguments).decode())
        call.rest |= {key: value for key, value in part.items() if key not in _OF_THE_STREAM}

    def _call_of(self, index: object, call_id: object, name: object) -> _PartialCall:
        """The call that a part belongs to.

        Some servers send whole calls, all of them with the same index or none, and some without an id.
        """
        known: _PartialCall | None = None
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif self._calls:
            known = self._calls[-1]
        another = call_id != known.call_id if known and call_id else bool(name and known and known.name)
        if known is None or another:
            known = _PartialCall()
            self._calls.append(known)
            if isinstance(index, int):
                self._by_index[index] = known
        return known


def _function(call: _PartialCall, arguments: dict[str, Any] | None) -> dict[str, str]:
    # What is no JSON would have some servers refuse the whole conversation.
    written = "".join(call.arguments).strip() if arguments is not None else ""
    return {"name": call.name, "arguments": written or "{}"}


def _new_id() -> str:
    return f"call_{secrets.token_hex(8)}"


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=token_count(usage.get("prompt_tokens")),
        output_tokens=token_count(usage.get("completion_tokens")),
        cached_tokens=token_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )
