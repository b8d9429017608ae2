"""Work that servers do in the background: begun, looked after, and found again after a restart."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.config.argument_types import check_types
from fairlead.config.principal import LOCAL
from fairlead.connection.failures import calling
from fairlead.connection.tasks import Task, cancel_task, get_task, list_tasks, parse_created_task
from fairlead.errors import CallFailed
from fairlead.store.protocol import ANY

if TYPE_CHECKING:
    from fairlead.host.host import Host

NAMESPACE = "tasks"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedCall:
    """A call that goes on in the background, or has come to its end at once: then there is a `result`."""

    server_id: str
    tool: str
    task: Task | None = None
    result: ToolResult | None = None


class KnownTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task this host or an earlier one began and nobody has fetched the result of."""

    server_id: str
    tool: str
    task_id: str
    begun_at: float
    principal: str = LOCAL
    """Whom it was begun for: no other may look at it, fetch its result or cancel it."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KnownTask).decode


class Tasks:
    """The tasks of a host's servers: `host.tasks`."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    async def begin(
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        reviewed: bool = False,
        principal: str = LOCAL,
        groups: frozenset[str] = frozenset(),
    ) -> StartedCall:
        """Call a tool and do not wait for it, where its server lets it run in the background."""
        raw = await self._host.begin_call(
            server_id, tool, arguments, reviewed=reviewed, principal=principal, groups=groups
        )
        task = parse_created_task(raw)
        if task is None:
            result = await self._host.delivered(server_id, tool, raw, principal=principal)
            return StartedCall(server_id=server_id, tool=tool, result=result)
        known = KnownTask(
            server_id=server_id, tool=tool, task_id=task.id, begun_at=time.time(), principal=principal
        )
        await self._keep(known)
        return StartedCall(server_id=server_id, tool=tool, task=task)

    @check_types
    async def get(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> Task:
        """How a task is doing."""
        await self._require_own(server_id, task_id, principal)
        connection = await self._host.reach(server_id)
        with calling(server_id):
            return await get_task(await connection.ready(), task_id)

    @check_types
    async def result(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> ToolResult:
        """Wait for a task's end and return what the call brought. Giving up waiting stops the task."""
        task = await self.get(server_id, task_id, principal=principal)
        connection = await self._host.reach(server_id)
        raw = await connection.finish(task)
        begun = await self._load_task(server_id, task_id)
        await self._forget(server_id, task_id)
        return await self._host.delivered(server_id, begun.tool if begun else "", raw, principal=principal)

    @check_types
    async def cancel(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> None:
        """Ask for a task to be given up."""
        await self._require_own(server_id, task_id, principal)
        connection = await self._host.reach(server_id)
        with calling(server_id):
            await cancel_task(await connection.ready(), task_id)
        await self._forget(server_id, task_id)

    @check_types
    async def list(self, server_id: str, *, principal: str = LOCAL) -> tuple[Task, ...]:
        """A principal's tasks at a server, as far as its protocol version lets one ask."""
        connection = await self._host.reach(server_id)
        with calling(server_id):
            tasks = await list_tasks(await connection.ready())
        owners = {task.task_id: task.principal for task in await self._all() if task.server_id == server_id}
        return tuple(task for task in tasks if owners.get(task.id, LOCAL) == principal)

    @check_types
    async def known(self, principal: str = LOCAL) -> tuple[KnownTask, ...]:
        """A principal's tasks, begun in this run or an earlier one, and not fetched or cancelled."""
        return tuple(task for task in await self._all() if task.principal == principal)

    async def _all(self) -> tuple[KnownTask, ...]:
        store = self._host.store
        if store is None:
            return ()
        return tuple(_decode(stored.value) for stored in await store.scan(NAMESPACE))

    async def _require_own(self, server_id: str, task_id: str, principal: str) -> None:
        """Raise where a task is another principal's. One that was begun elsewhere is the local user's."""
        known = await self._load_task(server_id, task_id)
        if (known.principal if known is not None else LOCAL) != principal:
            raise CallFailed(server_id, f"there is no task `{task_id}`", delivery="not_sent")

    async def _load_task(self, server_id: str, task_id: str) -> KnownTask | None:
        store = self._host.store
        found = await store.get(NAMESPACE, _key(server_id, task_id)) if store is not None else None
        return _decode(found.value) if found is not None else None

    async def _keep(self, task: KnownTask) -> None:
        if (store := self._host.store) is not None:
            await store.put(NAMESPACE, _key(task.server_id, task.task_id), _encode(task), expect=ANY)

    async def _forget(self, server_id: str, task_id: str) -> None:
        if (store := self._host.store) is not None:
            await store.delete(NAMESPACE, _key(server_id, task_id), expect=ANY)


def _key(server_id: str, task_id: str) -> str:
    return f"{server_id}/{task_id}"
