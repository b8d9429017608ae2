"""Tools with which a model reads the resources of servers and, where that is wanted, uses their prompts."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from mcp_types import ContentBlock, EmbeddedResource, TextContent
from pydantic import Field, ValidationError

from fairlead.catalog.offers import Prompt, Resource, ResourceTemplate
from fairlead.errors import FairleadError, ToolFailed
from fairlead.host.bundles import Selection
from fairlead.host.contents import Gathered
from fairlead.host.offers import OfferT, gather
from fairlead.host.own_tools import OwnTools
from fairlead.servers.definition import AnyTool, Reply, ToolContext, ToolDefinition, ToolModel

if TYPE_CHECKING:
    from fairlead.host.host import Host

LISTED_AT_ONCE = 200

AskedT = TypeVar("AskedT")


class WhichServer(ToolModel):
    """Whose."""

    server: str | None = None
    """Only this server's."""


class Offers(ToolModel):
    """What servers offer."""

    items: list[dict[str, Any]]
    more: int = 0
    """How many are left out."""
    unavailable: dict[str, str]


class ReadInput(ToolModel):
    """What to read."""

    server: str
    uri: str


class Read(ToolModel):
    """What was in it."""

    contents: list[dict[str, Any]]


class PromptInput(ToolModel):
    """Which prompt."""

    server: str
    name: str
    arguments: dict[str, str] = Field(default_factory=dict[str, str])


class Messages(ToolModel):
    """The prompt, filled in."""

    messages: list[dict[str, Any]]


class ReadingTools(OwnTools):
    """What a model can do with resources, and with prompts if it may."""

    def __init__(self, host: "Host", selection: Selection) -> None:
        self._host = host
        self._selection = selection
        tools: dict[str, AnyTool] = {}
        if selection.resources:
            tools |= self._for_resources()
        if selection.prompts:
            tools |= self._for_prompts()
        super().__init__(tools)

    def _for_resources(self) -> dict[str, AnyTool]:
        return {
            "mcp.resourcesList": ToolDefinition(
                name="mcp_resources_list",
                description="List what servers have to read.",
                input=WhichServer,
                output=Offers,
                handler=self._resources,
            ),
            "mcp.resourceTemplatesList": ToolDefinition(
                name="mcp_resource_templates_list",
                description="List URIs with blanks to fill in (RFC 6570).",
                input=WhichServer,
                output=Offers,
                handler=self._templates,
            ),
            "mcp.resourceRead": ToolDefinition(
                name="mcp_resource_read",
                description="Read a resource by its URI.",
                input=ReadInput,
                output=Read,
                handler=self._read,
            ),
        }

    def _for_prompts(self) -> dict[str, AnyTool]:
        return {
            "mcp.promptsList": ToolDefinition(
                name="mcp_prompts_list",
                description="List the prompts that servers have ready.",
                input=WhichServer,
                output=Offers,
                handler=self._prompts,
            ),
            "mcp.promptGet": ToolDefinition(
                name="mcp_prompt_get",
                description="Get a prompt, filled in.",
                input=PromptInput,
                output=Messages,
                handler=self._prompt,
            ),
        }

    async def _resources(self, context: ToolContext, asked: WhichServer) -> Offers:
        return _offers(await _told(self._gathered(Resource, asked.server)))

    async def _templates(self, context: ToolContext, asked: WhichServer) -> Offers:
        return _offers(await _told(self._gathered(ResourceTemplate, asked.server)))

    async def _prompts(self, context: ToolContext, asked: WhichServer) -> Offers:
        return _offers(await _told(self._gathered(Prompt, asked.server)))

    async def _gathered(self, kind: type[OfferT], server: str | None) -> Gathered[OfferT]:
        """What the servers of the selection offer: others are neither asked nor started."""
        if server is not None:
            self._require_chosen(server)
        return await gather(self._host, kind, server, among=self._selection.has)

    def _require_chosen(self, server: str) -> None:
        if not self._selection.has(server):
            raise ToolFailed(f"there is no server `{server}` here")

    async def _read(self, context: ToolContext, asked: ReadInput) -> Reply[Read]:
        self._require_chosen(asked.server)
        found = await _told(self._host.resources.read(asked.server, asked.uri))
        output = Read(contents=found.parts)
        return Reply(output=output, content=tuple(_block(part) for part in found.parts))

    async def _prompt(self, context: ToolContext, asked: PromptInput) -> Messages:
        self._require_chosen(asked.server)
        result = await _told(self._host.prompts.get(asked.server, asked.name, asked.arguments))
        return Messages(messages=result.messages)


async def _told(asking: Awaitable[AskedT]) -> AskedT:
    """What is waited for; what goes wrong on the way is told to the model."""
    try:
        return await asking
    except FairleadError as exc:
        raise ToolFailed(str(exc), hint=exc.hint) from exc


def _offers(gathered: Gathered[Resource] | Gathered[ResourceTemplate] | Gathered[Prompt]) -> Offers:
    shown = gathered.items[:LISTED_AT_ONCE]
    return Offers(
        items=[_plain(item) for item in shown],
        more=len(gathered.items) - len(shown),
        unavailable={name: str(failure).splitlines()[0] for name, failure in gathered.failures.items()},
    )


def _plain(item: Resource | ResourceTemplate | Prompt) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    server = fields.pop("serverId")
    return {"server": server, **{name: value for name, value in fields.items() if value not in (None, "")}}


def _block(part: dict[str, Any]) -> ContentBlock:
    if isinstance(part.get("text"), str):
        return TextContent(text=part["text"])
    try:
        return EmbeddedResource.model_validate({"type": "resource", "resource": part})
    except ValidationError:
        return TextContent(text="(something that nobody can read)")
