"""What a first-party tool is: a name, typed input and output, and the function that does it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from mcp_types import ContentBlock, ToolAnnotations
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

UNTRUSTED_RESULTS = frozenset({"docs.fetch"})
"""First-party tools whose results are what third parties wrote: untrusted content, whatever the trust in the
server. The host consults this where it marks results."""


class ToolModel(BaseModel):
    """Base of inputs and outputs: camelCase on the wire, snake_case in Python, nothing unknown."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class ToolContext(Protocol):
    """What a handler may do besides answering."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far the work is; it keeps a slow call from timing out."""
        ...


InputT = TypeVar("InputT", bound=BaseModel)
OutputT = TypeVar("OutputT", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply(Generic[OutputT]):
    """An output with content blocks of its own, where its JSON as text would not do (an image, a page)."""

    output: OutputT
    content: tuple[ContentBlock, ...]


Handler = Callable[[ToolContext, InputT], Awaitable[OutputT | Reply[OutputT]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDefinition(Generic[InputT, OutputT]):
    """One tool. Its input is checked before `handler` runs; raise `ToolFailed` where it cannot be done."""

    name: str
    description: str
    input: type[InputT]
    output: type[OutputT]
    handler: Handler[InputT, OutputT]
    title: str | None = None
    annotations: ToolAnnotations | None = None


AnyTool = ToolDefinition[Any, Any]
