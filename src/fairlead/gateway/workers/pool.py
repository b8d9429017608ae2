"""The supervisor of a gateway with several workers: owns the port and the processes.

It accepts connections and hands each to the worker with the fewest, restarts workers that end, and ends them
all with itself. It reads no byte of a connection.
"""

import errno
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process, TaskGroup

from fairlead.errors import FairleadError, ListenFailed
from fairlead.gateway.carried_errors import decode_error
from fairlead.gateway.workers.handover import HandoverSender
from fairlead.gateway.workers.messages import (
    DRAIN,
    AskPeers,
    BeginWork,
    FromWorker,
    LivingWorkers,
    MessageChannel,
    PeerAnswer,
    PeerAnswers,
    PeerQuestion,
    WorkerFailed,
    WorkerReady,
    channel_to_worker,
)

START_SECONDS: Final = 120.0
"""How long a worker may take until it serves."""
STOP_SECONDS: Final = 25.0
"""How long workers may take to end before they are killed: more than they give to requests and servers."""
ANSWER_SECONDS: Final = 8.0
"""How long a worker may take to answer a question of another."""
STEADY_SECONDS: Final = 30.0
"""A worker that served for so long is restarted at once when it ends."""
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 15.0
MAX_FAILED_STARTS: Final = 8
"""When no worker is left and each failed so often in a row, the gateway ends."""
_ACCEPT_AT_ONCE: Final = 64
_MAX_PARENT_BYTES: Final = 70
_LOOK_SECONDS: Final = 0.25
"""How often the supervisor looks whether a worker that was slow takes connections again."""
_PAUSE_ERRORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

logger = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True, slots=True)
class WorkerProcess:
    """A worker, as its supervisor knows it."""

    number: int
    process: Process
    sender: HandoverSender
    channel: MessageChannel[FromWorker]
    handed_at: int = 0
    """When it was last given a connection, counted in connections."""
    is_ready: bool = False
    failure: FairleadError | None = None


