"""HTTP routes of the control API: run commands of the user, list and answer pending approvals, reload.

They need the scope `decide` or `admin`, which agents' tokens do not have.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import ToolEntry
from fairlead.connection.peer import CALLER
from fairlead.errors import CallFailed, ConfigError, Delivery, FairleadError, ReplicaFailed, StoreError
from fairlead.events import DOWN
from fairlead.gateway.access.auth import AuthenticatedRequest, RequestAuthenticator
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.carried_errors import CommandFailed, encode_error
from fairlead.gateway.client_session import ClientKey, ClientSession
from fairlead.gateway.control.protocol import (
    ANSWERS_PATH,
    CONTROL_PATH,
    AllowTool,
    CallTool,
    CommandEvent,
    CommandProgress,
    ControlCommand,
    Done,
    ElicitationAsked,
    ElicitationReply,
    ElicitationWithdrawn,
    KnownServer,
    ListServers,
    ListTools,
    RestartedServer,
    RestartServer,
)
from fairlead.gateway.gateway import Gateway
from fairlead.gateway.pending_approvals import PendingApproval
from fairlead.gateway.registry import APPROVALS_PATH, RELOAD_PATH, contents_of
from fairlead.gateway.request_context import ClientResult, RequestContext, ServerRequest
from fairlead.host.managed_server import ManagedServer
from fairlead.host.operator import Ability, ApprovalAnswer
from fairlead.host.snapshots import LastFailure, Snapshot, snapshot_to_store
from fairlead.wording import join_clauses

logger = logging.getLogger(__name__)

_CLIENT_NAME = "fairlead"
"""What the client behind the user's commands is called."""

Put = Callable[[CommandEvent], Awaitable[None]]

_encode = msgspec.json.Encoder().encode
_decode_command = msgspec.json.Decoder(ControlCommand).decode
_decode_reply = msgspec.json.Decoder(ElicitationReply).decode


Restart = Callable[[str, str], Awaitable[Sequence[str]]]
"""Restarts a server for a principal, and says what the user should know: `actions.switch`, a layer above."""


