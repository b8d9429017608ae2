"""A server process of this replica, as other replicas use it: each request of theirs is one exchange.

A stateless server knows no clients, and gets their requests as they are. One with a session has it with
this replica: its answer to `initialize` is every other replica's, too, and the exchange that returned it
stays open for what the server announces. Nothing that such a server asks its client is passed on: with
several clients it is unknown whose call it belongs to, as in one process.
"""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from starlette.types import Receive, Scope, Send

from fairlead.config.untyped import as_object
from fairlead.connection.outcomes import NotSent, RequestFailed, RequestRejected
from fairlead.connection.process.child import ProcessLease
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER
from fairlead.gateway.cluster.peer_transport import NOTICE_HEADER

NOT_OWNER: Final = RequestRefused.saying(
    503, "this replica does not run the server", {REFUSAL_HEADER.decode(): "not-sent"}
)
_MAX_WAITING: Final = 1000
_MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Notifications of one exchange that wait to be sent, in number and in bytes."""
_UNSUBSCRIBE_SECONDS: Final = 5.0
_OF_ONE_REQUEST: Final = frozenset({"notifications/progress", "notifications/cancelled"})
_LOG: Final = "notifications/message"
_LISTEN: Final = "subscriptions/listen"
_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

logger = logging.getLogger(__name__)


class PeerMessage(msgspec.Struct):
    """A request of another replica."""

    id: int | str
    method: str
    params: dict[str, msgspec.Raw] = {}


decode_message = msgspec.json.Decoder(PeerMessage).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class PeerExchange:
    """One request of another replica on its way through the process."""

    def __init__(self, request: PeerMessage, send: Send) -> None:
        self.request = request
        self.own_id: str | None = None
        """The id that a subscription has at the process."""
        self.is_session = False
        """Whether it is the session of another replica with a server that has sessions."""
        self.uris: set[str] = set()
        """The resources that are subscribed to in that session."""
        self.says_memory_lost = False
        """Whether its answer is the one to say that the server's memory was lost."""
        self._send = send
        self._begun = self._ended = False
        self._writing = anyio.Lock()
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._news = anyio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether the head of the answer was sent."""
        return self._begun

    @property
    def is_stream(self) -> bool:
        """Whether it stays open for what the server announces."""
        return self.is_session or self.request.method == _LISTEN

    def put(self, message: dict[str, Any]) -> None:
        """Add a message that comes before the answer; the oldest are dropped for a reader that is slow."""
        line = msgspec.json.encode(message) + b"\n"
        self._lines.append(line)
        self._bytes += len(line)
        while len(self._lines) > _MAX_WAITING or (self._bytes > _MAX_WAITING_BYTES and len(self._lines) > 1):
            self._bytes -= len(self._lines.popleft())
        self._news.set()

    async def pass_on(self) -> None:
        """Send what was put, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self._write()

    async def end(self, answer: dict[str, Any] | None) -> None:
        """Send the answer after all else; without one, the other replica does not know what became of it."""
        await self._write(b"" if answer is None else msgspec.json.encode(answer) + b"\n")

    async def _write(self, last: bytes | None = None) -> None:
        async with self._writing:  # what is put first is sent first, whichever task sends it
            if self._ended or (last is None and not self._lines):
                return
            self._ended = last is not None
            data = b"".join(self._lines)
            self._lines.clear()
            self._bytes = 0
            if not self._begun:
                self._begun = True
                headers = [(b"content-type", b"application/x-ndjson")]
                if self.says_memory_lost:
                    headers.append((NOTICE_HEADER, b"memory-lost"))
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            message = {"type": "http.response.body", "body": data + (last or b""), "more_body": last is None}
            await self._send(message)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress on under the progress token of the replica that sent the request."""
        params = {"progressToken": self.token, "progress": progress, "total": total, "message": message}
        said = {name: value for name, value in params.items() if value is not None}
        self.put({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})

    @property
    def token(self) -> int | str | None:
        """The progress token in the request."""
        meta = self.request.params.get("_meta")
        return _decode_object(meta).get("progressToken") if meta else None

    async def refuse(self, scope: Scope, receive: Receive) -> bool:
        """Refuse the request, unless an answer has begun."""
        if self._begun:
            return False
        await NOT_OWNER(scope, receive, self._send)
        return True


@dataclass(eq=False, kw_only=True, slots=True)
class OwnedServer:
    """A server process of this replica, and the exchanges of others with it."""

    server_id: str
    dispatcher: WireDispatcher
    lease: ProcessLease
    max_seconds: float
    """How long a request may take, as its entry says."""
    is_leaving: bool = False
    """Whether another replica is to run it: what is under way finishes, and nothing new is taken."""
    exchanges: dict[str, list[PeerExchange]] = field(default_factory=dict[str, list[PeerExchange]])
    """By the replica that began them."""

    @property
    def is_usable(self) -> bool:
        """Whether other replicas may send it requests."""
        return self.dispatcher.ending is None and not self.lease.has_ended and not self.is_leaving

    @property
    def calls(self) -> int:
        """Number of requests of other replicas under way, without streams."""
        return len(self._list_requests())

    def hand_over(self) -> None:
        """Take nothing new, and end the process when what is under way is answered."""
        self.is_leaving = True
        self.dispatcher.retire()

    def _list_requests(self) -> list[PeerExchange]:
        every = (exchange for exchanges in self.exchanges.values() for exchange in exchanges)
        return [exchange for exchange in every if not exchange.is_stream]

    def listen(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on, to those of the other replicas that it is for."""
        if method in _OF_ONE_REQUEST or not any(self.exchanges.values()):
            return
        meta = as_object(params.get("_meta"))  # which a server may write as anything else
        subscription = meta.get(_SUBSCRIPTION_ID)
        for exchange in self._receivers(method, subscription):
            passed = params
            if subscription is not None:
                passed = {**params, "_meta": {**meta, _SUBSCRIPTION_ID: exchange.request.id}}
            exchange.put({"jsonrpc": "2.0", "method": method, "params": passed})

    def _receivers(self, method: str, subscription: object) -> list[PeerExchange]:
        if method == _LOG:
            # With several requests it is unknown whose it is, and a log may quote one principal's data.
            asking = self._list_requests()
            return asking if len(asking) == self.dispatcher.requests_under_way == 1 else []
        every = [*self.exchanges.values()]
        if subscription is not None:
            return [each for exchanges in every for each in exchanges if each.own_id == subscription]
        if self.dispatcher.handshake is not None:
            return [each for exchanges in every for each in exchanges if each.is_session]
        return [each for exchanges in every for each in exchanges[:1]]  # once to each replica

    # Requests of other replicas.

    async def relay(self, sender: str, exchange: PeerExchange, scope: Scope, receive: Receive) -> None:
        """Have the process answer a request, and pass its answer on."""
        mine = self.exchanges.setdefault(sender, [])
        mine.append(exchange)
        self.dispatcher.guests.calls += not exchange.is_stream
        try:
            if not await self._introduce(exchange, scope, receive):
                await self._call(sender, exchange, scope, receive)
        finally:
            mine.remove(exchange)
            if not mine:
                self.exchanges.pop(sender, None)
            if exchange.is_session:
                self.dispatcher.guests.sessions -= 1
                await self._unsubscribe(exchange)
            self.dispatcher.guests.calls -= not exchange.is_stream
            self.dispatcher.guests.on_left()

    async def _introduce(self, exchange: PeerExchange, scope: Scope, receive: Receive) -> bool:
        """Answer what begins a conversation, where this replica has begun it for all."""
        method = exchange.request.method
        if method not in ("initialize", "server/discover"):
            return False
        dispatcher = self.dispatcher
        await dispatcher.negotiated.wait()
        if dispatcher.ending is not None:
            if not await exchange.refuse(scope, receive):
                await exchange.end(None)
            return True
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": exchange.request.id}
        if method == "initialize" and dispatcher.handshake is not None:
            exchange.is_session = True
            dispatcher.guests.calls -= 1
            dispatcher.guests.sessions += 1
            exchange.put(answer | {"result": dispatcher.handshake})
            await dispatcher.wait_closed()
            await exchange.end(None)
            return True
        if method == "initialize":
            error = {"code": UNSUPPORTED_PROTOCOL_VERSION, "message": "it has no sessions"}
        elif dispatcher.handshake is not None:
            error = {"code": METHOD_NOT_FOUND, "message": "it has sessions"}
        else:
            return False
        await exchange.end(answer | {"error": error})
        return True

    async def _call(self, sender: str, exchange: PeerExchange, scope: Scope, receive: Receive) -> None:
        request = exchange.request
        params: dict[str, Any] = dict(request.params)
        options: CallOptions = {}
        if exchange.token is not None:
            # The process gets a progress token of ours: those of other replicas may be the same.
            params["_meta"] = _decode_object(params["_meta"])
            options["on_progress"] = exchange.report
        if request.method == _LISTEN:
            exchange.own_id = options["request_id"] = f"{id(exchange):x}-{request.id}"
        else:
            options["timeout"] = self.max_seconds
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        try:
            if self._is_subscribed_by_others(sender, request):
                answer["result"] = {}
            else:
                answer["result"] = await self.dispatcher.call_raw(request.method, params, options)
                if request.method == "tools/call" and not exchange.has_begun:
                    # Of all calls, over all replicas, the first one says it.
                    exchange.says_memory_lost = self.dispatcher.take_notice() is not None
        except RequestRejected as exc:
            answer["error"] = exc.error.model_dump(exclude_none=True)
        except (RequestFailed, NotSent) as exc:
            if exc.delivery == "not_sent" and await exchange.refuse(scope, receive):
                return
            logger.info("a request of a replica was not answered", extra={"reason": str(exc)})
            await exchange.end(None)
            return
        except MCPError as exc:
            answer["error"] = exc.error.model_dump(exclude_none=True)
        await exchange.end(answer)

    # Subscriptions at a server with sessions: one for all replicas.

    def _is_subscribed_by_others(self, sender: str, request: PeerMessage) -> bool:
        """Count a subscription, or its end. True for an end that the server must not be told."""
        if request.method not in ("resources/subscribe", "resources/unsubscribe"):
            return False
        session = next((each for each in self.exchanges.get(sender, ()) if each.is_session), None)
        uri = msgspec.json.decode(request.params["uri"]) if "uri" in request.params else None
        if session is None or not isinstance(uri, str):
            return False
        watched = self.dispatcher.guests.watched
        if request.method == "resources/subscribe":
            watched[uri] += uri not in session.uris
            session.uris.add(uri)
            return False
        watched[uri] -= uri in session.uris
        session.uris.discard(uri)
        return watched[uri] > 0

    async def _unsubscribe(self, session: PeerExchange) -> None:
        """End the subscriptions of a replica that is gone."""
        watched = self.dispatcher.guests.watched
        watched.subtract(session.uris)
        unwatched = [uri for uri in sorted(session.uris) if not watched[uri]]
        # A server that hangs is waited for once, however many there are.
        with anyio.move_on_after(_UNSUBSCRIBE_SECONDS, shield=True):
            for uri in unwatched:
                if self.dispatcher.ending is not None:
                    return
                try:
                    await self.dispatcher.call_raw("resources/unsubscribe", {"uri": uri})
                except MCPError as exc:
                    logger.info("a subscription was not ended", extra={"reason": str(exc)})
