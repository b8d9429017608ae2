"""Tools with which a model reads resources of servers, their prompts if enabled, and artifacts."""

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from pydantic import Field, TypeAdapter, ValidationError

from fairlead.catalog.results import ResultNotes, ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import PromptOffer, ResourceOffer, ResourceTemplate
from fairlead.config.command_lines import command_line
from fairlead.config.principal import LOCAL
from fairlead.config.untyped import as_object
from fairlead.errors import FairleadError, ToolFailed
from fairlead.host.model.bundles import Selection
from fairlead.host.model.meta_tools import HostTools, await_for_model, encode_result
from fairlead.host.offers.contents import CombinedList
from fairlead.host.offers.offer_requests import OfferRequests
from fairlead.host.records import LONGEST_PAGE, PAGE_CHARACTERS, ArtifactPage, Artifacts
from fairlead.policy.results import MAX_IMAGE, READ_TOOL, ResultSource
from fairlead.servers.framework.tools import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel

if TYPE_CHECKING:
    from fairlead.config.models import Server
    from fairlead.host.managed_servers import HostServers
    from fairlead.host.offers.prompts import Prompts
    from fairlead.host.offers.resources import Resources
    from fairlead.host.server_status import ServerStatus

LISTED_AT_ONCE = 200
LISTED_BYTES = 100_000
_UNREVIEWED = "it is untrusted and has not been reviewed"

_content = TypeAdapter[ContentBlock](ContentBlock)


class ReadingHost(Protocol):
    """A host as reading tools use it."""

    @property
    def artifacts(self) -> Artifacts:
        """Keeps what does not fit into a result."""
        ...

    @property
    def resources(self) -> "Resources":
        """The resources of all servers."""
        ...

    @property
    def prompts(self) -> "Prompts":
        """The prompts of all servers."""
        ...

    @property
    def offer_requests(self) -> OfferRequests:
        """Lists the offers of several servers at once."""
        ...

    def status(self) -> "list[ServerStatus]":
        """The state of every server."""
        ...

    def configured(self, server_id: str) -> "Server":
        """The configuration of a server."""
        ...

    @property
    def servers(self) -> "HostServers":
        """The managed servers, by id."""
        ...

    def is_trusted(self, server_id: str) -> bool:
        """Whether a server is trusted."""
        ...


class ServerInput(ToolModel):
    """Input of the tools that list offers: of one server, or of all."""

    server: str | None = None
    """Only this server's."""


class OfferSource(ToolModel):
    """A list of resources, templates or prompts, and the servers that could not be listed."""

    items: list[dict[str, Any]]
    more: int = 0
    """How many are left out."""
    unavailable: dict[str, str]


class ReadResourceInput(ToolModel):
    """Input of the tool that reads a resource."""

    server: str
    uri: str


class PromptInput(ToolModel):
    """Input of the tool that gets a prompt."""

    server: str
    name: str
    arguments: dict[str, str] = Field(default_factory=dict[str, str])


class QuotedContent(ToolModel):
    """Output without structured content: what a server wrote is in content blocks."""


