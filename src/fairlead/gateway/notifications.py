"""Notifications to one client: list changes, resource updates, log messages, finished URL elicitations."""

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.abc
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.repair.content import quote_uri
from fairlead.catalog.sanitize import gate
from fairlead.connection.peer import detach_from_caller
from fairlead.events import Event, McpToolsChanged, OffersChanged, ServerLogged, ToolsQuarantined
from fairlead.gateway.lists import OfferLists
from fairlead.gateway.request_context import RequestContext
from fairlead.host.background import run_off_loop
from fairlead.host.offers.resources import OwnedUri, qualify

if TYPE_CHECKING:
    from fairlead.gateway.client_session import ClientSession

logger = logging.getLogger(__name__)

Kind = Literal["resources", "prompts"]
_Logged = tuple[RequestContext | None, ServerLogged]

LEVELS: Final[dict[str, tuple[int, types.LoggingLevel]]] = {
    "debug": (0, "debug"),
    "info": (1, "info"),
    "notice": (2, "notice"),
    "warning": (3, "warning"),
    "error": (4, "error"),
    "critical": (5, "critical"),
    "alert": (6, "alert"),
    "emergency": (7, "emergency"),
}
MAX_WAITING_LOGS: Final = 1_000
MAX_WATCHED: Final = 1_000
_LOG_TICKS: Final = 8
"""What a server logged just before it answered is a few steps behind its answer: it is waited for so long."""