@dataclass(eq=False, slots=True)
class _Slot:
    """The place of one worker, in which one process follows another."""

    number: int
    worker: WorkerProcess | None = None
    failed_starts: int = 0
    failure: FairleadError | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when its first process serves, or has ended."""


@dataclass(eq=False, slots=True)
class _RelayedQuestion:
    """A question of one worker to the others."""

    waiting: set[int]
    answers: list[str] = field(default_factory=list[str])
    done: anyio.Event = field(default_factory=anyio.Event)

    def take(self, number: int, answer: str | None) -> None:
        """Take the answer of a worker, or None where it is gone."""
        if number in self.waiting:
            self.waiting.discard(number)
            if answer is not None:
                self.answers.append(answer)
        if not self.waiting:
            self.done.set()


class WorkerPool:
    """The workers of one gateway. Open it with `open_pool`."""

    def __init__(self, size: int, words: Sequence[str], key: str, folder: Path, tasks: TaskGroup) -> None:
        self.size = size
        self.tasks = tasks
        self.is_started = False
        self.failed: FairleadError | None = None
        """Why the pool ends, where that is not wanted: all workers failed too often."""
        self.ended = anyio.Event()
        """Set when the pool is to end."""
        self.on_question: Callable[[str], Awaitable[None]] | None = None
        """Called with a worker's question to the others, before it is sent to them."""
        self._words = tuple(words)
        self._key = key
        self._folder = folder
        self._slots = [_Slot(number) for number in range(1, size + 1)]
        self._unplaced: deque[socket.socket] = deque()
        self._changed = anyio.Event()
        self._is_draining = False
        self._stopping = anyio.Event()
        self._accepting = anyio.CancelScope()
        self._handed = 0
        self._questions: dict[int, _RelayedQuestion] = {}
        self._asked = 0

    # Life of the pool.

    async def start(self) -> None:
        """Start all workers, and wait until they serve.

        Raises:
            FairleadError: None of them does, for this reason.
        """
        for slot in self._slots:
            self.tasks.start_soon(self._keep, slot)
        with anyio.move_on_after(START_SECONDS):
            for slot in self._slots:
                await slot.settled.wait()
        if not self._ready():
            failure = next((slot.failure for slot in self._slots if slot.failure is not None), None)
            raise failure or ListenFailed(f"no worker served within {START_SECONDS:g} s")
        self.is_started = True

    def accept(self, listener: socket.socket) -> None:
        """Begin to accept connections. The listener is closed when no more are accepted."""
        listener.setblocking(False)
        self.tasks.start_soon(self._accept, listener)

    async def drain(self, seconds: float) -> None:
        """Have the workers say that they are about to stop, and serve on for so long, unless it is killed."""
        self._is_draining = True
        for worker in self._ready():
            await self._tell_drain(worker)
        with anyio.move_on_after(seconds):
            await self._stopping.wait()

    async def stop(self) -> None:
        """Accept no more, let workers finish, and wait for them; those that take too long are killed."""
        self._stopping.set()
        self._accepting.cancel()
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.sender.finish()
        with anyio.move_on_after(STOP_SECONDS):
            while any(slot.worker is not None for slot in self._slots):
                await self._wait_for_change()
        self.kill()

    def kill(self) -> None:
        """End all workers at once."""
        self._stopping.set()
        for slot in self._slots:
            if slot.worker is not None:
                with suppress(ProcessLookupError):
                    slot.worker.process.kill()
        while self._unplaced:
            self._unplaced.popleft().close()

    def processes(self) -> dict[int, int]:
        """The process ids of the workers that serve, by their numbers."""
        return {worker.number: worker.process.pid for worker in self._ready()}

    # Life of a worker.

    async def _keep(self, slot: _Slot) -> None:
        """Keep one worker running, with pauses that grow while it fails."""
        while not self._stopping.is_set():
            began = anyio.current_time()
            served = await self._run_worker(slot)
            slot.settled.set()
            if self._stopping.is_set():
                return
            slot.failed_starts = 0 if served else slot.failed_starts + 1
            self._give_up_if_all_failed()
            is_steady = served and anyio.current_time() - began > STEADY_SECONDS
            tries = 0 if is_steady else max(1, slot.failed_starts)
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (tries - 1), LONGEST_PAUSE_SECONDS) if tries else 0.0
            logger.warning(
                "a worker ended and is started again", extra={"worker": slot.number, "in_seconds": pause}
            )
            with anyio.move_on_after(pause * random.uniform(0.8, 1.2)):  # noqa: S311 - not all at once
                await self._stopping.wait()

    async def _run_worker(self, slot: _Slot) -> bool:
        """Run a process in a slot until it ends. Returns whether it served."""
        ends: list[socket.socket] = []
        process: Process | None = None
        try:
            ends += socket.socketpair()
            ends += socket.socketpair()
            connections, its_connections, messages, its_messages = ends
            descriptors = its_connections.fileno(), its_messages.fileno()
            words = [*self._words, "--worker", f"{descriptors[0]},{descriptors[1]}"]
            with anyio.CancelScope(shield=True):  # a process that was started must get its owner
                process = await anyio.open_process(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None,
                    pass_fds=descriptors,
                    # Ctrl-C is for the supervisor, which lets the workers finish.
                    start_new_session=True,
                )
        except OSError as exc:
            for end in ends[::2]:
                end.close()
            slot.failure = ListenFailed(f"cannot start a worker: {exc.strerror or exc}")
            return False
        finally:
            for end in ends[1::2]:
                end.close()
        assert process is not None, "the block above is left with one, or not at all"
        channel = await channel_to_worker(messages)
        sender = HandoverSender(connections, self._note_change)
        worker = WorkerProcess(number=slot.number, process=process, sender=sender, channel=channel)
        slot.worker = worker
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sender.follow)
                tasks.start_soon(self._follow, slot, worker)
                await channel.send(BeginWork(number=slot.number, key=self._key, folder=str(self._folder)))
                if self._stopping.is_set():  # the stop was requested while this one was being started
                    sender.finish()
                await process.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._bury(slot, worker)
        return worker.is_ready

    async def _bury(self, slot: _Slot, worker: WorkerProcess) -> None:
        """Take leave of a process: it is dead after this, and what it had not taken goes to others."""
        slot.worker = None
        slot.failure = worker.failure
        self._unplaced.extend(worker.sender.close())
        if worker.process.returncode is None:
            with suppress(ProcessLookupError):
                worker.process.kill()
            await worker.process.wait()
        if worker.failure is None and worker.process.returncode:
            status = worker.process.returncode
            slot.failure = ListenFailed(
                f"a worker ended with status {status}", hint="its last lines in the log may say why"
            )
        await worker.channel.close()
        for question in self._questions.values():
            question.take(worker.number, None)
        if not self._stopping.is_set():
            await self._tell_living()
        self._note_change()

    async def _follow(self, slot: _Slot, worker: WorkerProcess) -> None:
        """Follow what a worker says."""
        while (message := await worker.channel.receive()) is not None:
            match message:
                case WorkerReady():
                    worker.is_ready = True
                    slot.settled.set()
                    await self._tell_living()
                    if self._is_draining:
                        await self._tell_drain(worker)
                    self._note_change()
                case WorkerFailed():
                    worker.failure = decode_error(message.error)
                case AskPeers():
                    self.tasks.start_soon(self._relay, worker, message)
                case PeerAnswer():
                    if (question := self._questions.get(message.id)) is not None:
                        question.take(worker.number, message.payload)
        worker.sender.finish()  # it is about to end; one that cannot be spoken to has to

    def _give_up_if_all_failed(self) -> None:
        if not self._ready() and all(slot.failed_starts >= MAX_FAILED_STARTS for slot in self._slots):
            failures = [slot.failure for slot in self._slots if slot.failure is not None]
            self.failed = failures[0] if failures else ListenFailed("no worker starts")
            self.ended.set()

    def _ready(self) -> list[WorkerProcess]:
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        return [worker for worker in workers if worker.is_ready and not worker.sender.is_leaving]

    async def _tell_living(self) -> None:
        ready = self._ready()
        living = LivingWorkers(tuple(worker.number for worker in ready))
        for worker in ready:
            await worker.channel.send(living)

    async def _tell_drain(self, worker: WorkerProcess) -> None:
        # Its answer, under a number that no question of a worker has, is waited for by no one.
        await worker.channel.send(PeerQuestion(id=0, about=DRAIN, payload=""))

    # Questions of workers to each other.

    async def _relay(self, asking: WorkerProcess, asked: AskPeers) -> None:
        """Ask all other workers, and return what they answered in time."""
        if self.on_question is not None:
            await self.on_question(asked.about)
        others = [worker for worker in self._ready() if worker is not asking]
        self._asked += 1
        number, question = self._asked, _RelayedQuestion({worker.number for worker in others})
        self._questions[number] = question
        try:
            with anyio.move_on_after(ANSWER_SECONDS):
                for worker in others:
                    await worker.channel.send(
                        PeerQuestion(id=number, about=asked.about, payload=asked.payload)
                    )
                if others:
                    await question.done.wait()
        finally:
            del self._questions[number]
        await asking.channel.send(PeerAnswers(id=asked.id, answers=question.answers))

    # Connections.

    async def _accept(self, listener: socket.socket) -> None:
        with listener, self._accepting:
            while True:
                while not self._place_waiting():
                    # A slow worker is willing again by time alone, which no change tells.
                    with anyio.move_on_after(_LOOK_SECONDS):
                        await self._wait_for_change()
                await anyio.wait_readable(listener)
                if not self._accept_some(listener):
                    await anyio.sleep(_LOOK_SECONDS)

    def _accept_some(self, listener: socket.socket) -> bool:
        """Accept what waits, and hand it over. False where no descriptor is free."""
        for _ in range(_ACCEPT_AT_ONCE):
            if self._choose() is None:
                return True
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return True
            except OSError as exc:
                if exc.errno in _PAUSE_ERRORS:
                    logger.warning("no connection can be accepted", extra={"reason": exc.strerror})
                    return False
                continue  # that one client was gone before
            self._unplaced.append(connection)
            self._place_waiting()
        return True

    def _place_waiting(self) -> bool:
        """Pass on the connections that wait for a worker. Returns whether more may be accepted."""
        while (worker := self._choose()) is not None:
            if not self._unplaced:
                return True
            if not worker.sender.send(self._unplaced[0]):
                continue  # that one is unwilling now
            self._unplaced.popleft()
            self._handed += 1
            worker.handed_at = self._handed
        return False

    def _choose(self) -> WorkerProcess | None:
        """The worker with the fewest connections; among equals the one that was given none for longest."""
        willing = [worker for worker in self._ready() if worker.sender.is_willing]
        return min(willing, key=lambda worker: (worker.sender.open, worker.handed_at), default=None)

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _wait_for_change(self) -> None:
        await self._changed.wait()