class ReadingTools(HostTools):
    """The tools for resources and, if enabled, prompts."""

    def __init__(self, host: ReadingHost, selection: Selection, principal: str = LOCAL) -> None:
        self._host = host
        self._selection = selection
        self._principal = principal
        tools: dict[str, AnyTool] = {}
        if selection.resources:
            tools |= self._for_resources()
        if selection.prompts:
            tools |= self._for_prompts()
        super().__init__(tools)

    def may_read(self, server_id: str) -> bool:
        """Whether a model may read resources and prompts of this server."""
        return self._selection.has(server_id) and self._withheld(server_id) is None

    async def prepare_result(
        self, tool: AnyTool, arguments: Mapping[str, Any], result: CallToolResult
    ) -> ToolResult:
        """Prepare content of servers like results of their tools: cleaned, of bounded size, marked."""
        server, limit = arguments.get("server"), LISTED_BYTES
        names = [server] if isinstance(server, str) else [*self._readable()]
        server_id = names[0] if len(names) == 1 else "mcp"
        trusted = all(map(self._host.is_trusted, names))
        if result.is_error:
            return ToolResult(server_id, encode_result(result), untrusted=not trusted)
        if tool.output is QuotedContent:
            limit = self._host.configured(server_id).max_result_bytes
            result = result.model_copy(update={"structured_content": None})
        source = ResultSource(server_id=server_id, tool=tool.name, trusted=trusted, limit=limit)
        return await self._host.artifacts.deliver(encode_result(result), source, principal=self._principal)

    def _readable(self) -> Iterator[str]:
        """The servers that a model may read of."""
        return (
            each.server_id for each in self._host.status() if each.enabled and self.may_read(each.server_id)
        )

    def _for_resources(self) -> dict[str, AnyTool]:
        return {
            "mcp.resourcesList": ToolDefinition(
                name="mcp_resources_list",
                description="List what servers have to read.",
                input=ServerInput,
                output=OfferSource,
                handler=self._resources,
            ),
            "mcp.resourceTemplatesList": ToolDefinition(
                name="mcp_resource_templates_list",
                description="List URIs with blanks to fill in (RFC 6570).",
                input=ServerInput,
                output=OfferSource,
                handler=self._templates,
            ),
            "mcp.resourceRead": ToolDefinition(
                name="mcp_resource_read",
                description="Read a resource by its URI.",
                input=ReadResourceInput,
                output=QuotedContent,
                handler=self._read,
            ),
        }

    def _for_prompts(self) -> dict[str, AnyTool]:
        return {
            "mcp.promptsList": ToolDefinition(
                name="mcp_prompts_list",
                description="List the prompts that servers have ready.",
                input=ServerInput,
                output=OfferSource,
                handler=self._prompts,
            ),
            "mcp.promptGet": ToolDefinition(
                name="mcp_prompt_get",
                description="Get a prompt, filled in.",
                input=PromptInput,
                output=QuotedContent,
                handler=self._prompt,
            ),
        }

    async def _resources(self, context: ToolContext, request: ServerInput) -> OfferSource:
        return await self._gather_offers(ResourceOffer, request.server)

    async def _templates(self, context: ToolContext, request: ServerInput) -> OfferSource:
        return await self._gather_offers(ResourceTemplate, request.server)

    async def _prompts(self, context: ToolContext, request: ServerInput) -> OfferSource:
        return await self._gather_offers(PromptOffer, request.server)

    async def _gather_offers(
        self, kind: type[ResourceOffer | ResourceTemplate | PromptOffer], server: str | None
    ) -> OfferSource:
        """Offers of the selection's servers: others are neither contacted nor started."""
        if server is not None:
            self._require_readable(server)
        gathered = await await_for_model(self._host.offer_requests.gather(kind, server, among=self.may_read))
        chosen = [status.server_id for status in self._host.status() if status.enabled]
        withheld = {name: self._withheld(name) for name in chosen if self._selection.has(name)}
        return _offers(gathered, {name: why for name, why in withheld.items() if why and server is None})

    def _require_readable(self, server: str) -> None:
        configured = {status.server_id for status in self._host.status()}
        if not self._selection.has(server) or server not in configured:
            # No hint: ids that are like it may be of servers that this model is not shown.
            raise ToolFailed(f"there is no server `{gate.content(server)}` here")
        why = self._withheld(server)
        if why is not None:
            command = command_line("review", server)
            hint = f"the user can review it: `{command}`" if why == _UNREVIEWED else None
            raise ToolFailed(f"`{server}`: {why}", hint=hint)

    def _withheld(self, server_id: str) -> str | None:
        """Why a model may not read of a server, if that is so: what it reads there could lead it astray."""
        try:
            config = self._host.configured(server_id)
            policy = self._host.servers.get_known(server_id).policy
        except FairleadError:
            return None  # its error is reported when it is used
        if (denial := policy.denial_of_server(self._selection.caller)) is not None:
            return f"it may not be used: {denial.reason}"
        bundle_filter = self._selection.bundle_filter(server_id)
        listed = config.allow_tools or (
            bundle_filter.allow_tools if bundle_filter is not None and bundle_filter.grants else None
        )
        if config.trust == "trusted" or listed is not None:
            return None
        return _UNREVIEWED

    async def _read(self, context: ToolContext, request: ReadResourceInput) -> Reply[QuotedContent]:
        self._require_readable(request.server)
        found = await await_for_model(self._host.resources.read(request.server, request.uri))
        return Reply(output=QuotedContent(), content=tuple(_part(part) for part in found.parts))

    async def _prompt(self, context: ToolContext, request: PromptInput) -> Reply[QuotedContent]:
        self._require_readable(request.server)
        found = await await_for_model(self._host.prompts.get(request.server, request.name, request.arguments))
        blocks = (block for message in found.messages for block in _render_message(message))
        return Reply(output=QuotedContent(), content=tuple(blocks))


