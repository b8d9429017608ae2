"""One worker of a gateway, as its own process knows it: where connections come from, who the others are."""

import itertools
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import anyio
from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from fairlead.errors import FairleadError, ListenFailed
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.carried_errors import encode_error
from fairlead.gateway.cluster.cluster import ReplicaPlace
from fairlead.gateway.cluster.replica_keys import ReplicaKeys
from fairlead.gateway.worker_ids import home_of, owner_of, prefix_of
from fairlead.gateway.workers.handover import ADOPTED, ENDED, LEAVING, HandoverReceiver
from fairlead.gateway.workers.messages import (
    AskPeers,
    BeginWork,
    LivingWorkers,
    MessageChannel,
    PeerAnswer,
    PeerAnswers,
    PeerQuestion,
    ToWorker,
    WorkerFailed,
    WorkerReady,
    channel_of_worker,
)
from fairlead.gateway.workers.passing import (
    PassingOutcome,
    pass_connection,
    socket_of,
    taking_connections,
)
from fairlead.net.listen import ConnectionServer, detach_connection, was_passed
from fairlead.store.cluster_key import ClusterKeys

BEGIN_SECONDS: Final = 30.0
LEAVE_SECONDS: Final = 5.0
"""How long a worker that wants to leave takes the connections which are on their way to it."""
ANSWER_SECONDS: Final = 10.0
"""How long a worker waits for what the others answer."""

_SESSION_HEADER: Final = b"mcp-session-id"
_MESSAGES: Final = "messages"
_SEPARATE: Final = RequestRefused.saying(
    503,
    "this request belongs to another process of the gateway: send it again once no other request is pending",
    {"Connection": "close", "Retry-After": "0"},
)

logger = logging.getLogger(__name__)

PeerHandler = Callable[[str], Awaitable[str]]
"""Answers a question of another worker."""


