"""The SDK's server with a handler for each MCP method, for requests that the fast path does not answer."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version as installed_version
from typing import Any, Final, Protocol, TypeVar

import mcp_types as types
import msgspec
from mcp.server import NotificationOptions, Server
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from fairlead.catalog.catalog import CatalogTool
from fairlead.catalog.repair.content import contents_for, prompt_for
from fairlead.catalog.repair.protocol_versions import version_number
from fairlead.catalog.results import ToolResult
from fairlead.catalog.sanitize import gate
from fairlead.config.untyped import is_object
from fairlead.connection.peer import AGENT_META_KEY, IS_AGENT, SESSION_META_KEY
from fairlead.connection.tracing import SpanDetails, Trace, Tracer, carrying, read_trace
from fairlead.errors import CallRejected, FairleadError, ServerError
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.client_session import ClientKey, ClientSession, rejection, session_key
from fairlead.gateway.event_streams import promise_json
from fairlead.gateway.large_events import fit_event, require_event_size
from fairlead.gateway.lists import with_public_uris, with_requested_uris
from fairlead.gateway.request_context import (
    Context,
    MultiRoundContext,
    RequestContext,
    RequestIdentity,
    SessionContext,
    abilities_of,
    check_state,
    lost_request,
)
from fairlead.gateway.services import GatewayServices
from fairlead.gateway.tool_results import as_dict, fit_result
from fairlead.host.offers.contents import CleanAnswer
from fairlead.host.operator import Ability

_ENDLESS: Final = "subscriptions/listen"
"""A request that is answered when the client disconnects: a span that ends hours later is of no use."""


def trace_messages(tracer: Tracer | None) -> ServerMiddleware[object]:
    """Return middleware for the SDK's server that continues the trace of each message and records a span."""

    async def middleware(ctx: Context, call_next: CallNext) -> HandlerResult:
        parent = _trace_of(ctx)
        if tracer is None or ctx.request_id is None or ctx.method == _ENDLESS:
            with carrying(parent):
                return await call_next(ctx)
        name: object = (ctx.params or {}).get("name")
        about = SpanDetails(
            method=ctx.method,
            name=name if isinstance(name, str) else None,
            version=ctx.protocol_version,
            transport="pipe" if ctx.request is None else "tcp",
            request_id=str(ctx.request_id),
        )
        with tracer.serving(about, parent) as span, carrying(span.trace):
            result = await call_next(ctx)
            match result:
                case CallToolResult(is_error=True) | {"isError": True}:
                    span.record_failure("tool_error")
                case _:
                    pass
            return result

    return middleware


def _trace_of(ctx: Context) -> Trace | None:
    """Return the trace that a request names: in its `_meta`, or else in its headers."""
    trace = read_trace(ctx.meta) if ctx.meta else None
    return read_trace(ctx.request.headers) if trace is None and ctx.request is not None else trace


RequestHandler = Callable[[RequestContext], Awaitable[dict[str, Any] | ToolResult]]
ParamsT = TypeVar("ParamsT", bound=BaseModel)

SERVER_INFO = {"name": "fairlead", "version": installed_version("fairlead")}
"""The `serverInfo` of the gateway."""

ADMITTED = "fairlead.admitted"
"""The key of an ASGI scope under which its authenticated request is."""

RESOURCE_NOT_FOUND = -32002
"""The error code of the handshake versions for an unknown resource."""


class HandledEndpoint(Protocol):
    """An endpoint, as its handlers know it."""

    @property
    def gateway(self) -> GatewayServices:
        """The gateway that it belongs to."""
        ...

    @property
    def server(self) -> Server[Any]:
        """The SDK's server with the handlers."""
        ...

    async def stateless(
        self, key: ClientKey, abilities: frozenset[Ability], label: str | None = None
    ) -> ClientSession:
        """Return the client that a request without a protocol session comes from."""
        ...

    def find_tool(self, name: str) -> CatalogTool | None:
        """Return a tool as the principal of the present request sees it."""
        ...


