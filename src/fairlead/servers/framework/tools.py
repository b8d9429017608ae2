"""First-party tools: definitions with typed input and output, and running one call of a tool."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import mcp_types as types
from mcp_types import ContentBlock, ToolAnnotations
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from fairlead.errors import ToolFailed

UNTRUSTED_RESULTS = frozenset({"docs.fetch", "shell.run", "agent.run", "agent.reply"})
"""First-party tools whose results are what third parties wrote, or what a model made of it: untrusted
content, even of a trusted server. The host consults this where it marks results."""


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
    """Context of a call for its handler: progress and the like."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, which resets its idle timeout.

        Args:
            done: How much is done; larger with each report.
            total: How much there is to do, where that is known.
            message: What is being done, for people.
        """
        ...


InputT = TypeVar("InputT", bound=BaseModel)
OutputT = TypeVar("OutputT", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply(Generic[OutputT]):
    """An output with content blocks of its own, where its JSON as text would not do (an image, a page)."""

    output: OutputT
    """The structured output."""
    content: tuple[ContentBlock, ...]
    """The content blocks that clients get beside it."""


Handler = Callable[[ToolContext, InputT], Awaitable[OutputT | Reply[OutputT]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDefinition(Generic[InputT, OutputT]):
    """One tool. Its input is checked before `handler` runs; raise `ToolFailed` where it cannot be done."""

    name: str
    """The name of the tool."""
    description: str
    """What it does, for models."""
    input: type[InputT]
    """The type of its arguments: a pydantic model, such as a `ToolModel`."""
    output: type[OutputT]
    """The type of its structured output, likewise."""
    handler: Handler[InputT, OutputT]
    """An async function of the context of the call and its input, which returns the output or a `Reply`."""
    title: str | None = None
    """A name for people."""
    annotations: ToolAnnotations | None = None
    """Hints for clients, such as `readOnlyHint`."""
    preview: "Callable[[InputT], Awaitable[str]] | None" = None
    """Tells the user who approves a call what it would change, and changes nothing. Raises `ToolFailed` where
    the call would fail."""


AnyTool = ToolDefinition[Any, Any]


PREVIEW_METHOD = "fairlead/previewCall"
"""The request by which a host asks a first-party server what a call would change. It is no part of MCP."""

logger = logging.getLogger(__name__)


async def run_tool(tool: AnyTool, context: ToolContext, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Call a tool. Every failure becomes an error result, without internal details."""
    try:
        checked: BaseModel = tool.input.model_validate(arguments)
        return _success_result(await tool.handler(context, checked))
    except ValidationError as exc:
        return _error_result(_describe_faults(exc))
    except ToolFailed as exc:
        return _error_result(f"{exc}\n\nhint: {exc.hint}" if exc.hint else str(exc))
    except Exception:
        logger.exception("a first-party tool broke", extra={"tool": tool.name})
        return _error_result(f"`{tool.name}` failed: this is a bug in the tool, not in your arguments")


async def preview_tool(tool: AnyTool, arguments: Mapping[str, Any]) -> str | None:
    """The change that a call would make, in words or as a diff; None if the tool has no preview."""
    if tool.preview is None:
        return None
    try:
        return await tool.preview(tool.input.model_validate(arguments))
    except ValidationError as exc:
        return f"as things are, it would fail: {_describe_faults(exc)}"
    except ToolFailed as exc:
        return f"as things are, it would fail: {exc}"
    except Exception:
        logger.exception("the preview of a first-party tool broke", extra={"tool": tool.name})
        return None


class _PlainSchema(GenerateJsonSchema):
    """JSON Schema without a title on every property, which says what the name says and costs tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 - pydantic's own union
        return False


def describe_tool(tool: AnyTool) -> types.Tool:
    """A tool as it is listed."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=_schema(tool.input),
        output_schema=_schema(tool.output),
        annotations=tool.annotations,
    )


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def _success_result(answer: BaseModel | Reply[Any]) -> types.CallToolResult:
    output = answer.output if isinstance(answer, Reply) else answer
    structured: dict[str, Any] = output.model_dump(mode="json", by_alias=True, exclude_none=True)
    content: list[types.ContentBlock] = (
        list(answer.content)
        if isinstance(answer, Reply)
        else [types.TextContent(text=json.dumps(structured, ensure_ascii=False))]
    )
    return types.CallToolResult(content=content, structured_content=structured)


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _describe_faults(exc: ValidationError) -> str:
    """Every fault of the arguments, in words, without the values that were sent."""
    faults = (
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
        for fault in exc.errors(include_url=False, include_context=False, include_input=False)
    )
    return "\n".join(["the arguments do not fit:", *faults])