def _offers(gathered: CombinedList[Any], withheld: Mapping[str, str]) -> OfferSource:
    shown = gathered.items[:LISTED_AT_ONCE]
    failed = {name: str(failure).splitlines()[0] for name, failure in gathered.failures.items()}
    return OfferSource(
        items=[_plain(item) for item in shown],
        more=len(gathered.items) - len(shown),
        unavailable={**failed, **withheld},
    )


def _plain(item: ResourceOffer | ResourceTemplate | PromptOffer) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    server = fields.pop("serverId")
    return {"server": server, **{name: value for name, value in fields.items() if value not in (None, "")}}


def _part(part: dict[str, Any]) -> ContentBlock:
    """A part of a resource."""
    if isinstance(part.get("text"), str):
        return TextContent(text=part["text"])
    return _block({"type": "resource", "resource": part})


def _render_message(message: Mapping[str, Any]) -> Iterator[ContentBlock]:
    """A message of a prompt, and who says it."""
    content, role = as_object(message.get("content")), f"{message.get('role', 'unknown role')}:"
    if isinstance(content.get("text"), str):
        yield TextContent(text=f"{role} {content['text']}")
    else:
        yield TextContent(text=role)
        yield _block(content)


def _block(content: dict[str, Any]) -> ContentBlock:
    try:
        return _content.validate_python(content)
    except ValidationError:
        return TextContent(text="(content that cannot be read)")


class ReadArtifactInput(ToolModel):
    """Input of the tool that reads an artifact."""

    handle: str
    start: Annotated[int, Field(ge=0)] = 0
    length: Annotated[int, Field(ge=1, le=LONGEST_PAGE)] = PAGE_CHARACTERS


class ReadArtifactOutput(ToolModel):
    """Origin of an artifact; the page that was read is in content blocks."""

    server: str
    untrusted: bool


class ArtifactTools(HostTools):
    """The tool with which a model reads artifacts.

    It is always offered where something can be kept: a tool that came with the first artifact would change
    the list of tools in the middle of a conversation, and with it all that a provider has cached of it.
    """

    def __init__(self, artifacts: Artifacts, principal: str = LOCAL) -> None:
        self._artifacts = artifacts
        self._principal = principal
        tool = ToolDefinition(
            name=READ_TOOL,
            description="Read on where a result was cut, or see what was left out of it.",
            input=ReadArtifactInput,
            output=ReadArtifactOutput,
            handler=self._read,
        )
        super().__init__({"mcp.readArtifact": tool})

    async def prepare_result(
        self, tool: AnyTool, arguments: Mapping[str, Any], result: CallToolResult
    ) -> ToolResult:
        """The page alone, marked as what its server is."""
        if result.is_error:
            return await super().prepare_result(tool, arguments, result)
        origin = ReadArtifactOutput.model_validate(result.structured_content)
        page = encode_result(result.model_copy(update={"structured_content": None}))
        handles = {0: str(arguments["handle"])}  # for a provider that does not take such media
        remarks = ResultNotes(handles=handles)
        return ToolResult(origin.server, page, untrusted=origin.untrusted, remarks=remarks)

    async def _read(self, context: ToolContext, request: ReadArtifactInput) -> Reply[ReadArtifactOutput]:
        reading = self._artifacts.read(
            request.handle, principal=self._principal, start=request.start, length=request.length
        )
        page = await await_for_model(reading)
        artifact = page.artifact
        output = ReadArtifactOutput(server=artifact.server_id, untrusted=artifact.untrusted)
        return Reply(output=output, content=tuple(_blocks(page)))


def _blocks(page: ArtifactPage) -> Iterator[ContentBlock]:
    artifact = page.artifact
    if page.text is not None:
        yield TextContent(text=page.text)
        more = "" if page.next_start is None else f" Read on: start={page.next_start}."
        end = page.start + len(page.text)
        yield TextContent(text=f"[Characters {page.start:,} to {end:,} of {page.total:,}.{more}]")
        return
    data = base64.b64encode(page.data or b"").decode()
    if len(data) > MAX_IMAGE:
        hint = f"`fairlead artifacts show {artifact.handle} --output FILE` writes it to a file"
        raise ToolFailed(f"{artifact.media_type}, {page.total:,} bytes: too large for a model", hint=hint)
    match artifact.media_type.partition("/")[0]:
        case "image":
            yield ImageContent(data=data, mime_type=artifact.media_type)
        case "audio":
            yield AudioContent(data=data, mime_type=artifact.media_type)
        case _:
            blob = BlobResourceContents(uri=artifact.handle, mime_type=artifact.media_type, blob=data)
            yield EmbeddedResource(resource=blob)