class Handlers:
    """The handlers of one endpoint, for all its clients."""

    def __init__(self, endpoint: HandledEndpoint) -> None:
        self._endpoint = endpoint

    def server(self) -> Server[Any]:
        """The SDK's server with these handlers."""

        @asynccontextmanager
        async def lifespan(server: Server[Any]) -> AsyncGenerator[None]:
            yield None

        server: Server[Any] = Server(
            SERVER_INFO["name"],
            version=SERVER_INFO["version"],
            lifespan=lifespan,
            get_tool_input_schema=self._input_schema,
        )
        # In place of the SDK's own, whose spans quote errors.
        server.middleware[:] = [trace_messages(self._endpoint.gateway.host.tracer), self._meet]
        add = server.add_request_handler
        add("server/discover", types.RequestParams, self._discover)
        add("tools/list", types.PaginatedRequestParams, self._list_tools)
        add("tools/call", types.CallToolRequestParams, self._call_tool)
        add("resources/list", types.PaginatedRequestParams, self._list_resources)
        add("resources/templates/list", types.PaginatedRequestParams, self._list_templates)
        add("resources/read", types.ReadResourceRequestParams, self._read_resource)
        add("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        add("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)
        add("prompts/list", types.PaginatedRequestParams, self._list_prompts)
        add("prompts/get", types.GetPromptRequestParams, self._get_prompt)
        add("completion/complete", types.CompleteRequestParams, self._complete)
        add("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        return server

    async def introduction(self, client: ClientSession) -> InitializationOptions:
        """The gateway's answer to a client's `initialize`."""
        await client.view.learn_logins()
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        options = self._endpoint.server.create_initialization_options(changes)
        return options.model_copy(update={"instructions": client.view.instructions()})

    async def _discover(self, context: Context, params: types.RequestParams) -> types.DiscoverResult:
        client = await self._client(context)
        await client.view.learn_logins()
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self._endpoint.server.get_capabilities(
                protocol_version=context.protocol_version
            ).model_copy(update={"experimental": {SESSION_META_KEY: {}}}),
            instructions=client.view.instructions(),
        )

    async def _client(self, context: Context) -> ClientSession:
        if isinstance(context.lifespan_context, ClientSession):
            return context.lifespan_context
        assert context.request is not None, "only requests over HTTP come without a session"
        admitted: AuthenticatedRequest = context.request.scope[ADMITTED]
        abilities = abilities_of(context.session.client_capabilities)
        said = context.session.client_params
        session = session_key(context.meta or {})
        name = said.client_info.name if said is not None and session is None else ""
        key = ClientKey(admitted.principal, admitted.credential, session, name, admitted.groups)
        client = await self._endpoint.stateless(key, abilities, admitted.label)
        client.hear_of(context.session)
        return client

    async def _meet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Take note of a session's client as soon as it has sent `initialize`."""
        result = await call_next(ctx)
        if isinstance(ctx.lifespan_context, ClientSession) and ctx.session.client_params is not None:
            ctx.lifespan_context.meet(ctx.session)
        return result

    # Tools.

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._endpoint.find_tool(name)
        schema: object = tool.entry.read().get("inputSchema") if tool is not None else None
        return schema if is_object(schema) else None

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _refuse_cursor(params)
        client = await self._client(context)
        return _list_result(context, {"tools": msgspec.json.decode(await client.list_tools())})

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        client = await self._client(context)

        async def work(request_context: RequestContext) -> ToolResult:
            async def report_progress(done: float, total: float | None, message: str | None) -> None:
                if isinstance(request_context, MultiRoundContext | SessionContext):
                    await request_context.progress(done, total, message)

            tool = client.find_tool(params.name)
            result = await client.call(
                request_context, params.name, tool, params.arguments or {}, report_progress
            )
            if await _limits_answer(context, request_context):
                return await fit_event(client, params.name, result)
            return result

        # An agent's call stays one for servers behind this gateway, and for its own agent, which refuses it.
        token = IS_AGENT.set(AGENT_META_KEY in (context.meta or {}))
        try:
            return await self._run_request(client, context, params, params.name, work)
        finally:
            IS_AGENT.reset(token)  # a pipelined request begins in the context of the one before it

    # Resources.

    async def _list_resources(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _refuse_cursor(params)
        offered = await (await self._client(context)).list_offers("resources")
        return _list_result(
            context, {"resources": await offered.list_entries("resource", context.protocol_version)}
        )

    async def _list_templates(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _refuse_cursor(params)
        offered = await (await self._client(context)).list_offers("resources")
        templates = await offered.list_entries("template", context.protocol_version)
        return _list_result(context, {"resourceTemplates": templates})

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        client, uri = await self._client(context), str(params.uri)
        code = INVALID_PARAMS if _is_modern(context) else RESOURCE_NOT_FOUND
        offered = await client.fetch_offers()
        with _naming_logins(client):
            owned = offered.require_owner(uri, code)

        async def work(request_context: RequestContext) -> dict[str, Any]:
            async with client.at(request_context, owned.server_id) as host:
                with _translate_errors(client):
                    read = await host.resources.read(owned.server_id, owned.uri)
                    if await _limits_answer(context, request_context):
                        await require_event_size(client, uri, read)
                    valid = contents_for(read.valid, version_number(context.protocol_version))
                return _list_result(context, with_requested_uris(_mark_untrusted(valid, read), uri, owned))

        return await self._run_request(client, context, params, uri, work)

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        client = await self._client(context)
        with _translate_errors(client):
            await client.notifier.watch(str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        (await self._client(context)).notifier.unwatch(str(params.uri))
        return types.EmptyResult()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        client = await self._client(context)
        watched: list[str] = []
        with self._endpoint.gateway.listening_stream(client.token_key) as is_room, client.in_use():
            if not is_room:
                raise MCPError(INTERNAL_ERROR, "there are too many streams: end some, or try again later")
            try:
                for uri in params.notifications.resource_subscriptions or ():
                    with _translate_errors(client):
                        await client.notifier.watch(uri)
                    watched.append(uri)
                return await client.notifier.listening(context, params)
            finally:
                for uri in watched:
                    client.notifier.unwatch(uri)

    # Prompts and completions.

    async def _list_prompts(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _refuse_cursor(params)
        offered = await (await self._client(context)).list_offers("prompts")
        return _list_result(
            context, {"prompts": await offered.list_entries("prompt", context.protocol_version)}
        )

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        client = await self._client(context)
        offered = await client.fetch_offers()
        with _naming_logins(client):
            route = offered.require_prompt(params.name)

        async def work(request_context: RequestContext) -> dict[str, Any]:
            async with client.at(request_context, route.server_id) as host:
                with _translate_errors(client):
                    got = await host.prompts.get(route.server_id, route.name, params.arguments)
                    if await _limits_answer(context, request_context):
                        await require_event_size(client, params.name, got)
                    valid = msgspec.json.encode(got.valid)
            linked = with_public_uris(valid, route.server_id, await client.prepare_offers())
            fitted = prompt_for(as_dict(linked), version_number(context.protocol_version))
            return _complete_result(context, _mark_untrusted(fitted, got))

        return await self._run_request(client, context, params, params.name, work)

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        client = await self._client(context)
        offered = await client.fetch_offers()
        argument, host = params.argument, client.host
        others = params.context.arguments if params.context else None
        with _translate_errors(client):
            if isinstance(params.ref, types.PromptReference):
                with _naming_logins(client):
                    route = offered.require_prompt(params.ref.name)
                server_id = route.server_id
                found = await host.prompts.complete(
                    server_id, route.name, argument.name, argument.value, others=others
                )
            else:
                with _naming_logins(client):
                    owned = offered.require_owner(params.ref.uri, INVALID_PARAMS, template=True)
                server_id = owned.server_id
                found = await host.resources.complete(
                    server_id, owned.uri, argument.name, argument.value, others=others
                )
            result = {"completion": msgspec.to_builtins(found)}
            marked = gate.mark_parsed(result, server_id if host.is_untrusted(server_id) else None)
        return _complete_result(context, marked)

    # Logging.

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        client = await self._client(context)
        client.set_log_level(params.level)
        return types.EmptyResult()

    # Request contexts.

    async def _run_request(
        self,
        client: ClientSession,
        context: Context,
        params: types.InputResponseRequestParams,
        name: str,
        work: RequestHandler,
    ) -> dict[str, Any] | types.InputRequiredResult:
        """Run a request in a context of the client's protocol family, for elicitations in its course."""
        with client.in_use():
            if _is_modern(context):
                result = await self._run_in_rounds(client, context, params, name, work)
            else:
                result = await self._run_in_context(SessionContext(client, context), work)
        if isinstance(result, ToolResult):
            number = version_number(context.protocol_version)
            return as_dict(fit_result(result, number=number, keeps_null=False))
        return result

    async def _run_in_context(
        self, request_context: RequestContext, work: RequestHandler
    ) -> dict[str, Any] | ToolResult:
        with request_context.client.requests.track(request_context):
            result = await work(request_context)
            await request_context.client.notifier.settle_logs()
            return result

    async def _run_in_rounds(
        self,
        client: ClientSession,
        context: Context,
        params: types.InputResponseRequestParams,
        name: str,
        work: RequestHandler,
    ) -> dict[str, Any] | ToolResult | types.InputRequiredResult:
        about = RequestIdentity(context.method, name, getattr(params, "arguments", None))
        if (state := params.request_state) is not None:
            if (refusal := check_state(state, client.principal, about)) is not None:
                raise refusal
            # Taken out only now: a state that another client or request shows costs its owner nothing.
            parked = client.parked.pop(state, None)
            if parked is None:
                raise lost_request("`requestState` was used already, or its request was given up")
            parked.resume(context, params.input_responses or {})
            return await parked.next_round()
        abilities = abilities_of(context.session.client_capabilities)
        begun = MultiRoundContext[dict[str, Any] | ToolResult](
            client, about, abilities, context, params.input_responses
        )

        async def run_work() -> dict[str, Any] | ToolResult:
            return await work(begun)

        client.tasks.start_soon(begun.run, run_work)
        return await begun.next_round()


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


_PYTHON_SDK = "python-httpx"
"""The beginning of its `User-Agent`: the library that it sends requests with."""


async def _limits_answer(context: Context, request_context: RequestContext) -> bool:
    """Whether the answer is an event of a stream to a client that drops large ones: the SDK for Python.

    Where nothing was sent before the answer it is JSON, which every client takes whole. The log messages that
    belong before it are sent first.
    """
    if context.request is None:
        return False
    if isinstance(request_context, SessionContext):
        await request_context.client.notifier.settle_logs()
        if not request_context.has_streamed and promise_json(context.request.scope):
            request_context.answers_as_json = True
            return False
    elif not request_context.has_streamed:
        return False
    return context.request.headers.get("user-agent", "").startswith(_PYTHON_SDK)


def _complete_result(context: Context, result: dict[str, Any]) -> dict[str, Any]:
    """A result as the client's protocol version has it."""
    return {"resultType": "complete", **result} if _is_modern(context) else result


def _list_result(context: Context, result: dict[str, Any]) -> dict[str, Any]:
    """A result with cache fields, which stateless clients want: not to be kept, and private."""
    return {"ttlMs": 0, "cacheScope": "private", **_complete_result(context, result)}


def _refuse_cursor(params: types.PaginatedRequestParams) -> None:
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "there are no more pages: everything was on the first")


@contextmanager
def _naming_logins(client: ClientSession) -> Generator[None]:
    """Add how to log in to an error about something that a server may list only after a login."""
    try:
        yield
    except MCPError as exc:
        hint = client.view.toolset.login_hint()
        if hint is None:
            raise
        raise MCPError(exc.code, f"{exc.message}\n\nhint: {hint}", exc.data) from exc


@contextmanager
def _translate_errors(client: ClientSession) -> Generator[None]:
    """Turn errors of the block into protocol errors. One that may quote an untrusted server is marked."""
    try:
        yield
    except CallRejected as exc:
        raise rejection(exc) from exc
    except FairleadError as exc:
        quoted = exc.server_id if isinstance(exc, ServerError) else None
        if quoted is not None and client.host.is_trusted(quoted):
            quoted = None
        told = {"code": exc.code, "hint": exc.hint}
        data = gate.mark_error_data(told, quoted)
        raise MCPError(INTERNAL_ERROR, str(exc), data) from exc


def _mark_untrusted(result: dict[str, Any], answered: CleanAnswer) -> dict[str, Any]:
    return gate.mark_parsed(result, answered.server_id if answered.untrusted else None)
