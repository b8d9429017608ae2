"""Tools in the format of one provider's API."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fairlead.adapters.definition import AdaptedTool
from fairlead.bounded_repr import names
from fairlead.catalog.results import ToolResult
from fairlead.config.argument_types import fits


class AnsweringTools(Protocol):
    """What carries out tool calls of a model, by the names that it was given: a toolset."""

    async def answer(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Carry out a call, or return an error result."""
        ...

    async def without_images(self, result: ToolResult) -> ToolResult:
        """A result for a model that takes no images."""
        ...


class ProviderTools:
    """Tools in one provider's format: `definitions` for the request, `call` for the model's tool calls.

    ```python
    tools = await host.tools.for_anthropic()
    print(tools.definitions, tools.refused)
    result = await tools.call(tools.tools[-1].name, {"timezone": "UTC"})
    ```
    """

    def __init__(self, toolset: AnsweringTools, tools: Sequence[AdaptedTool], *, vision: bool = True) -> None:
        self._toolset = toolset
        self._vision = vision
        self._by_name = {tool.name: tool for tool in tools}
        self.tools = tuple(tools)

    def __repr__(self) -> str:
        return f"<ProviderTools: {names(self._by_name)}>"

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The definitions for the provider's API. Tools that it would refuse are left out."""
        return [tool.definition for tool in self.tools if tool.definition is not None]

    @property
    def refused(self) -> dict[str, str]:
        """The tools that the provider would refuse, each with the reason."""
        return {tool.name: tool.refused for tool in self.tools if tool.refused is not None}

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Carry out a tool call of the model, as `Toolset.answer` does.

        Args:
            name: The name in the model's tool call.
            arguments: The arguments in the model's tool call.
        """
        given: Mapping[str, Any] = {} if arguments is None else arguments
        tool = self._by_name.get(name) if fits(name, str) and fits(given, Mapping) else None
        result = await self._toolset.answer(name, tool.arguments(given) if tool else given)
        return result if self._vision else await self._toolset.without_images(result)
