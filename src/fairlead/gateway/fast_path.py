"""The fast path: tool calls and lists over HTTP, answered as bytes without models.

These need no model of what is in them, and lists may be too large for one. A request that is unusual in any
way, down to a header, goes to the SDK's server, which knows every rule.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import Final

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from fairlead.catalog.catalog import CatalogTool
from fairlead.catalog.repair.protocol_versions import version_number
from fairlead.catalog.results import ToolResult
from fairlead.connection.peer import SESSION_META_KEY
from fairlead.connection.tracing import (
    TRACEPARENT,
    TRACESTATE,
    Span,
    SpanDetails,
    Tracer,
    carrying,
    is_tool_error,
    read_trace,
)
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.batches import answer_batch, post_batch
from fairlead.gateway.client_session import LIST_FIELDS, MAX_SESSION_KEY, ClientKey, ClientSession
from fairlead.gateway.endpoint import GatewayEndpoint
from fairlead.gateway.fast_request import FastParams, FastRequest, read_client_info, read_request
from fairlead.gateway.request_context import (
    DISCONNECT_SECONDS,
    UNASKABLE,
    MultiRoundContext,
    PlainCall,
    RequestContext,
    RequestIdentity,
    abilities_of,
)
from fairlead.gateway.sdk_server import ADMITTED, SERVER_INFO
from fairlead.gateway.tool_results import fit_result
from fairlead.gateway.workers.member import PoolMember
from fairlead.host.operator import Ability
from fairlead.jsonrpc.incoming import MessageRefusal, repair_body, split_batch
from fairlead.net.exchange import read_body, replay_body, send_response
from fairlead.net.listen import connection_of, was_passed

PLAIN_VERSIONS: Final = frozenset({"2025-06-18", "2025-11-25"})
"""The older versions whose results take what servers of today put into them."""

_MODERN: Final = LATEST_MODERN_VERSION.encode()
_HEADER: Final = TRACEPARENT.encode()
_CALLS_TO_MOVE: Final = 8
"""Calls in a row that another worker carried out before their connection moves there."""
_CANCELLED: Final = b'"error":{"code":0,"message":"the request was cancelled"}'


_Answer = Callable[[FastRequest], Awaitable[bool]]

_encode = msgspec.json.Encoder().encode


class FastPath:
    """Answers plain requests, and passes the others to the SDK's server."""

    def __init__(self, tracer: Tracer | None = None, member: PoolMember | None = None) -> None:
        """Answer requests; `member` is this process among the workers of the gateway, if it has several."""
        self._tracer = tracer
        self._member = member

    async def handle(self, endpoint: GatewayEndpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] != "POST":
            await endpoint.handle(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:
            return
        if body[:1] != b"{" and (parts := split_batch(body)) is not None:
            handle = partial(self._handle_body, endpoint)
            await answer_batch(
                parts, _session_client(endpoint, dict(scope["headers"]), scope), handle, scope, receive, send
            )
        elif self._member is not None and (number := _other_worker(body, scope, self._member)) is not None:
            await self._member.pass_on(number, scope, receive, send)
        elif self._member is not None and await _move_to_calls(body, scope, receive, self._member):  # noqa: SIM114
            return
        elif await _answer_at_home(endpoint, body, scope, receive, send, self._member):
            return
        else:
            await self._handle_body(endpoint, body, scope, receive, send)

    async def _handle_body(
        self, endpoint: GatewayEndpoint, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one message."""
        exchange = _HttpExchange(endpoint, scope, receive, send, self._tracer, self._member)
        request = read_request(body)
        if request is not None and await exchange.try_answer(request):
            return
        if request is not None and await exchange.try_resume_elsewhere(request, body):
            return
        sound = repair_body(body)
        if isinstance(sound, MessageRefusal):
            await _unreadable(sound)(scope, receive, send)
            return
        if (
            request is None
            and (repaired := read_request(sound)) is not None
            and await exchange.try_answer(repaired)
        ):
            return
        await endpoint.handle(scope, replay_body(sound, receive), send)

    async def handle_message(
        self, endpoint: GatewayEndpoint, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle a message of a client of the HTTP+SSE transport."""
        body = await read_body(receive)
        if body is None:
            return
        if body[:1] != b"{" and (parts := split_batch(body)) is not None:
            handle = partial(self._handle_posted, endpoint)
            await post_batch(parts, endpoint.listener(scope), handle, scope, receive, send)
        else:
            await self._handle_posted(endpoint, body, scope, receive, send)

    async def _handle_posted(
        self, endpoint: GatewayEndpoint, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        sound = repair_body(body)
        if isinstance(sound, MessageRefusal):
            await _unreadable(sound)(scope, receive, send)
        else:
            await endpoint.handle_message(scope, replay_body(sound, receive), send)


def _other_worker(body: bytes, scope: Scope, member: PoolMember) -> int | None:
    """The worker that has a request's earlier rounds, or the session that it names, if that is another one.

    A stateless client that names no session is served by any worker. One hop at most: a request that was
    passed on is answered by this worker in any case.
    """
    if was_passed(scope) or not (b"requestState" in body or SESSION_META_KEY.encode() in body):
        return None  # most requests: they need not be read twice
    request = read_request(body)
    if request is None:
        return None
    state = bytes(request.params.request_state)
    if state:
        return member.other_owner(state.decode("utf-8", "replace").strip('"'))
    session = request.params.meta.session
    return member.home(session) if isinstance(session, str) else None


async def _move_to_calls(body: bytes, scope: Scope, receive: Receive, member: PoolMember) -> bool:
    """Move a stateless client's connection to the worker that carries out its calls. Returns whether it did.

    A call that is sent to the owner of a server costs the owner more than to serve the client itself: it is
    a second request to answer there. Any worker may answer such a client, so this changes nothing else.
    """
    connection = connection_of(scope)
    if connection is None or connection.callee is None or connection.calls_in_row < _CALLS_TO_MOVE:
        return False
    if was_passed(scope) or SESSION_META_KEY.encode() in body or b"requestState" in body:
        return False
    if (b"mcp-protocol-version", _MODERN) not in scope["headers"]:
        return False
    return await member.try_pass_on(connection.callee, scope, receive)


async def _answer_at_home(
    endpoint: GatewayEndpoint,
    body: bytes,
    scope: Scope,
    receive: Receive,
    send: Send,
    member: PoolMember | None,
) -> bool:
    """Have the replica or worker answer that has what a stateless client keeps, if that is another one.

    That is for requests to servers of which each client has its own, and among replicas for all of clients
    that name their session: a worker has got those already.
    """
    cluster, is_modern = endpoint.gateway.cluster, (b"mcp-protocol-version", _MODERN) in scope["headers"]
    # A request that waits somewhere goes on there.
    if cluster is None or not is_modern or b"requestState" in body or was_passed(scope):
        return False
    if (request := read_request(body)) is None:
        return False
    params, admitted, client = request.params, scope[ADMITTED], request.params.meta.session
    if client is None:
        if not await endpoint.uses_own_server(admitted.caller, request.method, params.name, params.arguments):
            return False
        client = (read_client_info(bytes(params.meta.client_info)).name,)  # which spells no session
    elif member is not None:
        return False
    client_name = repr(client)
    if member is None:
        return await cluster.answer_at_home(
            client_name, endpoint.bundle, admitted, scope, body, receive, send
        )
    home = member.home(cluster.home_name(client_name, endpoint.bundle, admitted).decode())
    return home is not None and await member.try_pass_on(home, scope, receive)


class _HttpExchange:
    """One request over HTTP."""

    def __init__(
        self,
        endpoint: GatewayEndpoint,
        scope: Scope,
        receive: Receive,
        send: Send,
        tracer: Tracer | None,
        member: PoolMember | None,
    ) -> None:
        self._endpoint = endpoint
        self._tracer = tracer
        self._member = member
        self._span: Span | None = None
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._session_id = b""

    async def try_answer(self, request: FastRequest) -> bool:
        """Answer the request, if it is a plain one. Returns whether it was answered."""
        if b"application/json" not in self._headers.get(b"content-type", b""):
            return False
        if request.method == "notifications/cancelled":
            return await self._cancel_call(request)
        if (request.method != "tools/call" and request.method not in LIST_FIELDS) or not request.is_plain:
            return False
        is_modern = self._headers.get(b"mcp-protocol-version") == _MODERN
        answer = self._answer_stateless if is_modern else self._answer_in_session
        if self._tracer is None and request.params.meta.traceparent is None and _HEADER not in self._headers:
            return await answer(request)
        return await self._answer_traced(request, answer)

    async def try_resume_elsewhere(self, request: FastRequest, body: bytes) -> bool:
        """Have the replica answer that a request waits at, if it is another one."""
        cluster, state = self._endpoint.gateway.cluster, bytes(request.params.request_state)
        if cluster is None or not state:
            return False
        bundle, admitted = self._endpoint.bundle, self._scope[ADMITTED]
        return await cluster.resume_elsewhere(
            state, bundle, admitted, self._scope, body, self._receive, self._send
        )

    async def _answer_traced(self, request: FastRequest, answer: _Answer) -> bool:
        """Answer a request as part of the trace that its `_meta` or its headers name."""
        meta = request.params.meta
        parent = read_trace({TRACEPARENT: meta.traceparent, TRACESTATE: meta.tracestate})
        if parent is None and _HEADER in self._headers:
            texts = {name.decode(): value.decode("latin-1") for name, value in self._headers.items()}
            parent = read_trace(texts)
        if self._tracer is None:
            with carrying(parent):
                return await answer(request)
        version = self._headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        about = SpanDetails(
            method=request.method,
            name=request.params.name,
            version=version if version in KNOWN_PROTOCOL_VERSIONS else None,
            transport="tcp",
            request_id=str(request.id),
        )
        with self._tracer.serving(about, parent) as self._span, carrying(self._span.trace):
            is_answered = await answer(request)
            if not is_answered:
                self._span.forget()
            return is_answered

    # Stateless versions.

    async def _answer_stateless(self, request: FastRequest) -> bool:
        if not self._is_proper(request):
            return False
        capabilities = bytes(request.params.meta.capabilities)
        abilities = UNASKABLE if capabilities == b"{}" else _abilities(capabilities)
        admitted: AuthenticatedRequest = self._scope[ADMITTED]
        session, info = request.params.meta.session, read_client_info(bytes(request.params.meta.client_info))
        if session is not None and not (isinstance(session, str) and 0 < len(session) <= MAX_SESSION_KEY):
            return False
        name = info.name if session is None else ""
        key = ClientKey(admitted.principal, admitted.credential, session, name, admitted.groups)
        try:
            client = await self._endpoint.stateless(key, abilities, admitted.label)
        except MCPError as exc:
            await self._refuse(request, exc, in_session=False)
            return True
        if client.name is None:
            client.name = info.shown
        if request.method in LIST_FIELDS:
            if request.params.cursor is not None:
                return False
            with client.in_use():
                array = await client.list_array(request.method)
                await self._answer(request, _LIST_HEAD, _member(request.method), array, _LIST_TAIL)
            return True
        tool = client.find_tool(request.params.name)
        # Whether the `Mcp-Param-…` headers repeat the arguments is checked by the SDK's server.
        if tool is not None and b"x-mcp-header" in tool.entry.definition:
            return False
        if self._member is not None and tool is not None and session is None:
            self._note_owner(client, tool, self._member)
        await self._call(request, client, abilities, tool)
        return True

    def _note_owner(self, client: ClientSession, tool: CatalogTool, member: PoolMember) -> None:
        """Take note of the worker that has to carry out a call, for `_move_to_calls`."""
        connection, cluster = connection_of(self._scope), self._endpoint.gateway.cluster
        if connection is None or cluster is None:
            return
        owner = cluster.owners.owner_elsewhere(tool.key.server_id)
        # What it has of its own here, such as a server's memory, is not at another worker: it stays.
        if owner is None or client.has_any_own:
            connection.note_call(None)
        else:
            connection.note_call(member.at_address(owner.address))

    def _is_proper(self, request: FastRequest) -> bool:
        """Return whether the headers repeat what the request says, once each, as the protocol requires."""
        headers, params = self._headers, request.params
        accept = headers.get(b"accept", b"")
        named = request.method != "tools/call" or headers.get(b"mcp-name") == params.name.encode()
        return (
            params.meta.version == LATEST_MODERN_VERSION
            and len(params.meta.capabilities) > 0
            and headers.get(b"mcp-method") == request.method.encode()
            and named
            and b"application/json" in accept
            and b"text/event-stream" in accept
            # No header twice: which one counts would depend on who reads it.
            and len(headers) == len(self._scope["headers"])
            and b"mcp-param-" not in b" ".join(headers)
        )

    # Handshake versions.

    async def _answer_in_session(self, request: FastRequest) -> bool:
        client = _session_client(self._endpoint, self._headers, self._scope)
        if (
            client is None
            or not client.is_met
            or b"application/json" not in self._headers.get(b"accept", b"")
            or request.params.cursor is not None
        ):
            return False
        if request.method in LIST_FIELDS:
            self._session_id = client.id.encode()
            with client.in_use():
                array = await client.list_array(request.method)
                await self._answer(request, b"{", _member(request.method), array, b"}")
            return True
        is_plain = (
            client.version in PLAIN_VERSIONS
            and client.abilities == UNASKABLE
            and not client.has_set_level
            # An id that is in use is the SDK's to refuse: a cancellation would otherwise end the wrong call.
            and request.id not in client.plain_calls
        )
        if is_plain:
            self._session_id = client.id.encode()
            await self._call(request, client, UNASKABLE, client.find_tool(request.params.name))
        return is_plain

    async def _cancel_call(self, request: FastRequest) -> bool:
        client = _session_client(self._endpoint, self._headers, self._scope)
        call = client.plain_calls.get(request.params.request_id) if client is not None else None
        if call is None:
            return False
        call.cancel()
        await self._respond(202, b"")
        return True

    # Calls.

    async def _call(
        self,
        request: FastRequest,
        client: ClientSession,
        abilities: frozenset[Ability],
        tool: CatalogTool | None,
    ) -> None:
        """Make a call, and cancel it when its client disconnects."""
        assert request.id is not UNSET
        params, in_session = request.params, bool(self._session_id)
        call = PlainCall(client.loop)
        # Nearly every call is over before that: a timer costs less than a task.
        watch = client.loop.call_later(DISCONNECT_SECONDS, client.starter.start_soon, self._watch, call)
        if in_session:
            client.plain_calls[request.id] = call
        error: MCPError | None = None
        result: bytes | None = None
        try:
            with client.in_use():
                if abilities == UNASKABLE:
                    context = RequestContext(client, log_level=client.log_level if in_session else None)
                    with client.requests.track(context):
                        outcome = await client.call(context, params.name, tool, params.arguments or {})
                else:
                    outcome = await _call_in_rounds(client, params, tool, abilities)
                if isinstance(outcome, types.InputRequiredResult):
                    result = outcome.model_dump_json(by_alias=True, exclude_none=True).encode()
                else:
                    number = version_number(client.version if in_session else None)
                    result = fit_result(outcome, number=number)
        except MCPError as exc:
            error = exc
        except asyncio.CancelledError:
            if not call.was_cancelled():
                raise
        finally:
            call.end()
            watch.cancel()
            if in_session:
                del client.plain_calls[request.id]
        await self._conclude(request, error, result)

    async def _conclude(self, request: FastRequest, error: MCPError | None, result: bytes | None) -> None:
        """Answer with the outcome of a call; with neither of the two, it was cancelled."""
        in_session = bool(self._session_id)
        if self._span is not None:
            _note(self._span, error, result)
        if error is not None:
            await self._refuse(request, error, in_session=in_session)
        elif result is not None:
            # `_answer` at once: every call ends here.
            body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encode(request.id), result)
            await send_response(self._send, 200, self._head(), body)
        elif in_session:
            await self._respond(200, b'{"jsonrpc":"2.0","id":%b,%b}' % (_encode(request.id), _CANCELLED))

    async def _watch(self, call: PlainCall) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        call.cancel()

    # Answers.

    async def _answer(self, request: FastRequest, *result: bytes) -> None:
        """Answer with a result. Parts of it may be large, and are not copied."""
        await self._respond(200, b'{"jsonrpc":"2.0","id":%b,"result":' % _encode(request.id), *result, b"}")

    async def _refuse(self, request: FastRequest, exc: MCPError, *, in_session: bool) -> None:
        # Only the stateless protocol maps JSON-RPC errors to HTTP statuses.
        status = 200 if in_session else ERROR_CODE_HTTP_STATUS.get(exc.error.code, 200)
        error = exc.error.model_dump(by_alias=True, mode="json", exclude_none=True)
        await self._respond(status, _encode({"jsonrpc": "2.0", "id": request.id, "error": error}))

    def _head(self) -> bytes:
        """The headers of a response for `send_response`. The id of the session was made by the gateway."""
        if not self._session_id:
            return b"content-type: application/json\r\n"
        return b"content-type: application/json\r\nmcp-session-id: %b\r\n" % self._session_id

    async def _respond(self, status: int, *body: bytes) -> None:
        if len(body) == 1 and body[0]:
            await send_response(self._send, status, self._head(), body[0])
            return
        length = sum(map(len, body))
        headers = [(b"content-length", b"%d" % length)]
        if length:
            headers.append((b"content-type", b"application/json"))
        if self._session_id:
            headers.append((b"mcp-session-id", self._session_id))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        *parts, last = body
        for part in parts:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": last})


def _session_client(
    endpoint: GatewayEndpoint, headers: Mapping[bytes, bytes], scope: Scope
) -> ClientSession | None:
    """Return the client whose session a request names, if the request may use it."""
    session_id = headers.get(b"mcp-session-id", b"")
    session = endpoint.session(session_id.decode("latin-1"), scope[ADMITTED]) if session_id else None
    return session.client if session is not None else None


def _note(span: Span, error: MCPError | None, result: bytes | None) -> None:
    """Record in a call's span how it failed, if it did."""
    if error is not None:
        span.record_failure(str(error.error.code), rpc_code=error.error.code)
    elif result is None:
        span.record_failure("cancelled")
    elif is_tool_error(result):
        span.record_failure("tool_error")


async def _call_in_rounds(
    client: ClientSession, params: FastParams, tool: CatalogTool | None, abilities: frozenset[Ability]
) -> ToolResult | types.InputRequiredResult:
    """Call a tool, up to its result or to elicitations in its place."""
    identity = RequestIdentity("tools/call", params.name, params.arguments)
    context = MultiRoundContext[ToolResult](client, identity, abilities)

    async def work() -> ToolResult:
        return await client.call(context, params.name, tool, params.arguments or {}, context.progress)

    client.tasks.start_soon(context.run, work)
    return await context.next_round()


@lru_cache(maxsize=1024)
def _abilities(capabilities: bytes) -> frozenset[Ability]:
    try:
        return abilities_of(types.ClientCapabilities.model_validate_json(capabilities))
    except ValueError:
        return UNASKABLE


def _member(method: str) -> bytes:
    return b'"%b":' % LIST_FIELDS[method].encode()


_LIST_HEAD: Final = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private",'
_LIST_TAIL: Final = b',"_meta":%b}' % _encode({types.SERVER_INFO_META_KEY: SERVER_INFO})


def _unreadable(refusal: MessageRefusal) -> RequestRefused:
    return RequestRefused(status=400, headers={"Content-Type": "application/json"}, body=refusal.encode())
