"""The interface that every provider implements: request body, streamed response, tool results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.config.untyped import as_object
from fairlead.host.model.toolset import ProviderTools, Toolset
from fairlead.loop.events import Usage

Provider = Literal["openai", "anthropic"]
Message = dict[str, Any]
"""One message of a conversation, in the words of the API."""

DEFAULT_SILENCE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatModel:
    """A model, and how to reach it."""

    provider: Provider
    name: str
    base_url: str | None = None
    """Where its API is; the provider's own if not set."""
    api_key: str | None = field(default=None, repr=False)
    key_from: str = "`api_key`"
    """Where the key comes from, for error messages."""
    max_output_tokens: int | None = None
    silence_seconds: float = DEFAULT_SILENCE_SECONDS
    """How long it may say nothing: a local model may take minutes for a long conversation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedCall:
    """A tool call that a model asks for. `arguments` is None where it wrote no JSON object."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTurn:
    """What a model said in one step."""

    text: str
    calls: tuple[WantedCall, ...]
    stop: Literal["done", "length", "refused"]
    usage: Usage
    message: Message = field(repr=False)
    """The same as it goes back into the conversation."""


class Complaint(Exception):
    """An API says what is wrong: `kind` is its word for it, where it has one."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class TurnReader(Protocol):
    """Takes in what an API streams, event by event."""

    @property
    def whole(self) -> bool:
        """Has the model said all it wanted to?"""
        ...

    @property
    def ended(self) -> bool:
        """Will nothing follow?"""
        ...

    def feed(self, data: bytes) -> str:
        """Take in one event and return the text it brought. Raises `Complaint`, and ValueError."""
        ...

    def turn(self) -> ModelTurn:
        """All of it."""
        ...


class ProviderApi(Protocol):
    """One provider's API."""

    def url(self, model: ChatModel) -> str:
        """The URL that steps are requested from."""
        ...

    def headers(self, model: ChatModel) -> dict[str, str]:
        """Who we are to the API."""
        ...

    async def tools(self, toolset: Toolset) -> ProviderTools:
        """The tools as they are now."""
        ...

    def request(
        self, model: ChatModel, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """The body of a request for one step."""
        ...

    def reader(self) -> TurnReader:
        """Reads the answer."""
        ...

    def results(self, answered: Sequence[tuple[WantedCall, ToolResult]]) -> list[Message]:
        """What tools brought, in the order they were called."""
        ...


def complaint_in(body: bytes) -> Complaint | None:
    """What an API says is wrong, in one of the shapes that APIs have for it."""
    try:
        document = as_object(msgspec.json.decode(body))
    except (ValueError, RecursionError):
        return None
    error: object = document.get("error")
    fields = as_object(error) or (document if document.get("object") == "error" else {})
    message = next((word for word in (fields.get("message"), error, document.get("detail")) if word), None)
    if not isinstance(message, str):
        return None
    kinds = (fields.get("code"), fields.get("type"))
    return Complaint(message, next((kind for kind in kinds if isinstance(kind, str)), ""))


def token_count(value: object) -> int:
    """Return a number of tokens; 0 where an API says something else."""
    return value if isinstance(value, int) and value > 0 else 0


def arguments_in(text: str) -> dict[str, Any] | None:
    """The arguments a model wrote, if they are a JSON object. Nothing at all is an empty one."""
    try:
        return msgspec.json.decode(text.strip() or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
