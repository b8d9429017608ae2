"""The interface that every provider implements: request body, streamed response, tool results."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.config.untyped import as_object
from fairlead.host.model.provider_tools import ProviderTools
from fairlead.host.model.toolset import Toolset
from fairlead.loop.events import Usage

Provider = Literal["openai", "anthropic"]
Message = dict[str, Any]
"""One message of a conversation, in the words of the API."""

DEFAULT_SILENCE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatModel:
    """A model, with the URL and key of its API."""

    provider: Provider
    """The API that it has."""
    name: str
    """Its name in the API."""
    base_url: str | None = None
    """Base URL of its API; the provider's own if not set."""
    api_key: str | None = field(default=None, repr=False)
    """The key of the API; none for most local servers."""
    key_from: str = "`api_key`"
    """Where the key comes from, for error messages."""
    max_output_tokens: int | None = None
    """The longest answer in one step; the provider's limit if not set."""
    silence_seconds: float = DEFAULT_SILENCE_SECONDS
    """Idle timeout in seconds: a local model may take minutes for a long conversation."""
    vision: bool = True
    """Whether it takes images. Where not, those in results are stored, and notes stand in their place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedCall:
    """A tool call of a model. `arguments` is None where they are no JSON object."""

    call_id: str
    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTurn:
    """The answer of a model in one step."""

    text: str
    calls: tuple[WantedCall, ...]
    stop: Literal["done", "length", "refused"]
    usage: Usage
    message: Message = field(repr=False)
    """The same as it goes back into the conversation."""


class Complaint(Exception):
    """An error that an API reported; `kind` is its error type, if any."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class TurnReader(Protocol):
    """Reader of an API's event stream."""

    @property
    def whole(self) -> bool:
        """Whether the answer is complete."""
        ...

    @property
    def ended(self) -> bool:
        """Whether no event follows."""
        ...

    def feed(self, data: bytes) -> str:
        """Take in one event and return the text it brought. Raises `Complaint`, and ValueError."""
        ...

    def turn(self) -> ModelTurn:
        """The whole answer."""
        ...


class ProviderApi(Protocol):
    """One provider's API."""

    def url(self, model: ChatModel) -> str:
        """The URL that steps are requested from."""
        ...

    def headers(self, model: ChatModel) -> dict[str, str]:
        """Headers that authenticate a request."""
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
        """Return the messages for results, in the order of the calls."""
        ...


def complaint_in(body: bytes) -> Complaint | None:
    """Return the error in a response body, in any of the forms that APIs use; None without one."""
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
