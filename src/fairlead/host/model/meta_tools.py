"""Meta-tools: search, describe and call tools, given to a model in place of large tool lists.

Also the base of the other tools that the host itself gives to models.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Protocol, TypeVar

from mcp_types import CallToolResult, TextContent
from pydantic import Field

from fairlead.catalog.catalog import Catalog, CatalogTool
from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.normalize import screen_definition
from fairlead.catalog.search.search import SearchHit
from fairlead.catalog.signatures import estimate
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.untyped import as_object
from fairlead.errors import CallDenied, FairleadError, ToolFailed, UnknownTool
from fairlead.host.model.search_answers import (
    SHOWN_AT_ONCE,
    RankedTools,
    answer_search,
    cut_unavailable,
    unavailable_lines,
)
from fairlead.host.search_memory import SearchSession
from fairlead.servers.framework.tools import (
    AnyTool,
    Reply,
    ToolContext,
    ToolDefinition,
    ToolModel,
    describe_tool,
    run_tool,
)

RESERVED = frozenset(
    {
        "mcp_search_tools",
        "mcp_list_tools",
        "mcp_get_tool_schema",
        "mcp_call_tool",
        "mcp_resources_list",
        "mcp_resource_templates_list",
        "mcp_resource_read",
        "mcp_prompts_list",
        "mcp_prompt_get",
        "mcp_read_artifact",
    }
)
"""Names that no server's tool can have."""

AskedT = TypeVar("AskedT")


class _NoContext:
    """These tools are quick: there is no progress to report."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        return


class HostTools:
    """Base of Fairlead's own tools for models, each with a name for every provider and an older one."""

    def __init__(self, tools: Mapping[str, AnyTool]) -> None:
        self._dotted = {tool.name: dotted for dotted, tool in tools.items()}
        self._tools = {**tools, **{tool.name: tool for tool in tools.values()}}

    def has(self, name: str) -> bool:
        """Whether this is the name of one of these tools."""
        return name in self._tools

    def describe(self, tool: AnyTool) -> str:
        """The definition that a model gets."""
        return tool.description

    def entries(self) -> Iterator[tuple[str, ToolEntry]]:
        """The tools as a model gets them, by name."""
        for name, dotted in self._dotted.items():
            tool = self._tools[name]
            update = {"description": self.describe(tool), "output_schema": None, "annotations": None}
            described = describe_tool(tool).model_copy(update=update)
            yield (
                name,
                ToolEntry(
                    key=ToolKey("mcp", dotted.removeprefix("mcp.")),
                    definition=described.model_dump_json(by_alias=True, exclude_none=True).encode(),
                    description=described.description,
                ),
            )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call one of them."""
        result = await run_tool(self._tools[name], _NoContext(), arguments)
        return await self.prepare_result(self._tools[name], arguments, result)

    async def prepare_result(
        self, tool: AnyTool, arguments: Mapping[str, Any], result: CallToolResult
    ) -> ToolResult:
        """Prepare the result of a tool for a model. Where a server wrote it, subclasses clean and mark it."""
        return ToolResult("mcp", encode_result(result))


def encode_result(result: CallToolResult) -> bytes:
    """A result as it would go over the wire."""
    return result.model_dump_json(by_alias=True, exclude_none=True).encode()


async def await_for_model(asking: Awaitable[AskedT]) -> AskedT:
    """Await a result. Errors become error results for the model."""
    try:
        return await asking
    except FairleadError as exc:
        raise ToolFailed(str(exc), hint=exc.hint) from exc


SERVER_LIST_TOKENS = 200
NAMED_AS_NEAREST = 3
MOST_ID_CHARACTERS = 64
LISTED_AT_ONCE = 100


class SearchToolsInput(ToolModel):
    """Input of `mcp_search_tools`."""

    queries: Annotated[list[str], Field(min_length=1, max_length=4)]
    """What you want to do, in a few words each."""
    server: str | None = None
    """Only this server's tools."""
    limit: Annotated[int, Field(ge=1, le=20)] = SHOWN_AT_ONCE


class SearchToolsOutput(ToolModel):
    """Output of `mcp_search_tools`: signatures, and names alone."""

    tools: list[str]
    shown_before: list[str]
    siblings: dict[str, list[str]]
    unavailable: dict[str, str]


class ListInput(ToolModel):
    """Input of the tool that lists names."""

    server: str | None = None
    start: Annotated[int, Field(ge=0)] = 0