def control_routes(
    gateway: Gateway, access: RequestAuthenticator, reload: Callable[[], Awaitable[None]], restart: Restart
) -> list[Route]:
    """The routes that run control commands, take answers to their elicitations, and reload.

    Args:
        gateway: The gateway that they control.
        access: Authenticates their requests.
        reload: Has the gateway read its configuration again, where a command has read another.
        restart: Restarts a server for a principal.
    """
    control = _ControlServer(gateway, access, reload, restart)
    if gateway.member is not None:
        gateway.member.answer(_REPLY, control.settle_passed)
    return [
        Route(CONTROL_PATH, _Endpoint(control.run), methods=["POST"]),
        Route(ANSWERS_PATH, control.answer, methods=["POST"]),
        Route(RELOAD_PATH, control.reload, methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An ASGI application, which Starlette tells from a function by its being none."""

    app: Callable[[Scope, Receive, Send], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@dataclass(eq=False, slots=True)
class _Open:
    """An elicitation that waits for its answer."""

    principal: str
    reply: ElicitationReply | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class _PassedReply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to an elicitation, on its way to the worker that sent it."""

    principal: str
    reply: ElicitationReply


_decode_passed = msgspec.json.Decoder(_PassedReply).decode
_REPLY = "reply"
"""The question whether another worker waits for an answer."""
_YES = "yes"


class _ControlServer:
    """The control API of one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        access: RequestAuthenticator,
        reload: Callable[[], Awaitable[None]],
        restart: Restart,
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._reload = reload
        self._restart = restart
        self._open: dict[str, _Open] = {}

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a command until it is done or its client disconnects."""
        admitted = await self._access.admit(scope)
        if isinstance(admitted, RequestRefused):
            await admitted(scope, receive, send)
            return
        try:
            command = _decode_command(await Request(scope, receive).body())
        except (ValueError, RecursionError) as exc:
            await RequestRefused.saying(400, f"invalid control command: {exc}")(scope, receive, send)
            return
        await _begin(send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            await _put(send, await self._outcome(command, admitted.principal, send))
            await send({"type": "http.response.body", "body": b""})
            tasks.cancel_scope.cancel()

    async def answer(self, request: Request) -> Response:
        """Take the user's answer to an elicitation."""
        admitted = await self._access.admit(request.scope)
        if isinstance(admitted, RequestRefused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        try:
            reply = _decode_reply(await request.body())
        except (ValueError, RecursionError) as exc:
            return JSONResponse({"error": f"invalid answer: {exc}"}, 400)
        is_answered = self._settle(reply, admitted.principal)
        if not is_answered and self._gateway.member is not None:
            # The command may run in another worker.
            given = _encode(_PassedReply(principal=admitted.principal, reply=reply)).decode()
            is_answered = _YES in await self._gateway.member.ask_peers(_REPLY, given)
        return JSONResponse({"answered": is_answered})

    async def settle_passed(self, given: str) -> str:
        """Take an answer that came to another worker."""
        passed = _decode_passed(given)
        return _YES if self._settle(passed.reply, passed.principal) else ""

    def _settle(self, reply: ElicitationReply, principal: str) -> bool:
        elicitation = self._open.get(reply.id)
        if elicitation is None or elicitation.principal != principal:
            return False
        elicitation.reply = reply
        elicitation.answered.set()
        return True

    async def reload(self, request: Request) -> Response:
        """Read the configuration and the pins again, and answer once every session goes by them."""
        admitted = await self._access.admit(request.scope)
        if isinstance(admitted, RequestRefused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        try:
            await self._reload()
        except ConfigError as exc:
            return JSONResponse({"reloaded": False, "error": str(exc)})
        return JSONResponse({"reloaded": True})

    async def _outcome(self, command: ControlCommand, principal: str, send: Send) -> Done | CommandFailed:
        async def put(event: CommandEvent) -> None:
            await _put(send, event)

        try:
            if command.config != contents_of(self._gateway.loaded):
                await self._reload()
            if isinstance(command.work, RestartServer):
                notices = await self._restart(command.work.server, principal)
                return Done(msgspec.Raw(_encode(RestartedServer(notices=tuple(notices)))))
            async with self._open_context(frozenset(command.can), principal, put) as context:
                return Done(msgspec.Raw(await _run(command.work, context, put)))
        except FairleadError as exc:
            return encode_error(exc)
        except Exception as exc:
            logger.exception("a control command failed")
            failure = FairleadError(f"the command failed in the gateway: {type(exc).__name__}; see its log")
            return encode_error(failure)

    @asynccontextmanager
    async def _open_context(
        self, abilities: frozenset[Ability], principal: str, put: Put
    ) -> AsyncGenerator["CommandContext"]:
        """Open the request context of a command, in a client session that outlasts single commands."""
        endpoint = await self._gateway.endpoint()
        client = await endpoint.stateless(ClientKey(principal, None, name=_CLIENT_NAME), abilities)
        client.name = _CLIENT_NAME
        context = CommandContext(client, abilities, put, self._open)
        token = CALLER.set(context)
        try:
            with client.in_use(), client.requests.track(context):
                yield context
        finally:
            CALLER.reset(token)


class CommandContext(RequestContext):
    """Request context of a command: its user is prompted on the stream that the outcome comes on."""

    names_servers = True

    def __init__(
        self, client: ClientSession, abilities: frozenset[Ability], put: Put, elicitations: dict[str, _Open]
    ) -> None:
        # No approval is needed: the user typed the command, and a script confirms it with an option.
        super().__init__(client, abilities=abilities)
        self._session = client
        self._put = put
        self._elicitations = elicitations
        self._waiting = 0

    @property
    def client(self) -> ClientSession:
        """The client session that the commands of a principal share."""
        return self._session

    @property
    def is_parked(self) -> bool:
        """Whether the user is being prompted."""
        return self._waiting > 0

    async def ask(self, request: ServerRequest, server_id: str) -> ClientResult:
        """Send an elicitation to the user; it is withdrawn when the wait is cancelled."""
        assert isinstance(request, types.ElicitRequest), "nothing else was declared"
        asked, name = _Open(self.client.principal), secrets.token_hex(16)
        self._elicitations[name] = asked
        self._waiting += 1
        try:
            params = request.params.model_dump_json(by_alias=True, exclude_none=True).encode()
            await self._put(ElicitationAsked(name, server_id, msgspec.Raw(params)))
            await asked.answered.wait()
        finally:
            self._waiting -= 1
            del self._elicitations[name]
            if asked.reply is None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                    await self._put(ElicitationWithdrawn(name))
        assert asked.reply is not None
        return _read(asked.reply)

    async def tell(self, notification: types.ServerNotification) -> None:
        """Drop the notification: a command shows its result, and no more."""


def _read(reply: ElicitationReply) -> types.ElicitResult:
    try:
        if reply.error is not None:
            error = types.ErrorData.model_validate(reply.error)
            raise MCPError(error.code, error.message, error.data)
        return types.ElicitResult.model_validate(reply.result)
    except ValidationError as exc:
        raise MCPError(types.INVALID_PARAMS, "invalid elicitation result") from exc


# What is done.


def _named_definition(entry: ToolEntry) -> bytes:
    """Definition of a tool under its own name, by which the command knows it: it is shown escaped."""
    if gate.content(entry.key.tool) == entry.key.tool:
        return entry.definition
    return msgspec.json.encode({**entry.read(), "name": entry.key.tool})


async def _run(
    work: ListServers | ListTools | CallTool | AllowTool, context: CommandContext, put: Put
) -> bytes:
    """Run a command and return its result as JSON."""
    if isinstance(work, ListServers):
        return await _list_servers(context.client, work)
    async with work_at(context, work.server):
        host, principal = context.client.host, context.client.principal
        match work:
            case ListTools():
                await host.reach(work.server)  # its own connection, where servers are not shared
                if work.fresh:
                    await host.connect(work.server)
                return b"[%b]" % b",".join(map(_named_definition, await host.tools_of(work.server)))
            case CallTool():

                async def report_progress(progress: float, total: float | None, message: str | None) -> None:
                    await put(CommandProgress(progress, total, message))

                result = await host.call(
                    work.server,
                    work.tool,
                    work.arguments,
                    on_progress=report_progress,
                    request_timeout_ms=work.timeout_ms,
                    confirmed=work.confirmed,
                    principal=principal,
                    full_result=True,
                )
                return result.raw
            case AllowTool():
                await host.allow(work.server, work.tool, principal=principal)
                return b"{}"


@asynccontextmanager
async def work_at(context: CommandContext, server_id: str) -> AsyncGenerator[None]:
    """Let a server work on a command. Without elicitation there is no other request to wait for."""
    if not context.abilities:
        context.server_id = server_id
        yield
        return
    delivery: Delivery = "not_sent"
    try:
        async with context.client.at(context, server_id):
            delivery = "unknown"
            yield
    except MCPError as exc:
        raise CallFailed(server_id, exc.error.message, delivery=delivery) from exc


async def _list_servers(client: ClientSession, work: ListServers) -> bytes:
    host = client.host
    known = {managed.server.server_id: managed for managed in host.servers}
    wanted = [name for name in work.servers if name in known]
    ask = [name for name in wanted if known[name].is_usable and (work.refresh or known[name].listing is None)]
    failures = await host.connect(*ask) if ask else {}
    client.view.release()
    described = {
        name: _describe_server(managed, failures.get(name))
        for managed in host.servers
        if (name := managed.server.server_id) in wanted
    }
    return _encode(described)


def _describe_server(managed: ManagedServer, failure: FairleadError | None) -> KnownServer:
    snapshot, screened, status = managed.snapshot, managed.screened, managed.status()
    trouble = None
    if status.state in DOWN and status.last_error:
        trouble = LastFailure(state=status.state, message=status.last_error, hint=status.hint, at=0)
    shown = None
    if snapshot is not None and screened is not None:
        shown = Snapshot(listing=screened.listing, version=snapshot.version, saved_at=snapshot.saved_at)
    return KnownServer(
        snapshot=snapshot_to_store(shown) if shown else None,
        quarantined=dict(screened.quarantined) if screened else {},
        trouble=trouble,
        failure=encode_error(failure) if failure else None,
    )


# The stream.


async def _begin(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _put(send: Send, event: CommandEvent) -> None:
    data = _encode(event).translate(_ONE_LINE)
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})


_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""In JSON, line breaks are only ever between things."""


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


ReplySurface = Literal["command line", "console", "control API"]
"""Where the user decided: at one of our surfaces, or with a program of their own."""


class ApprovalReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's decision about a pending call."""

    id: str
    answer: ApprovalAnswer
    surface: ReplySurface = "control API"


_decode_approval = msgspec.json.Decoder(ApprovalReply).decode

AnswerApproval = Callable[[ApprovalReply, AuthenticatedRequest], Awaitable[Sequence[str] | None]]
"""Answers a pending call for a user, and says what they should know; None where it waits no more.

This is `actions.approvals`, above this layer.
"""


def approval_routes(gateway: Gateway, access: RequestAuthenticator, answer: AnswerApproval) -> list[Route]:
    """The routes that list and answer pending approvals: of the own principal, with scope `admin` all.

    With those that wait come the approvals for the session of a client, in this process.
    """

    async def list_pending(_: Request, admitted: AuthenticatedRequest) -> Response:
        pending = gateway.approvals.pending(admitted.decides_for)
        held = {one for client in gateway.clients() for one in await client.host.approvals.of_session()}
        sessions = [
            {"server": one.server_id, "tool": one.tool, "principal": one.principal}
            for one in held
            if admitted.decides_for in (None, one.principal)
        ]
        return JSONResponse({"pending": [_as_json(call) for call in pending], "sessions": sessions})

    async def take_answer(request: Request, admitted: AuthenticatedRequest) -> Response:
        try:
            reply = _decode_approval(await request.body())
        except (ValueError, RecursionError) as exc:
            return JSONResponse({"error": f"invalid answer: {exc}"}, 400)
        try:
            notices = await answer(reply, admitted)
        except (ReplicaFailed, StoreError) as exc:
            return JSONResponse({"answered": False, "error": join_clauses(str(exc), exc.hint)})
        return JSONResponse({"answered": notices is not None, **({"notices": [*notices]} if notices else {})})

    return [
        Route(APPROVALS_PATH, _admitting(access, list_pending), methods=["GET"]),
        Route(APPROVALS_PATH, _admitting(access, take_answer), methods=["POST"]),
    ]


def _admitting(
    access: RequestAuthenticator, answer: Callable[[Request, AuthenticatedRequest], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        admitted = await access.admit(request.scope)
        if isinstance(admitted, RequestRefused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        return await answer(request, admitted)

    return endpoint


def _as_json(call: PendingApproval) -> dict[str, Any]:
    request = call.request
    return {
        "id": call.id,
        "server": request.server_id,
        "tool": request.tool,
        "arguments": request.arguments,
        "reason": request.reason,
        "hint": request.hint,
        "claims": list(request.claims),
        "preview": request.preview,
        "remember": request.remember,
        "principal": request.principal,
        "created_at": call.created,
    }