@asynccontextmanager
async def open_pool(size: int, words: Sequence[str], key: str) -> AsyncGenerator[WorkerPool]:
    """Run a pool for the length of the block, at whose end no worker is left.

    Args:
        size: How many workers it has.
        words: The command line of a worker.
        key: The key of this run.
    """
    folder = make_socket_folder()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            pool = WorkerPool(size, words, key, folder, tasks)
            try:
                yield pool
            except BaseException as exc:  # noqa: BLE001 - kept out of the task group, which would wrap it
                failure = exc
            finally:
                pool.kill()
                tasks.cancel_scope.cancel()  # each worker's task sees to it that its process is gone
        if failure is not None:
            raise failure
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_socket_folder() -> Path:
    """Make a folder for the workers' sockets that only this user can enter (0700).

    The path of a Unix socket may have 104 bytes, or 108, and the folder for temporary files a longer one.

    Raises:
        ListenFailed: There is no place for it.
    """
    for parent in (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):  # noqa: S108 - with a random name
        if parent and len(os.fsencode(parent)) <= _MAX_PARENT_BYTES:
            with suppress(OSError):
                return Path(tempfile.mkdtemp(prefix="fairlead-", dir=parent))
    raise ListenFailed(
        "there is no folder for the sockets of workers",
        hint=f"set TMPDIR to a folder with a path of at most {_MAX_PARENT_BYTES} bytes",
    )


def worker_command(arguments: Sequence[str]) -> list[str]:
    """The command line that starts a worker: this interpreter and this package, not the folder's."""
    # -P: the folder it runs in may be any project's, and is no place to import modules from.
    return [sys.executable, "-P", "-m", "fairlead", *arguments]