class ListOutput(ToolModel):
    """A page of tool names."""

    tools: list[str]
    next_start: int | None = None
    unavailable: dict[str, str]


class SchemaInput(ToolModel):
    """Input of the tool that shows definitions."""

    names: Annotated[list[str], Field(min_length=1, max_length=10)]
    """Names as search and list show them."""


class SchemaOutput(ToolModel):
    """Whole definitions of tools."""

    tools: list[dict[str, Any]]


class CallInput(ToolModel):
    """Input of `mcp_call_tool`."""

    name: str
    """The tool, as search and list name it."""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class CallOutput(ToolModel):
    """Result of the called tool, all of it in the content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome:
    """The hits of a search, and the servers that could not be searched, each with the reason."""

    hits: tuple[SearchHit, ...]
    """The tools that were found, the best first."""
    unavailable: Mapping[str, str]
    """Reasons by server."""


class SearchableTools(Protocol):
    """A toolset as meta-tools use it."""

    @property
    def catalog(self) -> Catalog:
        """The tools that are known now."""
        ...

    @property
    def unavailable_to_model(self) -> dict[str, str]:
        """The enabled servers that cannot be used now, each with a reason in no server's words."""
        ...

    async def ready(self) -> "SearchableTools":
        """Connect the servers that were never listed and wait for them."""
        ...

    @property
    def session(self) -> SearchSession:
        """The search session: what the agent searched for and was shown."""
        ...

    async def rank(self, queries: Sequence[str], *, server: str | None = None) -> RankedTools:
        """Search the tools by what they do, for an answer to a model."""
        ...

    def find(self, catalog: Catalog, name: str) -> CatalogTool:
        """The tool of a name. Raises what is wrong with one that is not there."""
        ...

    async def answer(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool for a model: errors become results."""
        ...


class MetaTools(HostTools):
    """The meta-tools of one toolset."""

    def __init__(self, toolset: SearchableTools) -> None:
        self._toolset = toolset
        super().__init__(
            {
                "mcp.searchTools": ToolDefinition(
                    name="mcp_search_tools",
                    description="Find tools by what they do. Gives signatures to call with mcp_call_tool;"
                    " … stands for more parameters.",
                    input=SearchToolsInput,
                    output=SearchToolsOutput,
                    handler=self._search,
                ),
                "mcp.listTools": ToolDefinition(
                    name="mcp_list_tools",
                    description="List the names of all tools, or of one server's.",
                    input=ListInput,
                    output=ListOutput,
                    handler=self._list,
                ),
                "mcp.getToolSchema": ToolDefinition(
                    name="mcp_get_tool_schema",
                    description="Show whole definitions, where a signature is not enough.",
                    input=SchemaInput,
                    output=SchemaOutput,
                    handler=self._schemas,
                ),
                "mcp.callTool": ToolDefinition(
                    name="mcp_call_tool",
                    description="Call a tool that search or list named.",
                    input=CallInput,
                    output=CallOutput,
                    handler=self._refuse,
                ),
            }
        )

    def describe(self, tool: AnyTool) -> str:
        """The definition that a model gets; that of the search names the servers."""
        servers = _server_list(self._toolset.catalog) if tool.name == "mcp_search_tools" else ""
        return f"{tool.description} Servers: {servers}" if servers else tool.description

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a meta-tool. The calls it makes pass through the same pipeline as all others."""
        if name in ("mcp_call_tool", "mcp.callTool"):
            wanted, given = arguments.get("name"), as_object(arguments.get("arguments"))
            if isinstance(wanted, str) and not self.has(wanted):
                return await self._toolset.answer(wanted, given)
        return await super().call(name, arguments)

    async def _refuse(self, context: ToolContext, request: CallInput) -> CallOutput:
        raise ToolFailed(f"`{request.name}` is not a tool of a server", hint="call it by itself")

    async def _search(self, context: ToolContext, request: SearchToolsInput) -> Reply[SearchToolsOutput]:
        if request.server is not None:
            catalog = (await self._toolset.ready()).catalog
            require_server(catalog, self._toolset.unavailable_to_model, request.server)
        ranked = await self._toolset.rank(request.queries, server=request.server)
        answer = answer_search(
            self._toolset.catalog,
            ranked,
            self._toolset.session,
            request.queries,
            request.limit,
            _of_server(self._toolset.unavailable_to_model, request.server),
        )
        output = SearchToolsOutput(
            tools=answer.tools,
            shown_before=answer.shown_before,
            siblings=answer.siblings,
            unavailable=answer.unavailable,
        )
        return _reply(output, answer.lines())

    async def _list(self, context: ToolContext, request: ListInput) -> Reply[ListOutput]:
        catalog = (await self._toolset.ready()).catalog
        if request.server is not None:
            require_server(catalog, self._toolset.unavailable_to_model, request.server)
        chosen = [tool.key for tool in catalog.tools if request.server in (None, tool.key.server_id)]
        shown = [catalog.display_name(key) for key in chosen[request.start : request.start + LISTED_AT_ONCE]]
        end = request.start + len(shown)
        named, more = cut_unavailable(_of_server(self._toolset.unavailable_to_model, request.server))
        output = ListOutput(tools=shown, next_start=end if end < len(chosen) else None, unavailable=named)
        lines = [", ".join(shown) if shown else "nothing fits"]
        if output.next_start is not None:
            lines.append(f"{len(chosen) - end} more: start={end}")
        return _reply(output, [*lines, *unavailable_lines(named, more)])

    async def _schemas(self, context: ToolContext, request: SchemaInput) -> SchemaOutput:
        catalog = self._toolset.catalog
        if not all(map(catalog.find_tool, request.names)):
            catalog = (await self._toolset.ready()).catalog
        return SchemaOutput(tools=[self._schema(catalog, name) for name in request.names])

    def _schema(self, catalog: Catalog, name: str) -> dict[str, Any]:
        try:
            tool = catalog.find_tool(name) or self._toolset.find(catalog, name)
        except (UnknownTool, CallDenied) as exc:
            raise ToolFailed(str(exc), hint=exc.hint) from exc
        return {
            "name": catalog.display_name(tool.key),
            "description": tool.entry.description or "",
            "inputSchema": screen_definition(tool.entry.definition).schema,
        }


def _of_server(unavailable: Mapping[str, str], server_id: str | None) -> Mapping[str, str]:
    """The servers that are not available; the one alone that is asked about, if it is one of them."""
    return {name: why for name, why in unavailable.items() if server_id in (None, name)}


def _reply(output: Any, lines: Iterable[str]) -> Reply[Any]:  # noqa: ANN401
    return Reply(output=output, content=(TextContent(text="\n".join(lines)),))


def require_server(catalog: Catalog, unavailable: Mapping[str, str], server_id: str) -> None:
    """Raise `ToolFailed`, with the servers of the most similar names, where none of that name has tools.

    One whose tools are all hidden is as if it were not there.
    """
    if server_id in unavailable:
        return
    offered = dict.fromkeys(tool.key.server_id for tool in catalog.tools)
    if server_id in offered:
        return
    folded = {name.casefold(): name for name in (*unavailable, *offered)}
    near = get_close_matches(server_id[:MOST_ID_CHARACTERS].casefold(), [*folded], NAMED_AS_NEAREST, 0.4)
    some = " or ".join(f"`{folded[name]}`" for name in near)
    hint = f"did you mean {some}?" if near else "leave out `server` to search all"
    shown = gate.content(server_id[:MOST_ID_CHARACTERS])
    raise ToolFailed(f"no server with tools is called `{shown}`", hint=hint)


def _server_list(catalog: Catalog) -> str:
    """The servers and how many tools each has: with what they are for while that fits, else without."""
    offered = [
        (offering, sum(catalog.of(entry.key) is not None for entry in offering.tools))
        for offering in catalog.offerings.values()
    ]
    counted = [(offering, count) for offering, count in offered if count]
    ways: tuple[Callable[[], str], ...] = (
        lambda: "; ".join(
            f"{offering.server_id} ({count}) {offering.description.splitlines()[0][:80]}".rstrip()
            if offering.description
            else f"{offering.server_id} ({count})"
            for offering, count in counted
        ),
        lambda: ", ".join(f"{offering.server_id} ({count})" for offering, count in counted),
    )
    for way in ways:
        text = way()
        if estimate(text) <= SERVER_LIST_TOKENS:
            return text
    total = sum(count for _, count in counted)
    names = ", ".join(offering.server_id for offering, _ in counted)
    room = int(SERVER_LIST_TOKENS * 3.5)
    return f"{names[:room].rpartition(', ')[0]} and more: {len(counted)} servers, {total} tools"
