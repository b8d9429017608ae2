"""Notifications to one client: list changes, resource updates, log messages, finished URL elicitations."""

import logging
from contextlib import suppress
from functools import partial
from typing import Final, Literal, Protocol

import anyio
import anyio.abc
import mcp_types as types
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
from fairlead.catalog.sanitize.slices import decode_finite
from fairlead.connection.peer import detach_from_caller
from fairlead.events import Event, McpToolsChanged, OffersChanged, ServerLogged, ToolsQuarantined
from fairlead.gateway.lists import OfferLists
from fairlead.gateway.open_requests import OpenRequests
from fairlead.gateway.request_context import ProtocolFamily, RequestContext
from fairlead.host.background import run_off_loop
from fairlead.host.host import Host
from fairlead.host.model.bundles import Selection
from fairlead.host.model.toolset import Toolset
from fairlead.host.offers.resources import OwnedUri, qualify

logger = logging.getLogger(__name__)

OfferListName = Literal["resources", "prompts"]
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


class NotifiedClient(Protocol):
    """A client session, as its notifier knows it."""

    @property
    def host(self) -> Host:
        """Its client host."""
        ...

    @property
    def family(self) -> ProtocolFamily:
        """Whether its protocol version has sessions."""
        ...

    @property
    def selection(self) -> Selection:
        """The selection of servers and tools for it."""
        ...

    @property
    def toolset(self) -> Toolset:
        """The tools that it is offered."""
        ...

    @property
    def requests(self) -> OpenRequests:
        """Its requests that are being handled."""
        ...

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """From which level on it gets log messages outside its requests; None for none."""
        ...

    @property
    def tasks(self) -> anyio.abc.TaskGroup:
        """The task group of its session."""
        ...

    @property
    def ended(self) -> anyio.Event:
        """Set when its session is over."""
        ...

    def has_own(self, server_id: str) -> bool:
        """Return whether it has a connection of its own to a server."""
        ...

    async def fetch_offers(self) -> OfferLists:
        """Return the resources and prompts it is offered."""
        ...

    async def prepare_offers(self) -> OfferLists:
        """Return what is known now of that, ready to be compared."""
        ...


class Notifier:
    """Sends one client its notifications."""

    def __init__(self, client: NotifiedClient) -> None:
        self._client = client
        self.session: ServerSession | None = None
        """The SDK's session, for notifications outside its requests; None without a session."""
        self._bus = InMemorySubscriptionBus()
        self.listening = ListenHandler(self._bus)
        """Serves `subscriptions/listen`."""
        self._beginning: dict[str, anyio.Event] = {}
        """Resources that are being subscribed to."""
        self._watched: dict[str, tuple[anyio.CancelScope, int]] = {}
        self._tools: Catalog | None = None
        self._offers: dict[OfferListName, OfferLists] = {}
        self._logs: MemoryObjectSendStream[_Logged] | None = None
        """Log messages on their way to the client; opened by `run`, since a client may never come to run."""

    async def run(self) -> None:
        """Send notifications, until cancelled."""
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
        """Note which tools the client knows: it is notified when they change."""
        self._tools = catalog

    def note_known_offers(self, kind: OfferListName, offered: OfferLists) -> None:
        """Note which resources or prompts it knows: it is notified when they change."""
        self._offers[kind] = offered

    async def _on_event(self, event: Event) -> None:
        match event:
            case McpToolsChanged() | ToolsQuarantined() if self._client.selection.has(event.server_id):
                await self._announce_tools()
            case OffersChanged() if self._client.selection.has(event.server_id):
                await self._announce_offers(event.kind)
            case ServerLogged() if self._client.has_own(event.server_id):
                self.log(event)
            case _:
                return

    async def compare_tools(self) -> None:
        """Announce that the tools changed, where a new configuration changed them."""
        catalog = self._client.toolset.catalog
        if self._tools is not None and _offers_the_same(self._tools, catalog):
            self._tools = catalog
        else:
            await self._announce_tools()

    async def _announce_tools(self) -> None:
        catalog = self._client.toolset.catalog
        if catalog is self._tools or (self._tools is None and self._has_session):
            return
        # A session is notified once until it lists again; without one, others may listen by then.
        self._tools = None if self._has_session else catalog
        await self._announce(ToolsListChanged())

    async def _announce_offers(self, kind: OfferListName) -> None:
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
        """Send a notification that belongs to no request, if it has a session."""
        if self.session is not None and self._has_session:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it is about to end
                await self.session.send_notification(notification)

    # Resource subscriptions.

    async def watch(self, uri: str) -> None:
        """Subscribe it to a resource, until it was unsubscribed as often."""
        while uri in self._beginning:
            await self._beginning[uri].wait()  # it may fail there, and be begun here
        if uri in self._watched:
            scope, count = self._watched[uri]
            self._watched[uri] = (scope, count + 1)
            return
        if len(self._watched) + len(self._beginning) >= MAX_WATCHED:
            raise MCPError(INVALID_PARAMS, f"a client may subscribe to at most {MAX_WATCHED} resources")
        begun = self._beginning[uri] = anyio.Event()
        try:
            owned = (await self._client.fetch_offers()).require_owner(uri, INVALID_PARAMS)
            scope: anyio.CancelScope = await self._client.tasks.start(self._follow, owned, uri)
            self._watched[uri] = (scope, 1)
        finally:
            del self._beginning[uri]
            begun.set()

    def unwatch(self, uri: str) -> None:
        """Unsubscribe it from a resource."""
        if uri in self._watched:
            scope, count = self._watched.pop(uri)
            if count > 1:
                self._watched[uri] = (scope, count - 1)
            else:
                scope.cancel()

    async def _follow(
        self, owned: OwnedUri, uri: str, *, task_status: anyio.abc.TaskStatus[anyio.CancelScope]
    ) -> None:
        """Announce the owner's updates of a resource, under the URI that the client uses."""
        detach_from_caller()
        with anyio.CancelScope() as scope:
            async with self._client.host.resources.watch(owned.server_id, owned.uri) as changes:
                task_status.started(scope)
                async for changed in changes:
                    public = changed if uri == owned.uri else qualify(owned.server_id, quote_uri(changed))
                    await self._announce(ResourceUpdated(uri=public))

    # Log messages.

    def log(self, event: ServerLogged) -> None:
        """Send it a log message in the course of one of its requests, if its level includes it."""
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
        """Send a notification in the course of a request, or outside of it once that is answered."""
        if context is not None and context in self._client.requests:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # it has its answer
                await context.tell(notification)
        else:
            await self.tell(notification)

    # URL elicitations.

    def announce_completed_page(self, context: RequestContext, elicitation_id: str) -> None:
        """Announce that a URL elicitation is complete, where its protocol version has that notification."""
        if self._has_session and not self._client.ended.is_set():
            params = types.ElicitCompleteNotificationParams(elicitation_id=elicitation_id)
            notification = types.ElicitCompleteNotification(params=params)
            self._client.tasks.start_soon(self._tell_during, context, notification)


def _data(event: ServerLogged) -> object:
    """Return the logged value. For null the message is used, since the SDK would leave it out."""
    data: object = None if event.json is None else decode_finite(event.json)
    return event.message if data is None else data


def _rank(event: ServerLogged) -> int:
    return LEVELS.get(event.level, LEVELS["info"])[0]


def _offers_the_same(before: Catalog, now: Catalog) -> bool:
    return len(before) == len(now) and all(
        old.name == new.name and old.entry.definition == new.entry.definition
        for old, new in zip(before.tools, now.tools, strict=True)
    )