class PoolMember:
    """This worker. Open it with `join_pool`."""

    def __init__(
        self,
        begin: BeginWork,
        channel: MessageChannel[ToWorker],
        receiver: HandoverReceiver,
        tasks: TaskGroup,
    ) -> None:
        self.number = begin.number
        self.key = begin.key
        """The key of this run, which all workers have and the store has not."""
        self.id_prefix = prefix_of(begin.number)
        """What the ids that it gives out begin with."""
        self.ended = anyio.Event()
        """Set when no more connections will come: the supervisor wants this process to end, or has died."""
        self._folder = begin.folder
        self._proof = ClusterKeys([begin.key]).derive("passing of connections")[0]
        self._channel = channel
        self._receiver = receiver
        self._tasks = tasks
        self._living: frozenset[int] = frozenset((begin.number,))
        self._handlers: dict[str, PeerHandler] = {}
        self._questions: dict[int, _OpenQuestion] = {}
        self._question_ids = itertools.count(1)
        self._server: ConnectionServer | None = None

    @property
    def place(self) -> ReplicaPlace:
        """The address where other workers send the calls of servers that run here."""
        keys = ReplicaKeys.of_cluster(ClusterKeys([self.key]))
        return ReplicaPlace(address=self._at(self.number), keys=keys)

    @property
    def peer_socket(self) -> Path:
        """The socket at that address."""
        return Path(self._folder) / f"{self.number}.calls"

    def _at(self, number: int) -> str:
        """The address of a worker for calls of the others."""
        return f"unix:{Path(self._folder) / f'{number}.calls'}"

    def new_id(self) -> str:
        """Make a random id that names this worker as its origin."""
        return f"{self.id_prefix}{secrets.token_hex(16)}"

    # Its life.

    @asynccontextmanager
    async def serving(self, server: ConnectionServer) -> AsyncGenerator[None]:
        """Take connections, of the supervisor and of other workers, for the length of the block."""
        self._server = server
        path = socket_of(self._folder, self.number)
        async with taking_connections(path, self._proof, self._adopt), anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive)
            await self._channel.send(WorkerReady())
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def leave(self) -> None:
        """Have the supervisor give no more connections, and take those that are on their way."""
        self._receiver.tell(LEAVING)
        with anyio.move_on_after(LEAVE_SECONDS):
            await self.ended.wait()

    async def fail(self, error: FairleadError) -> None:
        """Tell the supervisor why this process ends."""
        await self._channel.send(WorkerFailed(encode_error(error)))

    async def _receive(self) -> None:
        await self._receiver.run(self._take)
        self.ended.set()

    async def _take(self, connection: socket.socket) -> None:
        assert self._server is not None, "connections come when there is a server"
        await self._server.serve(connection, on_end=self._note_end)

    async def _adopt(self, connection: socket.socket, received: bytes) -> None:
        assert self._server is not None, "connections come when there is a server"
        self._receiver.tell(ADOPTED)
        await self._server.serve(connection, received, on_end=self._note_end)

    def _note_end(self) -> None:
        self._receiver.tell(ENDED)

    # Other workers.

    def answer(self, about: str, handler: PeerHandler) -> None:
        """Register the handler of other workers' questions about a subject."""
        self._handlers[about] = handler

    async def ask_peers(self, about: str, payload: str = "") -> list[str]:
        """Ask all other workers something. Returns the answers of those that did answer in time."""
        if len(self._living) <= 1:
            return []
        number = next(self._question_ids)
        question = self._questions[number] = _OpenQuestion()
        try:
            await self._channel.send(AskPeers(id=number, about=about, payload=payload))
            with anyio.move_on_after(ANSWER_SECONDS):
                await question.answered.wait()
        finally:
            del self._questions[number]
        return question.answers

    async def follow(self) -> None:
        """Follow what the supervisor says, until it ends or is gone."""
        while (message := await self._channel.receive()) is not None:
            match message:
                case LivingWorkers():
                    self._living = frozenset(message.numbers)
                case PeerQuestion():
                    self._tasks.start_soon(self._answer, message)
                case PeerAnswers():
                    if (question := self._questions.get(message.id)) is not None:
                        question.answers = message.answers
                        question.answered.set()
                case BeginWork():
                    pass
        self.ended.set()

    async def _answer(self, question: PeerQuestion) -> None:
        handler = self._handlers.get(question.about)
        try:
            answer = await handler(question.payload) if handler is not None else ""
        except Exception:
            logger.exception("a question of another worker failed", extra={"about": question.about})
            answer = ""
        await self._channel.send(PeerAnswer(id=question.id, payload=answer))

    # Requests that belong to another worker.

    def home(self, name: str) -> int | None:
        """The worker that something with this name belongs to, if that is another one."""
        number = home_of(name.encode("utf-8", "surrogatepass"), self._living)
        return number if number not in (None, self.number) else None

    def other_owner(self, text: str) -> int | None:
        """The living worker that gave out an id, if that is another one."""
        number = owner_of(text)
        return number if number != self.number and number in self._living else None

    def at_address(self, address: str) -> int | None:
        """The living worker whose servers others call at an address, if that is another one."""
        return next(
            (each for each in self._living if each != self.number and address == self._at(each)), None
        )

    async def pass_on(self, number: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the connection of a request to another worker, which answers it. Nothing was sent yet."""
        if not await self.try_pass_on(number, scope, receive):
            await _SEPARATE(scope, receive, send)

    async def try_pass_on(self, number: int, scope: Scope, receive: Receive) -> bool:
        """Do the same where that can be done now. Returns whether it was."""
        connection = detach_connection(scope)
        if connection is None:
            return False
        outcome: PassingOutcome = "unknown"
        try:
            with anyio.CancelScope(shield=True):
                outcome = await pass_connection(socket_of(self._folder, number), self._proof, connection)
                if outcome == "gone":
                    # What it had is gone with it: here the request gets the answer that says so.
                    self._living -= {number}
                if outcome in ("gone", "refused"):
                    await self._adopt(connection.socket, connection.received)
        finally:
            if outcome in ("taken", "unknown"):
                connection.close()
        # The transport here was given up: the application is done with it once that is noticed.
        while (await receive())["type"] != "http.disconnect":
            pass
        return True


class _OpenQuestion:
    """A question to all other workers."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.answered = anyio.Event()


class OwnerRouter:
    """ASGI middleware: passes requests on whose address or session names another worker.

    Sessions of clients name theirs in the header, event streams, dashboard sessions and login links in the
    path. A request whose owner is gone is answered here. Nothing is checked before it is passed on: its owner
    does that.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], member: PoolMember) -> None:
        self._app = app
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "http":
            number = None if was_passed(scope) else self._owner(scope)
            if number is not None:
                await self._member.pass_on(number, scope, receive, send)
                return
            _drop_name(scope)
        await self._app(scope, receive, send)

    def _owner(self, scope: Scope) -> int | None:
        for name, value in scope["headers"]:
            if name == _SESSION_HEADER:
                return self._member.other_owner(value.decode("latin-1"))
        named = _id_in(scope["path"])
        return self._member.other_owner(named) if named else None


def _id_in(path: str) -> str:
    """The id in a path that says whose it is: `/~ID/…`, `/messages~ID/…` or `/connect/ID`."""
    first, _, rest = path.lstrip("/").partition("/")
    kind, mark, name = first.partition("~")
    if mark and kind in ("", _MESSAGES):
        return unquote(name)
    return rest.partition("/")[0] if first == "connect" else ""


def _drop_name(scope: Scope) -> None:
    """Take the name out of `/messages~ID/…`: from here on the path is what it is without workers."""
    path: str = scope["path"]
    if path.startswith(f"/{_MESSAGES}~"):
        _, slash, rest = path[1:].partition("/")
        scope["path"] = f"/{_MESSAGES}{slash}{rest}"
        scope["raw_path"] = scope["path"].encode("utf-8", "surrogateescape")


@asynccontextmanager
async def join_pool(descriptors: tuple[int, int]) -> AsyncGenerator[PoolMember]:
    """Be a worker for the length of the block.

    Args:
        descriptors: The ends of two socket pairs: for connections, and for messages.

    Raises:
        ListenFailed: The supervisor is gone.
    """
    connections, messages = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    receiver = HandoverReceiver(connections)
    channel = await channel_of_worker(messages)
    failure: BaseException | None = None
    try:
        begin: ToWorker | None = None
        with anyio.move_on_after(BEGIN_SECONDS):
            begin = await channel.receive()
        if not isinstance(begin, BeginWork):
            raise ListenFailed("the gateway that started this worker is gone")
        async with anyio.create_task_group() as tasks:
            member = PoolMember(begin, channel, receiver, tasks)
            tasks.start_soon(member.follow)
            try:
                yield member
            except BaseException as exc:  # noqa: BLE001 - kept out of the task group, which would wrap it
                failure = exc
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        receiver.close()
        with anyio.CancelScope(shield=True):
            await channel.close()
