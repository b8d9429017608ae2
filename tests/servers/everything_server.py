"""A server with everything that the conformance suite asks of a server, in every version of the protocol.

`python -m tests.servers.everything_server` serves it over stdio, in both eras or with `--older` in one alone;
with `--http PORT` over Streamable HTTP, on loopback, any free port for 0: its URL is then its first line.
"""

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheHint
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from fairlead.net.listen import bind, listening, url_of
from tests.servers.everything_offers import (
    EXTRA_PROMPT,
    PIXEL,
    PROMPTS,
    RESOURCES,
    SILENCE,
    TEMPLATES,
    complete,
    get_prompt,
    read,
)
from tests.servers.everything_questions import (
    CONVERSATIONS,
    Context,
    can_answer,
    conversation_about,
    is_modern,
    needed_for,
    sample,
    unable,
)
from tests.servers.sdk_http import MemoryEventStore

Outcome = types.CallToolResult | types.InputRequiredResult

NAME = "everything"
STEP_SECONDS = 0.05
"""What the suite wants between two messages of one call, so that they do not come as one."""
RETRY_MS = 500
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
MANY_KEYWORDS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def strings(*names: str, **more: Any) -> dict[str, Any]:
    """The schema of arguments that are all strings."""
    properties = {name: {"type": "string", **more} for name in names}
    return {"type": "object", "properties": properties, "required": [*names]}


def text(said: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=said)])


def text_resource(uri: str, mime_type: str, words: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=words)
    return types.EmbeddedResource(resource=contents)


IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
CONTENTS: dict[str, list[types.ContentBlock]] = {
    "test_simple_text": [types.TextContent(text="This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [types.AudioContent(data=SILENCE, mime_type="audio/wav")],
    "test_embedded_resource": [
        text_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        types.TextContent(text="Multiple content types test:"),
        IMAGE,
        text_resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}
"""What the tools say that always say the same."""


def session_of(context: Context) -> str:
    """The id of the caller's session. Over stdio there is one alone."""
    return context.request.headers.get("mcp-session-id", "") if context.request is not None else ""


@dataclass
class Everything:
    """What the server remembers: of all its clients, and of those that have sessions."""

    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    extra_tool: bool = False
    extra_prompt: bool = False
    levels: dict[str, str] = field(default_factory=dict[str, str])
    watched: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    # Tools that do something.

    async def log_thrice(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await self.log(context, said)
            await anyio.sleep(STEP_SECONDS)
        return text("Logged three times.")

    async def progress(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        for done in (0, 50, 100):
            await context.session.report_progress(done, 100, f"Completed step {done} of 100")
            await anyio.sleep(STEP_SECONDS)
        return text("Reported progress.")

    async def fail(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        words = "This tool intentionally returns an error for testing"
        return types.CallToolResult(content=[types.TextContent(text=words)], is_error=True)

    async def reconnect(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        """Close the stream of the answer, where there is one; who comes back for it gets it."""
        if context.close_sse_stream is not None:
            await context.close_sse_stream()
            await anyio.sleep(STEP_SECONDS)
        return text("Reconnection test completed successfully.")

    async def want_sampling(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        question = sample("What is the capital of France?", 100)
        if not can_answer(context, question):
            raise unable(needed_for(question))
        return text("The client can sample.")

    async def echo(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        structured = dict(arguments)
        return types.CallToolResult(
            content=[types.TextContent(text=json.dumps(structured))], structured_content=structured
        )

    async def change_tools(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        self.extra_tool = not self.extra_tool
        await self.publish(context, ToolsListChanged())
        return text("The tools have changed.")

    async def change_prompts(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        self.extra_prompt = not self.extra_prompt
        await self.publish(context, PromptsListChanged())
        return text("The prompts have changed.")

    async def update_resource(self, context: Context, arguments: Mapping[str, Any]) -> Outcome:
        await self.publish(context, ResourceUpdated(uri=arguments["uri"]))
        return text("Updated.")

    # What they share.

    async def log(self, context: Context, said: str) -> None:
        """Log at the level `info`, if the client wants to hear it."""
        if is_modern(context):
            level = (context.meta or {}).get(types.LOG_LEVEL_META_KEY)
        else:
            level = self.levels.get(session_of(context), "debug")
        if level is not None and LEVELS.index(level) <= LEVELS.index("info"):
            params = types.LoggingMessageNotificationParams(level="info", logger=NAME, data=said)
            notification = types.LoggingMessageNotification(params=params)
            await context.session.send_notification(notification, related_request_id=context.request_id)

    async def publish(self, context: Context, event: ServerEvent) -> None:
        """Tell all who listen, and the caller's own session, which cannot."""
        await self.bus.publish(event)
        if is_modern(context):
            return
        match event:
            case ToolsListChanged():
                await context.session.send_tool_list_changed()
            case PromptsListChanged():
                await context.session.send_prompt_list_changed()
            case ResourceUpdated(uri=uri) if uri in self.watched.get(session_of(context), ()):
                await context.session.send_resource_updated(uri)
            case _:
                pass

    # Requests.

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [tool for name, tool in TOOLS.items() if name != EXTRA_TOOL or self.extra_tool]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> Outcome:
        arguments = params.arguments or {}
        if params.name in CONTENTS:
            return types.CallToolResult(content=CONTENTS[params.name])
        if params.name in ACTIONS:
            return await ACTIONS[params.name](self, context, arguments)
        conversation = conversation_about(params.name, arguments)
        if conversation is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool is called {params.name!r}")
        outcome = await conversation.hold(context, params)
        return text(outcome) if isinstance(outcome, str) else outcome

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[*PROMPTS, *([EXTRA_PROMPT] if self.extra_prompt else [])])

    async def subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.watched.setdefault(session_of(context), set()).add(params.uri)
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self.watched.setdefault(session_of(context), set()).discard(params.uri)
        return types.EmptyResult()

    async def set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.levels[session_of(context)] = params.level
        return types.EmptyResult()


async def list_resources(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=RESOURCES)


async def list_templates(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)


async def read_resource(
    context: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    return read(params.uri)


Action = Callable[[Everything, Context, Mapping[str, Any]], Awaitable[Outcome]]

ACTIONS: dict[str, Action] = {
    "test_tool_with_logging": Everything.log_thrice,
    "test_logging_tool": Everything.log_thrice,
    "test_tool_with_progress": Everything.progress,
    "test_error_handling": Everything.fail,
    "test_reconnection": Everything.reconnect,
    "test_missing_capability": Everything.want_sampling,
    "json_schema_2020_12_tool": Everything.echo,
    "test_custom_header": Everything.echo,
    "test_trigger_tool_change": Everything.change_tools,
    "test_trigger_prompt_change": Everything.change_prompts,
    "test_update_resource": Everything.update_resource,
    "test_extra_tool": Everything.echo,
}
EXTRA_TOOL = "test_extra_tool"
SCHEMAS: dict[str, dict[str, Any]] = {
    "json_schema_2020_12_tool": MANY_KEYWORDS,
    "test_custom_header": strings("region", **{"x-mcp-header": "Region"}),
    "test_update_resource": strings("uri"),
    "test_elicitation": strings("message"),
    "test_sampling": strings("prompt"),
}
TOOLS = {
    name: types.Tool(
        name=name,
        description=f"For tests: {name.removeprefix('test_').replace('_', ' ')}.",
        input_schema=SCHEMAS.get(name, NO_ARGUMENTS),
    )
    for name in (*CONTENTS, *ACTIONS, "test_elicitation", "test_sampling", *CONVERSATIONS)
}


class EverythingServer(Server[Any]):
    """Says in the handshake, too, that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, experimental_capabilities, extensions)


def everything_server() -> EverythingServer:
    """The server, not yet served anywhere."""
    everything = Everything()
    server = EverythingServer(
        NAME,
        version="1.0.0",
        instructions="Ask for anything.",
        cache_hints={"tools/list": CacheHint(ttl_ms=1000, scope="public")},
        get_tool_input_schema=lambda name: TOOLS[name].input_schema if name in TOOLS else None,
        on_list_tools=everything.list_tools,
        on_call_tool=everything.call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=everything.subscribe,
        on_unsubscribe_resource=everything.unsubscribe,
        on_subscriptions_listen=ListenHandler(everything.bus),
        on_list_prompts=everything.list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, everything.set_level)
    state = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)
    server.middleware.append(state)
    return server


async def serve_stdio(*, older: bool) -> None:
    """Serve on the standard streams until the input ends."""
    server = everything_server()
    options = server.create_initialization_options()
    async with stdio_server() as (received, sent):
        if older:
            await serve_loop(server, received, sent, lifespan_state={}, init_options=options)
        else:
            await server.run(received, sent, options)


async def serve_http(port: int) -> None:
    """Serve on loopback until the process is ended."""
    app = everything_server().streamable_http_app(event_store=MemoryEventStore(), retry_interval=RETRY_MS)
    with bind("127.0.0.1", port) as listener:
        async with listening(app, listener):
            print(f"{url_of(listener)}/mcp", flush=True)  # noqa: T201 - whoever started it reads this
            await anyio.sleep_forever()


def main() -> None:
    """Serve where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP instead of stdio")
    parser.add_argument("--older", action="store_true", help="over stdio: know the older protocol alone")
    given = parser.parse_args()
    if given.http is None:
        anyio.run(partial(serve_stdio, older=given.older))
    else:
        anyio.run(serve_http, given.http)


if __name__ == "__main__":
    main()