class Notifier:
    """Sends one client its notifications."""

    def __init__(self, client: "ClientSession") -> None:
        self._client = client
        self.session: ServerSession | None = None
        """How it is told something outside its requests, where it has a session."""
        self._bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self._bus)
        """Serves `subscriptions/listen`."""
        self._watched: dict[str, tuple[anyio.CancelScope, int]] = {}
        self._tools: Catalog | None = None
        self._offers: dict[Kind, OfferLists] = {}
        self._logs: MemoryObjectSendStream[_Logged] | None = None
        """Log messages on their way to the client; opened by `run`, since a client may never come to run."""

    async def run(self) -> None:
        """Pass on what happens, until cancelled."""
        self._logs, waiting = anyio.create_memory_object_stream[_Logged](MAX_WAITING_LOGS)
        with self._logs, waiting:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_logs, waiting)
                async with self._client.host.events(calls=False) as events:
                    async for event in events:
                        await self._on_event(event)

    @property
    def _has_session(self) -> bool:
        return self._client.family == "session"

    # Changes.

    def note_known_tools(self, catalog: Catalog) -> None:
        """Note which tools the client knows: it is told when they are others."""
        self._tools = catalog

    def note_known_offers(self, kind: Kind, offered: OfferLists) -> None:
        """Note which resources or prompts it knows: it is told when they are others."""
        self._offers[kind] = offered

    async def _on_event(self, event: Event) -> None:
        match event:
            case McpToolsChanged() | ToolsQuarantined() if self._client.endpoint.selection.has(
                event.server_id
            ):
                await self._tools_changed()
            case OffersChanged() if self._client.endpoint.selection.has(event.server_id):
                await self._offers_changed(event.kind)
            case ServerLogged() if self._client.has_own(event.server_id):
                self.log(event)
            case _:
                return

    async def compare_tools(self) -> None:
        """Announce that the tools are others, where a new configuration made them so."""
        catalog = self._client.toolset.catalog
        if self._tools is not None and _offers_the_same(self._tools, catalog):
            self._tools = catalog
        else:
            await self._tools_changed()

    async def _tools_changed(self) -> None:
        catalog = self._client.toolset.catalog
        if catalog is self._tools or (self._tools is None and self._has_session):
            return
        # A session knows that they changed until it has asked again; without one, others may listen by then.
        self._tools = None if self._has_session else catalog
        await self._announce(ToolsListChanged())

    async def _offers_changed(self, kind: Kind) -> None:
        now, handed = await self._client.prepare_offers(), self._offers.get(kind)
        if handed is None and self._has_session:
            return
        if handed is not None and await run_off_loop(partial(handed.is_like, now, kind), now.size):
            return
        if self._has_session:
            del self._offers[kind]  # as with tools
        else:
            self._offers[kind] = now
        await self._announce(ResourcesListChanged() if kind == "resources" else PromptsListChanged())

    async def _announce(self, event: ServerEvent) -> None:
        await self._bus.publish(event)
        match event:
            case ToolsListChanged():
                await self.tell(types.ToolListChangedNotification())
            case PromptsListChanged():
                await self.tell(types.PromptListChangedNotification())
            case ResourcesListChanged():
                await self.tell(types.ResourceListChangedNotification())
            case ResourceUpdated():
                params = types.ResourceUpdatedNotificationParams(uri=event.uri)
                await self.tell(types.ResourceUpdatedNotification(params=params))

    async def tell(self, notification: types.ServerNotification) -> None:
        """Tell it something that belongs to no request, if it has a session to hear it in."""
        if self.session is not None and self._has_session:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it is about to end
                await self.session.send_notification(notification)

    # Resources that it watches.

    async def watch(self, uri: str) -> None:
        """Tell it of changes to a resource, until it has been unwatched as often as it was watched."""
        if uri in self._watched:
            scope, count = self._watched[uri]
            self._watched[uri] = (scope, count + 1)
            return
        if len(self._watched) >= MAX_WATCHED:
            raise MCPError(INVALID_PARAMS, f"a client may watch {MAX_WATCHED} resources")
        owned = (await self._client.offered()).require_owner(uri, INVALID_PARAMS)
        scope: anyio.CancelScope = await self._client.tasks.start(self._follow, owned, uri)
        self._watched[uri] = (scope, 1)

    def unwatch(self, uri: str) -> None:
        """Tell it of changes to a resource no more."""
        if uri in self._watched:
            scope, count = self._watched.pop(uri)
            if count > 1:
                self._watched[uri] = (scope, count - 1)
            else:
                scope.cancel()

    async def _follow(
        self, owned: OwnedUri, uri: str, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]
    ) -> None:
        """Tell it of changes that the owner tells of, under the URI that it watches."""
        detach_from_caller()
        with anyio.CancelScope() as scope:
            async with self._client.host.resources.watch(owned.server_id, owned.uri) as changes:
                task_status.started(scope)
                async for changed in changes:
                    public = changed if uri == owned.uri else qualify(owned.server_id, quote_uri(changed))
                    await self._announce(ResourceUpdated(uri=public))

    # What servers log.

    def log(self, event: ServerLogged) -> None:
        """Tell it what a server logged in the course of one of its requests, if it wants to know."""
        context = self._client.requests.find_for_log(event.server_id)
        level = context.log_level if context is not None else self._client.log_level
        if self._logs is not None and level is not None and _rank(event) >= LEVELS[level][0]:
            try:
                self._logs.send_nowait((context, event))
            except anyio.WouldBlock:
                logger.debug("a log message was dropped: the client reads too slowly")

    async def settle_logs(self) -> None:
        """Wait for what servers logged just before they answered."""
        for _ in range(_LOG_TICKS):
            await anyio.lowlevel.checkpoint()

    async def _send_logs(self, waiting: MemoryObjectReceiveStream[_Logged]) -> None:
        async for context, event in waiting:
            params = types.LoggingMessageNotificationParams(
                level=LEVELS.get(event.level, LEVELS["info"])[1],
                data=_data(event),
                # A server names a part of itself here, and never another server or us.
                logger=f"{event.server_id}/{event.logger}" if event.logger else event.server_id,
                _meta=gate.mark_error_data(None, event.server_id if event.untrusted else None),
            )
            await self._tell_during(context, types.LoggingMessageNotification(params=params))

    async def _tell_during(
        self, context: RequestContext | None, notification: types.ServerNotification
    ) -> None:
        """Tell it something in the course of a request, or apart from it where that has its answer."""
        if context is not None and context in self._client.requests:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it has its answer
                await context.tell(notification)
        else:
            await self.tell(notification)

    # Pages.

    def page_completed(self, context: RequestContext, elicitation_id: str) -> None:
        """Tell it that all is done on a page it was given, where its protocol has words for that."""
        if self._has_session and not self._client.ended.is_set():
            params = types.ElicitCompleteNotificationParams(elicitation_id=elicitation_id)
            notification = types.ElicitCompleteNotification(params=params)
            self._client.tasks.start_soon(self._tell_during, context, notification)


def _data(event: ServerLogged) -> object:
    """What was logged, as it was. A null is told in words: the SDK would leave it out, and must not."""
    data: object = None if event.json is None else msgspec.json.decode(event.json)
    return event.message if data is None else data


def _rank(event: ServerLogged) -> int:
    return LEVELS.get(event.level, LEVELS["info"])[0]


def _offers_the_same(before: Catalog, now: Catalog) -> bool:
    return len(before) == len(now) and all(
        old.name == new.name and old.entry.definition == new.entry.definition
        for old, new in zip(before.tools, now.tools, strict=True)
    )
