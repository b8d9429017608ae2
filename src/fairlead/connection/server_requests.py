"""The SDK's session on our dispatcher: hands requests and notifications of a server to the peer."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.transport_context import TransportContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fairlead.catalog.sanitize import gate
from fairlead.connection.peer import CLIENT_INFO, ClientPeer, Introduction, TooManyElicitations, refusal
from fairlead.connection.server_messages import (
    MAX_INFO_TEXT,
    MAX_INSTRUCTIONS,
    repair_notification,
    repair_request,
)
from fairlead.connection.transport.dispatcher import WireDispatcher

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class ServerRequests:
    """The requests of a server over one connection that are being answered."""

    def __init__(self, clocks_held: Callable[[], AbstractContextManager[None]]) -> None:
        self._clocks_held = clocks_held
        self._open: set[anyio.CancelScope] = set()

    async def put(self, answer: Awaitable[AnswerT]) -> AnswerT | types.ErrorData:
        """Wait for an answer. Meanwhile the server waits for us: the clocks of our own requests stand still.

        If there is none because our own side broke, the server hears so, and no more.
        """
        with self._clocks_held(), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                return await answer
            except TooManyElicitations as exc:
                return exc.error
            except Exception:
                logger.exception("a server's request could not be answered")
                # The text of our exception may name files or hold a secret, and the server has no use for it.
                return types.ErrorData(code=INTERNAL_ERROR, message="the request could not be answered")
            finally:
                self._open.discard(scope)
        # Reached where `withdraw` cancelled the scope.
        return types.ErrorData(code=INVALID_REQUEST, message="the call this belongs to was given up")

    def withdraw(self) -> None:
        """Withdraw all requests: the call that they belong to was given up."""
        for scope in self._open:
            scope.cancel()


def answering_session(
    dispatcher: WireDispatcher,
    peer: ClientPeer,
    introduction: Introduction,
    requests: ServerRequests,
    on_message: Callable[[IncomingMessage], None],
) -> ClientSession:
    """The SDK's session, with the peer for its other side."""

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return _refuse_if_shared(sdk, peer) or await requests.put(peer.elicit(params))

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        return _refuse_if_shared(sdk, peer) or await requests.put(peer.sample(params))

    async def list_roots(context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        return await requests.put(peer.list_roots())

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        peer.handle_log(params)

    async def handle(message: IncomingMessage) -> None:
        # Modern servers tell of resources on streams of their own, which `subscriptions` follows.
        if isinstance(message, types.ResourceUpdatedNotification) and not _is_modern(sdk):
            peer.handle_update(str(message.params.uri))
        on_message(message)
        await anyio.lowlevel.checkpoint()

    sdk = _AnsweringSession(
        dispatcher=_Introduced(dispatcher, introduction),
        client_info=CLIENT_INFO,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=list_roots,
        logging_callback=log,
        message_handler=handle,
    )
    return sdk


def _is_modern(sdk: ClientSession) -> bool:
    return sdk.protocol_version in MODERN_PROTOCOL_VERSIONS


def _refuse_if_shared(sdk: ClientSession, peer: ClientPeer) -> types.ErrorData | None:
    """Refuse requests of a shared handshake server: which client's call they belong to is unknown."""
    is_unclear = peer.is_shared and not _is_modern(sdk)
    return refusal("elicitation and sampling over a shared connection") if is_unclear else None


class _AnsweringSession(ClientSession):
    """The SDK's session, with the server's self-description sanitized.

    That is bounded at the handshake, and cleaned once for as long as no more secrets are known.
    """

    _cleaned_info: tuple[int, types.Implementation] | None = None
    _cleaned_instructions: tuple[int, str] | None = None

    @property
    def server_info(self) -> types.Implementation | None:
        """The server's own name and version."""
        info = super().server_info
        if info is None:
            return None
        known = self._cleaned_info
        if known is None or known[0] != gate.generation():
            known = self._cleaned_info = gate.generation(), _clean_info(info)
        return known[1]

    @property
    def instructions(self) -> str | None:
        """The server's instructions for models."""
        text = super().instructions
        if text is None:
            return None
        known = self._cleaned_instructions
        if known is None or known[0] != gate.generation():
            known = self._cleaned_instructions = gate.generation(), gate.content(text, MAX_INSTRUCTIONS)
        return known[1]


def _clean_info(info: types.Implementation) -> types.Implementation:
    texts = {
        name: gate.content(text, MAX_INFO_TEXT)
        for name in ("name", "version", "title", "description", "website_url")
        if isinstance(text := getattr(info, name), str)
    }
    icons = [icon for icon in info.icons or () if gate.content(icon.src) == icon.src]
    return info.model_copy(update={**texts, "icons": icons or None})


class _Introduced(Dispatcher[TransportContext]):
    """Our dispatcher for the SDK's session: it declares our capabilities in place of the SDK's."""

    def __init__(self, dispatcher: WireDispatcher, introduction: Introduction) -> None:
        self._dispatcher = dispatcher
        self._introduction = introduction

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the connection until it ends. What the server sends is repaired before it is parsed."""

        async def answer(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            return await on_request(context, method, repair_request(method, params))

        async def notice(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            try:
                repaired = repair_notification(method, params)
            except ValueError:
                logger.debug(
                    "a notification was dropped: it has nothing to pass on", extra={"method": method}
                )
                return
            await on_notify(context, method, repaired)

        await self._dispatcher.run(answer, notice, on_notify_intercept, task_status=task_status)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request that declares what we declare."""
        if params is not None and CLIENT_CAPABILITIES_META_KEY in params.get("_meta", {}):
            own_meta = {CLIENT_CAPABILITIES_META_KEY: self._introduction.capabilities}
            meta = {**params["_meta"], **own_meta, **self._introduction.session}
            params = {**params, "_meta": meta}
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification."""
        await self._dispatcher.notify(method, params, opts)
