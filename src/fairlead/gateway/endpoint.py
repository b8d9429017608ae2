"""One MCP endpoint of the gateway, for all servers or for one bundle: its transports and its sessions."""

import logging
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
import anyio.abc
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.runner import serve_dual_era_loop, serve_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from fairlead.catalog.catalog import CatalogTool
from fairlead.config.models import BundleMode
from fairlead.config.principal import LOCAL_CALLER, GroupedPrincipal
from fairlead.gateway.access.auth import AuthenticatedRequest, TokenRevocations, token_in
from fairlead.gateway.client_session import CALLING_TOOLS, ClientKey, ClientSession, ProtocolFamily
from fairlead.gateway.cluster.session_ids import UNKNOWN_SESSION
from fairlead.gateway.event_streams import EventLog, SessionTransport, SseListener, hold_answer
from fairlead.gateway.principal_view import PrincipalView
from fairlead.gateway.sdk_server import ADMITTED, Handlers
from fairlead.gateway.services import GatewayServices
from fairlead.host.client_host import is_shared
from fairlead.host.host import Host
from fairlead.host.managed_server import ManagedServer
from fairlead.host.model.bundles import Selection, select
from fairlead.host.operator import Ability
from fairlead.net.listen import MAX_BODY_BYTES

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""How soon a handshake client comes back to a stream that ended."""

_RETRY_SECONDS: Final = 30
_CALLER: ContextVar[GroupedPrincipal] = ContextVar("caller", default=LOCAL_CALLER)
"""The principal of the present stateless request, where the SDK does not say."""
_SESSION_HEADER: Final = b"mcp-session-id"
_VERSION_HEADER: Final = b"mcp-protocol-version"
_OF_SERVERS: Final = frozenset(
    ("completion/complete", "prompts/get", "resources/read", "subscriptions/listen")
)
"""What besides calls of tools is answered by a server, or told by one."""
_TOO_MANY_SESSIONS: Final = "there are too many sessions: end some, or try again later"


class HttpSession:
    """A handshake session over Streamable HTTP."""

    def __init__(self, client: ClientSession) -> None:
        self.client = client
        self.transport = SessionTransport(client.id, event_store=EventLog(), retry_interval=RETRY_MS)


class GatewayEndpoint:
    """One MCP endpoint: a selection of servers, and the clients that use it."""

    def __init__(self, gateway: GatewayServices, bundle: str | None, mode: BundleMode | None = None) -> None:
        """Serve a bundle, or everything; `mode` counts more than what the configuration says."""
        self.gateway = gateway
        self.bundle = bundle
        self._mode = mode
        self.sessions: dict[str, HttpSession] = {}
        self._others: set[ClientSession] = set()
        self._listeners: set[SseListener] = set()
        self._stateless: dict[ClientKey, ClientSession] = {}
        self._opening = anyio.Lock()
        self._listing = anyio.Lock()
        self._listed: set[str] = set()
        """The servers that were listed to learn whether clients share them."""
        self._views: dict[GroupedPrincipal, PrincipalView] = {}
        self.renew()
        self.handlers = Handlers(self)
        self.server = self.handlers.server()
        # `GuardedApp` limits bodies; said here, too, so that the SDK has no lower limit of its own.
        self._modern = StreamableHTTPSessionManager(self.server, max_request_body_size=MAX_BODY_BYTES)
        messages = f"/messages~{gateway.id_prefix}" if gateway.id_prefix else "/messages"
        self._sse = SseServerTransport(
            f"{messages}/{bundle}" if bundle else messages, max_request_body_size=MAX_BODY_BYTES
        )

    def renew(self) -> None:
        """Apply the present configuration. Raises `UnknownBundle` where it has no such bundle."""
        self.selection = self.selection_for(LOCAL_CALLER)
        for view in self._views.values():
            view.renew()
        for client in self.clients():
            client.renew()

    def selection_for(self, caller: GroupedPrincipal) -> Selection:
        """Return what it selects for a caller: rules may hide other tools from each."""
        settings = self.gateway.loaded.config.gateway
        selection = select(self.gateway.loaded, self.bundle, caller)
        mode = self._mode or (settings.mode if not self.bundle else None)
        return replace(selection, mode=mode or selection.mode, approval=settings.approval)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve stateless clients until cancelled."""
        async with self._modern.run():
            task_status.started()
            await anyio.sleep_forever()

    async def close(self) -> None:
        """End all sessions."""
        for client in [*self._others, *self._stateless.values()]:
            client.ended.set()
        for session in [*self.sessions.values()]:
            await session.transport.terminate()

    def clients(self) -> list[ClientSession]:
        """All clients of this endpoint."""
        sessions = (session.client for session in self.sessions.values())
        return [*sessions, *self._others, *self._stateless.values()]

    def live_clients(self) -> list[ClientSession]:
        """Return the clients that count towards quotas: those over HTTP that are not ending."""
        sessions = (
            session.client for session in self.sessions.values() if not session.transport.is_terminated
        )
        streaming = (client for client in self._others if client.is_streaming)
        stateless = (client for client in self._stateless.values() if not client.ended.is_set())
        return [*sessions, *streaming, *stateless]

    async def end(self, client: ClientSession) -> None:
        """End a client's session."""
        session = self.sessions.get(client.id)
        if session is not None:
            await session.transport.terminate()
        client.ended.set()

    # Views.

    def view(self, caller: GroupedPrincipal, host: Host) -> PrincipalView:
        """Return what is offered to a principal, whose client hosts are built on that host."""
        view = self._views.get(caller)
        if view is None or view.host is not host:
            view = self._views[caller] = PrincipalView(self.gateway, host, caller, self.selection_for)
        return view

    def forget(self, principal: str) -> None:
        """Drop the view of a principal that has no clients."""
        for caller in [caller for caller in self._views if caller.principal == principal]:
            del self._views[caller]

    def find_tool(self, name: str) -> CatalogTool | None:
        """Return a tool as the principal of the present request sees it."""
        view = self._views.get(_CALLER.get())
        return view.toolset.catalog.find_tool(name) if view is not None else None

    async def uses_own_server(
        self, caller: GroupedPrincipal, method: str, name: str, arguments: Mapping[str, Any] | None
    ) -> bool:
        """Return whether a stateless request may go to a server of which each client has its own connection.

        Args:
            caller: Whose request it is.
            method: Its method.
            name: The tool that it names, if it does.
            arguments: The tool's arguments: a meta-tool calls another one.
        """
        if method != "tools/call" and method not in _OF_SERVERS:
            return False
        view = self._views.get(caller) or self.view(LOCAL_CALLER, self.gateway.host)
        chosen = [each for each in self.gateway.host.servers if self.selection.has(each.server.server_id)]
        if self._unlisted(chosen):  # only a server that was connected to tells whether clients may share it
            # One at a time: a request that did not wait would be answered here, and the next at its home.
            async with self._listing:
                if unlisted := self._unlisted(chosen):
                    await view.prepare()
                    self._listed |= unlisted
        wanted = (arguments or {}).get("name") if name in CALLING_TOOLS else name
        if method != "tools/call" or not isinstance(wanted, str):
            return any(map(_is_own, chosen))
        tool = view.toolset.catalog.find_tool(wanted)
        if tool is not None:
            chosen = [each for each in chosen if each.server.server_id == tool.key.server_id]
        return any(map(_is_own, chosen))

    def _unlisted(self, chosen: Iterable[ManagedServer]) -> set[str]:
        return {each.server.server_id for each in chosen if each.version is None} - self._listed

    # Clients.

    async def stateless(
        self, key: ClientKey, abilities: frozenset[Ability], label: str | None = None
    ) -> ClientSession:
        """Return the client session of a stateless request: the same for the same key.

        Each request declares its own abilities, which are no part of the client's identity.
        """
        client = self._stateless.get(key)
        if client is None or client.ended.is_set():
            client = await self._open_stateless(key, abilities, label)
        if abilities is not client.abilities:
            client.learn_abilities(abilities)
        return client

    async def _open_stateless(
        self, key: ClientKey, abilities: frozenset[Ability], label: str | None
    ) -> ClientSession:
        async with self._opening:
            client = self._stateless.get(key)
            if client is None or client.ended.is_set():
                async with self.gateway.room_for_session(key.principal, key.credential) as is_room:
                    if not is_room:
                        raise MCPError(INTERNAL_ERROR, _TOO_MANY_SESSIONS)
                    client = ClientSession(self, key.principal, "stateless", abilities, key=key, label=label)
                    await self.gateway.tasks.start(self._run_stateless, client)
                    self._stateless[key] = client
        return client

    async def _run_stateless(self, client: ClientSession, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with _contain_failures(client):
            async with client.running():
                task_status.started()
                await client.ended.wait()
        if client.key is not None and self._stateless.get(client.key) is client:
            del self._stateless[client.key]

    async def close_idle(self, seconds: float) -> None:
        """End the sessions of clients that made no request for so many seconds."""
        now = time.monotonic()

        def is_idle(client: ClientSession) -> bool:
            return client.is_idle and now - client.last_used > seconds

        for client in [client for client in self._stateless.values() if is_idle(client)]:
            client.ended.set()
        for session in [session for session in self.sessions.values() if is_idle(session.client)]:
            await session.transport.terminate()

    async def end_revoked(self, access: TokenRevocations) -> None:
        """End the sessions that were begun with a token that was removed since."""
        for client in [*self._stateless.values()]:
            if client.credential is not None and access.is_revoked(client.credential):
                client.ended.set()
        for session in [*self.sessions.values()]:
            credential = session.client.credential
            if credential is not None and access.is_revoked(credential):
                await session.transport.terminate()

    @asynccontextmanager
    async def _other(
        self, caller: GroupedPrincipal, family: ProtocolFamily, credential: str | None = None
    ) -> AsyncGenerator[ClientSession]:
        client = ClientSession(self, caller.principal, family, groups=caller.groups, credential=credential)
        async with client.running():
            self._others.add(client)
            try:
                yield client
            finally:
                self._others.discard(client)

    # Transports.

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request over Streamable HTTP, of either protocol family."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        version = headers.get(_VERSION_HEADER, b"").decode("latin-1")
        if version and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            _CALLER.set(scope[ADMITTED].caller)
            with self.gateway.streams.bind_to_token(token_in(scope)):
                await self._modern.asgi_app(scope, receive, send)
            return
        session_id = headers.get(_SESSION_HEADER)
        if session_id is None:
            await self._open_session(scope, receive, send)
            return
        session = self.session(session_id.decode("latin-1"), scope[ADMITTED])
        if session is None:
            await UNKNOWN_SESSION(scope, receive, send)
            return
        with session.client.in_use():
            await session.transport.handle_request(scope, receive, hold_answer(scope, send))

    def session(self, session_id: str, admitted: AuthenticatedRequest) -> HttpSession | None:
        """Return a session by its id, for the principal and the token that began it, and for no other."""
        session = self.sessions.get(session_id)
        if session is None or session.transport.is_terminated:
            return None
        client = session.client
        # A token that says other groups may be offered other tools: its client begins another session.
        is_own = client.caller == admitted.caller and client.credential == admitted.credential
        return session if is_own else None

    async def _open_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted: AuthenticatedRequest = scope[ADMITTED]
        with ExitStack() as in_use:
            async with self.gateway.room_for_session(admitted.principal, admitted.credential) as is_room:
                if not is_room:
                    await _refuse_session(scope, receive, send)
                    return
                session = HttpSession(
                    ClientSession(
                        self,
                        admitted.principal,
                        "session",
                        credential=admitted.credential,
                        label=admitted.label,
                        groups=admitted.groups,
                        session_id=self.gateway.new_session_id(admitted.principal, self.bundle),
                    )
                )
                in_use.enter_context(session.client.in_use())  # from its first moment: it is not idle yet
                await self.gateway.tasks.start(self._run_session, session)
            await self._answer_first(session, scope, receive, send)

    async def _answer_first(self, session: HttpSession, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request that a session begins with; one that fails ends it."""
        status = 500

        async def watch_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await session.transport.handle_request(scope, receive, hold_answer(scope, watch_status))
        finally:
            if status >= 400:  # it was no way to begin a session
                with anyio.CancelScope(shield=True):
                    await session.transport.terminate()

    async def _run_session(self, session: HttpSession, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        client, transport = session.client, session.transport
        with _contain_failures(client):
            async with client.running(), transport.connect() as (received, sent):
                self.sessions[client.id] = session
                task_status.started()
                try:
                    await serve_loop(
                        self.server,
                        received,
                        sent,
                        lifespan_state=client,
                        session_id=client.id,
                        init_options=await self.handlers.introduction(client),
                    )
                finally:
                    self.sessions.pop(client.id, None)
                    with anyio.CancelScope(shield=True):
                        await transport.terminate()

    async def handle_sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a client of the HTTP+SSE transport, for as long as it listens."""
        _name_user(scope)
        admitted: AuthenticatedRequest = scope[ADMITTED]
        caller, credential = admitted.caller, admitted.credential
        async with AsyncExitStack() as stack:
            async with self.gateway.room_for_session(caller.principal, credential) as is_room:
                if not is_room:
                    await _refuse_session(scope, receive, send)
                    return
                client = await stack.enter_async_context(self._other(caller, "session", credential))
                client.is_streaming = True
            new_id = partial(self.gateway.new_session_id, caller.principal, self.bundle)
            listener = SseListener(client, send, new_id)
            connected = self._sse.connect_sse(scope, receive, listener.send_part)
            received, sent = await stack.enter_async_context(connected)
            listener.write_to(sent)
            self._listeners.add(listener)
            stack.callback(self._listeners.discard, listener)
            await serve_loop(
                self.server,
                received,
                listener,
                lifespan_state=client,
                init_options=await self.handlers.introduction(client),
            )

    def listener(self, scope: Scope) -> SseListener | None:
        """Return the HTTP+SSE client whose session a message names, if the message may use it."""
        named = parse_qs(scope["query_string"].decode("latin-1")).get("session_id", [""])[-1]
        admitted: AuthenticatedRequest = scope[ADMITTED]
        for listener in self._listeners if named else ():
            if listener.session_id == named:
                client = listener.client
                is_own = client.caller == admitted.caller and client.credential == admitted.credential
                return listener if is_own else None
        return None

    async def handle_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a message of a client of the HTTP+SSE transport."""
        _name_user(scope)
        await self._sse.handle_post_message(scope, receive, send)

    async def serve_streams(self, received: Any, sent: Any, principal: str) -> None:  # noqa: ANN401 - the SDK's streams, which it does not name in public
        """Serve one client over a pair of streams until it hangs up."""
        async with self._other(GroupedPrincipal(principal), "session") as client:
            await serve_dual_era_loop(
                self.server,
                received,
                sent,
                lifespan_state=client,
                init_options=await self.handlers.introduction(client),
            )


def _is_own(managed: ManagedServer) -> bool:
    """Whether each client has a connection of its own to a server, which lasts, as far as is known."""
    return managed.version is not None and managed.config.sharing != "call" and not is_shared(managed)


@contextmanager
def _contain_failures(client: ClientSession) -> Generator[None]:
    """Keep a failure of one client from all others: log it and end that client."""
    try:
        yield
    except Exception:
        logger.exception("a client's session broke off", extra={"session": client.id})
    finally:
        client.ended.set()


def _name_user(scope: Scope) -> None:
    """Name the sender as the SDK wants it, which lets no other client write to a session."""
    admitted: AuthenticatedRequest = scope[ADMITTED]
    groups = "\0".join(sorted(admitted.groups))
    client = f"{admitted.principal}\0{admitted.credential or ''}\0{groups}"
    token = AccessToken(token="", client_id=client, scopes=[])
    scope["user"] = AuthenticatedUser(token)


async def _refuse_session(scope: Scope, receive: Receive, send: Send) -> None:
    error = {"code": -32603, "message": _TOO_MANY_SESSIONS}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    await JSONResponse(body, 429, {"Retry-After": str(_RETRY_SECONDS)})(scope, receive, send)
