"""Tasks of a server: calls that return a handle, which is polled until there is a result.

In 2025-11-25, where tasks are experimental, the client requests one with `task` in the parameters of a call
and fetches the result with `tasks/result`, during which the server may elicit. From 2026-07-28 on they are an
extension: the server decides which calls become tasks, `tasks/get` returns the result or elicitations, and
`tasks/update` takes the answers.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import anyio
import msgspec
from mcp_types import INTERNAL_ERROR, ServerCapabilities

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import SliceTimer, may_have_string
from fairlead.catalog.tools import ToolEntry
from fairlead.connection.outcomes import (
    AnswerUnreadable,
    NotSent,
    RequestExpired,
    RequestFailed,
    RequestRejected,
)
from fairlead.connection.transport.messages import rejection

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""The `_meta` key of the task that a message belongs to."""

EXTENSION: Final = "io.modelcontextprotocol/tasks"

UPDATE: Final = "tasks/update"
"""The request that answers a task's elicitations."""

NAME_PARAMETERS: Final[Mapping[str, str]] = {
    "tasks/get": "taskId",
    UPDATE: "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter of each method that is sent as the header `Mcp-Name`, from 2026-07-28 on."""

MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 60.0
DEFAULT_POLL_SECONDS = 1.0
MAX_SILENT_POLLS = 3
"""How many polls in a row may go unanswered before the wait is given up."""
REQUEST_SECONDS = 30.0
INPUT_SECONDS = 900.0
"""How long `tasks/result` of a handshake server may stay open; elicitations pause this deadline."""
ABANDON_SECONDS = 2.0
MAX_PAGES = 100

MAX_TASKS = 10_000
"""How many tasks a server may list."""
MAX_LISTED_BYTES = 16 * 1024 * 1024
"""Of all pages of such a list."""
MAX_ELICITATIONS = 64
"""How many elicitations a task may have at once."""
MAX_ELICITATION_BYTES = 1024 * 1024
"""Of all of them: to parse more would hold up every other call."""

_MAX_HANDLE_BYTES = 64 * 1024
_MAX_ID_CHARACTERS = 1_024
_MAX_MESSAGE_CHARACTERS = 500

TaskState = Literal["working", "input_required", "completed", "failed", "cancelled"]
Support = Literal["forbidden", "optional", "required"]


class TaskCancelled(RequestFailed):
    """The server gave the task up. Some of the work may have been done."""


class RequestSender(Protocol):
    """Sends requests to a server, as a `Session` does."""

    @property
    def modern(self) -> bool:
        """Whether the protocol version is 2026-07-28 or later."""
        ...

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        """Send a request and return its result. Raises `RequestFailed`."""
        ...


class TaskElicitation(msgspec.Struct, frozen=True):
    """A request for input by a task, such as `elicitation/create`; its parameters are as they came."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")

    def read(self) -> dict[str, Any]:
        """The elicitation as plain data."""
        return {"method": self.method, "params": msgspec.json.decode(self.params)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task in its last reported state."""

    id: str
    status: TaskState
    message: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    ttl_ms: int | None = None
    """For how long after its creation the server keeps it; `None` is for good."""
    poll_ms: int | None = None
    elicitations: Mapping[str, TaskElicitation] = field(default_factory=dict[str, TaskElicitation])
    result: msgspec.Raw | None = field(default=None, repr=False)
    error: msgspec.Raw | None = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in ("completed", "failed", "cancelled")

    @property
    def poll_seconds(self) -> float:
        """Seconds until the next poll: as the server wishes, within limits."""
        wished = DEFAULT_POLL_SECONDS if self.poll_ms is None else self.poll_ms / 1000
        return min(max(wished, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


AnswerElicitations = Callable[[Mapping[str, TaskElicitation]], Awaitable[Mapping[str, Any]]]
"""Answers elicitations, by their keys: each with the result of its method."""
OnChange = Callable[[Task], Awaitable[None]]
"""Called with a task whose status or message changed."""


# Who can do it.


def supports_tasks(capabilities: ServerCapabilities, *, modern: bool) -> bool:
    """Whether the server declares that calls of its tools can become tasks."""
    if modern:
        return EXTENSION in (capabilities.extensions or {})
    requests = capabilities.tasks.requests if capabilities.tasks else None
    return requests is not None and requests.tools is not None and requests.tools.call is not None


class _TaskExecution(msgspec.Struct, rename="camel"):
    task_support: Support = "forbidden"


class _TaskDefinition(msgspec.Struct):
    execution: _TaskExecution = msgspec.field(default_factory=_TaskExecution)


def task_support(definition: bytes) -> Support:
    """The task support that a tool of 2025-11-25 declares; later only the server decides."""
    try:
        return msgspec.json.decode(definition, type=_TaskDefinition).execution.task_support
    except (msgspec.DecodeError, RecursionError):
        return "forbidden"


def known_task_support(tools: Iterable[ToolEntry], tool: str) -> Support | None:
    """The task support that a tool declares in a list; None where it is not in the list."""
    known = next((entry for entry in tools if entry.key.tool == tool), None)
    return task_support(known.definition) if known is not None else None


def listed_task_support(tools: Iterable[ToolEntry]) -> Mapping[str, Support]:
    """The tools in a list that can, or must, be called as tasks."""
    return {
        entry.key.tool: support
        for entry in tools
        if (support := task_support(entry.definition)) != "forbidden"
    }


# What servers send.


class _Wire(msgspec.Struct, rename="camel"):
    """A task in the form of either protocol version: the names of durations differ."""

    task_id: str
    status: TaskState
    status_message: str | None = None
    created_at: str | None = None
    last_updated_at: str | None = None
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Created(msgspec.Struct, rename="camel"):
    result_type: str | None = None
    task: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()


class _TaskPage(msgspec.Struct, rename="camel"):
    tasks: list[msgspec.Raw]
    next_cursor: str | None = None


_decode_elicitations = msgspec.json.Decoder(dict[str, TaskElicitation]).decode
_decode_task = msgspec.json.Decoder(_Wire).decode
_decode_created = msgspec.json.Decoder(_Created).decode
_decode_page = msgspec.json.Decoder(_TaskPage).decode


def parse_created_task(answer: msgspec.Raw, *, modern: bool | None = None) -> Task | None:
    """The task that a call was answered with, or `None` if it is a result. Raises `AnswerUnreadable`.

    Where it is known whether the server is `modern`, only what means a task in its protocol version is one.
    """
    if len(memoryview(answer)) > _MAX_HANDLE_BYTES:
        return None
    body = bytes(answer)
    if not may_have_string(body, b'"task"'):  # the key in 2025-11-25, and the value in 2026-07-28
        return None
    try:
        created = _decode_created(answer)
    except (msgspec.DecodeError, RecursionError):
        return None
    if created.result_type == "task" and modern is not False:
        return read_task(answer)
    if modern:
        return None
    return read_task(created.task) if created.task and not created.content else None


def read_task(raw: msgspec.Raw) -> Task:
    """Parse a task of either protocol version. Raises `AnswerUnreadable`."""
    try:
        wire = _decode_task(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise AnswerUnreadable(f"it is not a valid task: {exc}") from exc
    if not 0 < len(wire.task_id) <= _MAX_ID_CHARACTERS:
        raise AnswerUnreadable("a task's id must not be empty or too long")
    return Task(
        id=wire.task_id,
        status=wire.status,
        message=gate.text(wire.status_message, _MAX_MESSAGE_CHARACTERS) if wire.status_message else None,
        created_at=wire.created_at,
        updated_at=wire.last_updated_at,
        ttl_ms=_whole(wire.ttl if wire.ttl_ms is None else wire.ttl_ms),
        poll_ms=_whole(wire.poll_interval if wire.poll_interval_ms is None else wire.poll_interval_ms),
        elicitations=_read_elicitations(wire.input_requests),
        result=wire.result or None,
        error=wire.error or None,
    )


def _read_elicitations(raw: msgspec.Raw) -> Mapping[str, TaskElicitation]:
    """Parse the elicitations of a task, of which few are allowed. Raises `AnswerUnreadable`."""
    size = len(memoryview(raw))
    if not size:
        return {}
    if size > MAX_ELICITATION_BYTES:
        raise AnswerUnreadable(f"a task's requests for input are {size:,} bytes")
    try:
        found = _decode_elicitations(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise AnswerUnreadable(f"it is not a valid task: {exc}") from exc
    if len(found) > MAX_ELICITATIONS:
        raise AnswerUnreadable(f"a task sends {len(found)} requests for input at once")
    return found


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


# Requests.


async def get_task(session: RequestSender, task_id: str) -> Task:
    """Ask how a task is doing. Raises `RequestRejected` if the server does not know it (any more)."""
    return read_task(await session.request("tasks/get", {"taskId": task_id}, seconds=REQUEST_SECONDS))


async def update_task(session: RequestSender, task_id: str, answers: Mapping[str, Any]) -> None:
    """Answer elicitations of a task, by their keys. For stateless servers only."""
    params = {"taskId": task_id, "inputResponses": answers}
    await session.request(UPDATE, params, seconds=REQUEST_SECONDS)


async def cancel_task(session: RequestSender, task_id: str) -> Task | None:
    """Ask the server to cancel a task, which it need not do. Only 2025-11-25 returns the task's state."""
    answer = await session.request("tasks/cancel", {"taskId": task_id}, seconds=REQUEST_SECONDS)
    return None if session.modern else read_task(answer)


async def list_tasks(session: RequestSender) -> tuple[Task, ...]:
    """All tasks that the server lists. Empty from 2026-07-28 on, which has no such list.

    Raises `AnswerUnreadable` for a list that is no list, or too large.
    """
    tasks: list[Task] = []
    cursor: str | None = None
    seen: set[str | None] = set()
    size, turn = 0, SliceTimer()
    while not session.modern and len(seen) < MAX_PAGES and cursor not in seen:
        seen.add(cursor)
        params = None if cursor is None else {"cursor": cursor}
        answer = await session.request("tasks/list", params, seconds=REQUEST_SECONDS)
        size += len(memoryview(answer))
        try:
            page = _decode_page(answer)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise AnswerUnreadable(f"it is not a valid list of tasks: {exc}") from exc
        if size > MAX_LISTED_BYTES or len(tasks) + len(page.tasks) > MAX_TASKS:
            raise AnswerUnreadable(f"it lists more than {MAX_TASKS:,} tasks, or too many bytes of them")
        for raw in page.tasks:
            tasks.append(read_task(raw))
            if turn.is_over():  # others get their turn
                await anyio.lowlevel.checkpoint()
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    return tuple(tasks)


async def task_result(session: RequestSender, task: Task) -> msgspec.Raw:
    """The result of a task that is over. Raises `RequestFailed`, as the call itself would have."""
    if session.modern and task.status != "cancelled" and task.result is None and task.error is None:
        with _following():
            task = await get_task(session, task.id)  # a handle has no room for either
    if task.status == "cancelled":
        raise TaskCancelled(INTERNAL_ERROR, task.message or "the task was cancelled")
    if not session.modern:
        return await session.request("tasks/result", {"taskId": task.id}, seconds=REQUEST_SECONDS)
    if task.error is not None:
        raise rejection(task.error)
    if task.result is None:
        raise AnswerUnreadable(f"the task is {task.status} and has neither result nor error")
    return task.result


def without_task(result: msgspec.Raw) -> msgspec.Raw:
    """A task's result as that of a plain call: without the name of the task, which callers never see."""
    try:
        own = _decode_meta(result).meta
        # Looked for first: a result, and its `_meta`, may have any number of keys.
        if not may_have_string(bytes(own), f'"{RELATED_TASK}"'.encode()):
            return result
        if len(memoryview(result)) > _MAX_HANDLE_BYTES:
            # Its other fields are not read: an equal object elsewhere in it loses the same key, and no more.
            return msgspec.Raw(bytes(result).replace(bytes(own), _meta_without_task(own)))
        fields = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
        meta = msgspec.json.decode(fields.get("_meta", b"{}"), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return result
    if meta.pop(RELATED_TASK, None) is None:
        return result
    fields["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
    if not meta:
        del fields["_meta"]
    return msgspec.Raw(msgspec.json.encode(fields))


class _MetaOfTask(msgspec.Struct):
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="_meta")


_decode_meta = msgspec.json.Decoder(_MetaOfTask).decode


def _meta_without_task(meta: msgspec.Raw) -> bytes:
    """The `_meta` of a large result without its task; one that is large itself is left out."""
    if len(memoryview(meta)) > _MAX_HANDLE_BYTES:
        return b"{}"
    fields = msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
    fields.pop(RELATED_TASK, None)
    return msgspec.json.encode(fields)


async def finish_task(
    session: RequestSender,
    task: Task,
    *,
    answer: AnswerElicitations,
    answered: set[str] | None = None,
    on_change: OnChange | None = None,
) -> msgspec.Raw:
    """Wait for the end of a task, answering its elicitations, and return its result.

    This takes as long as the task does: the caller sets the limit, and may come back for the same task over
    another session, with the same `answered`, the keys of elicitations that were answered. Raises
    `RequestFailed`, as the call itself would have.
    """
    answered = set() if answered is None else answered
    while not task.is_over:
        if task.status == "input_required" and not session.modern:
            result = await _result_with_input(session, task)
            if result is not None:
                return result
        # An elicitation stays listed until its answer has taken effect, and must not be put twice.
        new = {key: elicitation for key, elicitation in task.elicitations.items() if key not in answered}
        with _following():
            if new:
                await update_task(session, task.id, await answer(new))
                answered |= new.keys()
            known, task = task, await _next_state(session, task)
        if on_change is not None and (task.status, task.message) != (known.status, known.message):
            await on_change(task)
    return await task_result(session, task)


@contextmanager
def _following() -> Generator[None]:
    """Say of a request about a task that failed, even if it was answered, that the task may be carried out.

    A server that was started anew may know its tasks no more. The task's own error is raised elsewhere.
    """
    try:
        yield
    except RequestFailed as exc:
        exc.delivery = "unknown"
        raise


async def abandon_task(session: RequestSender, task_id: str) -> None:
    """Ask the server to cancel a task, even while the caller is being cancelled."""
    with anyio.move_on_after(ABANDON_SECONDS, shield=True):
        try:
            await cancel_task(session, task_id)
        except (RequestFailed, NotSent):
            return  # it is over, or the server is gone


async def _next_state(session: RequestSender, task: Task) -> Task:
    """Poll once. One poll that goes unanswered is no reason to lose hours of work; a few in a row are."""
    for patience in range(MAX_SILENT_POLLS - 1, -1, -1):
        await anyio.sleep(task.poll_seconds)
        try:
            return await get_task(session, task.id)
        except RequestExpired:
            if not patience:
                raise
    raise AssertionError("the last poll returns or raises")


async def _result_with_input(session: RequestSender, task: Task) -> msgspec.Raw | None:
    """Fetch the result with `tasks/result`, during which a handshake server may elicit."""
    try:
        return await session.request("tasks/result", {"taskId": task.id}, seconds=INPUT_SECONDS)
    except RequestExpired:
        return None  # the task goes on, and polling tells how
    except RequestRejected:
        with _following():
            await get_task(session, task.id)
        raise  # the error that the task ended with, since the server knows the task
