"""Work that servers do in the background: begun, looked after, and found again after a restart."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.connection.failures import calling
from fairlead.connection.tasks import Task, cancel_task, created_task, get_task, list_tasks
from fairlead.store.store import ANY

if TYPE_CHECKING:
    from fairlead.host.host import Host

NAMESPACE = "tasks"


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
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
    ) -> Begun:
        """Call a tool and do not wait for it, where its server lets it run in the background."""
        raw = await self._host.begin_call(server_id, tool, arguments or {}, reviewed=reviewed)
        task = created_task(raw)
        if task is None:
            return Begun(
                server_id=server_id, tool=tool, result=await self._host.delivered(server_id, tool, raw)
            )
        known = KnownTask(server_id=server_id, tool=tool, task_id=task.id, begun_at=time.time())
        await self._keep(known)
        return Begun(server_id=server_id, tool=tool, task=task)

    async def get(self, server_id: str, task_id: str) -> Task:
        """How a task is doing."""
        connection = await self._host.reach(server_id)
        with calling(server_id):
            return await get_task(await connection.ready(), task_id)

    async def result(self, server_id: str, task_id: str) -> ToolResult:
        """Wait for a task's end and return what the call brought. Whoever stops waiting stops the task."""
        connection = await self._host.reach(server_id)
        raw = await connection.finish(await self.get(server_id, task_id))
        begun = await self._known(server_id, task_id)
        await self._forget(server_id, task_id)
        return await self._host.delivered(server_id, begun.tool if begun else "", raw)

    async def cancel(self, server_id: str, task_id: str) -> None:
        """Ask for a task to be given up."""
        connection = await self._host.reach(server_id)
        with calling(server_id):
            await cancel_task(await connection.ready(), task_id)
        await self._forget(server_id, task_id)

    async def list(self, server_id: str) -> tuple[Task, ...]:
        """All tasks a server keeps for us, as far as its era lets one ask."""
        connection = await self._host.reach(server_id)
        with calling(server_id):
            return await list_tasks(await connection.ready())

    async def known(self) -> tuple[KnownTask, ...]:
        """The tasks that were begun here, in this run or an earlier one, and not fetched or cancelled."""
        store = self._host.store
        if store is None:
            return ()
        return tuple(_decode(stored.value) for stored in await store.scan(NAMESPACE))

    async def _known(self, server_id: str, task_id: str) -> KnownTask | None:
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
