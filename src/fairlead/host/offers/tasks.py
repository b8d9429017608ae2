"""Tasks: tool calls that a server runs in the background, kept in the store and found after a restart."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.catalog.results import ToolResult
from fairlead.config.argument_types import check_types
from fairlead.config.principal import LOCAL
from fairlead.connection.failures import calling
from fairlead.connection.tasks import Task, cancel_task, get_task, list_tasks, parse_created_task
from fairlead.errors import CallFailed, StoreError
from fairlead.host.call import CallRunner
from fairlead.host.permission import ProposedCall, check_proposal
from fairlead.host.server_access import ServerAccess
from fairlead.store.protocol import ANY, Store

NAMESPACE = "tasks"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedCall:
    """A call that was begun: `task` if it runs in the background, `result` if it ended at once."""

    server_id: str
    tool: str
    task: Task | None = None
    result: ToolResult | None = None


class KnownTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of this host or an earlier run whose result was not fetched yet."""

    server_id: str
    tool: str
    task_id: str
    begun_at: float
    principal: str = LOCAL
    """The principal it was begun for. No other may see it, fetch its result or cancel it."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KnownTask).decode


class Tasks:
    """The tasks of a host's servers: `host.tasks`.

    Args:
        servers: The servers of the host.
        calls: Begins the calls, and delivers the results.
        store: Where tasks are kept; None if it cannot be opened.
    """

    def __init__(self, servers: ServerAccess, calls: CallRunner, store: Store | None) -> None:
        self._servers = servers
        self._calls = calls
        self._store = store

    async def begin(
        self,
        server_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        confirmed: bool = False,
        principal: str = LOCAL,
        groups: frozenset[str] = frozenset(),
    ) -> StartedCall:
        """Call a tool as a task, if its server supports that; else call it and wait.

        Args:
            server_id: The server.
            tool: The tool's own name at the server.
            arguments: Its arguments, by name.
            confirmed: The user saw and confirmed this very call, so that policy need not ask.
            principal: The identity that the call is made for.
            groups: The groups that the principal is a member of.

        Returns:
            The task, or the result if the call ended at once.

        Raises:
            FairleadError: What `Host.call` raises.
        """
        # The arguments are checked where those of `Host.call` are, and refused in the same words.
        check_proposal(Tasks.begin, server_id, tool, None, principal, groups, None)
        proposal = ProposedCall(
            managed=self._servers.use(server_id),
            tool=tool,
            bundle_filter=None,
            principal=principal,
            confirmed=confirmed,
            groups=groups,
        )
        raw = await self._calls.begin(proposal, {} if arguments is None else arguments)
        with calling(server_id):
            task = parse_created_task(raw)
        if task is None:
            result = await self._calls.deliver(raw, proposal)
            return StartedCall(server_id=server_id, tool=tool, result=result)
        known = KnownTask(
            server_id=server_id, tool=tool, task_id=task.id, begun_at=time.time(), principal=principal
        )
        try:
            await self._keep(known)
        except StoreError:
            logger.warning("a task runs, but cannot be kept for later runs", exc_info=True)
        return StartedCall(server_id=server_id, tool=tool, task=task)

    @check_types
    async def get(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> Task:
        """The state of a task.

        Args:
            server_id: The server that runs it.
            task_id: The task.
            principal: The principal it was begun for.

        Raises:
            CallFailed: The principal has no such task, or the server did not answer.
        """
        await self._require_own(server_id, task_id, principal)
        return await self._get(server_id, task_id)

    @check_types
    async def result(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> ToolResult:
        """Wait for the end of a task. Cancelling the wait cancels the task.

        Args:
            server_id: The server that runs it.
            task_id: The task.
            principal: The principal it was begun for.

        Returns:
            The result of the call.

        Raises:
            CallFailed: The principal has no such task, or it failed.
        """
        begun = await self._require_own(server_id, task_id, principal)
        task = await self._get(server_id, task_id)
        connection = await self._servers.reach(server_id)
        raw = await connection.finish(task)
        try:
            await self._forget(server_id, task_id)
        except StoreError:
            logger.warning("a task that is over cannot be forgotten", exc_info=True)
        proposal = ProposedCall(
            managed=self._servers.use(server_id),
            tool=begun.tool if begun else "",
            bundle_filter=None,
            principal=principal,
            confirmed=False,
        )
        return await self._calls.deliver(raw, proposal)

    @check_types
    async def cancel(self, server_id: str, task_id: str, *, principal: str = LOCAL) -> None:
        """Ask the server to cancel a task.

        Args:
            server_id: The server that runs it.
            task_id: The task.
            principal: The principal it was begun for.

        Raises:
            CallFailed: The principal has no such task, or the server did not answer.
        """
        await self._require_own(server_id, task_id, principal)
        connection = await self._servers.reach(server_id)
        with calling(server_id):
            await cancel_task(await connection.ready(), task_id)
        await self._forget(server_id, task_id)

    @check_types
    async def list(self, server_id: str, *, principal: str = LOCAL) -> tuple[Task, ...]:
        """The tasks of a principal that a server lists. Empty if its protocol version has no such list.

        Args:
            server_id: The server.
            principal: The principal they were begun for.
        """
        connection = await self._servers.reach(server_id)
        with calling(server_id):
            tasks = await list_tasks(await connection.ready())
        stored = await self._scan()
        # One that cannot be read is no one's: it may be anyone's.
        owners = {key: known.principal if known is not None else None for key, known in stored.items()}
        return tuple(task for task in tasks if owners.get(_key(server_id, task.id), LOCAL) == principal)

    @check_types
    async def known(self, principal: str = LOCAL) -> tuple[KnownTask, ...]:
        """The tasks of a principal, of this run and earlier ones, that were neither fetched nor cancelled.

        Args:
            principal: The principal they were begun for.
        """
        known = (await self._scan()).values()
        return tuple(task for task in known if task is not None and task.principal == principal)

    async def _scan(self) -> dict[str, KnownTask | None]:
        """All stored tasks by key; None for one that is damaged, or of a newer release."""
        if self._store is None:
            return {}
        found: dict[str, KnownTask | None] = {}
        for stored in await self._store.scan(NAMESPACE):
            try:
                found[stored.key] = _decode(stored.value)
            except (msgspec.DecodeError, RecursionError):
                logger.warning("a task is damaged, or of a newer Fairlead", extra={"key": stored.key})
                found[stored.key] = None
        return found

    async def _get(self, server_id: str, task_id: str) -> Task:
        connection = await self._servers.reach(server_id)
        with calling(server_id):
            return await get_task(await connection.ready(), task_id)

    async def _require_own(self, server_id: str, task_id: str, principal: str) -> KnownTask | None:
        """Return the stored task; one that is not stored is the local user's.

        Raises `CallFailed` for another principal's.
        """
        known = await self._load_task(server_id, task_id)
        if (known.principal if known is not None else LOCAL) != principal:
            raise CallFailed(server_id, f"there is no task `{task_id}`", delivery="not_sent")
        return known

    async def _load_task(self, server_id: str, task_id: str) -> KnownTask | None:
        store = self._store
        found = await store.get(NAMESPACE, _key(server_id, task_id)) if store is not None else None
        try:
            return _decode(found.value) if found is not None else None
        except (msgspec.DecodeError, RecursionError) as exc:
            raise StoreError(
                f"the task `{task_id}` is damaged in the store, or was kept by a newer Fairlead",
                hint="update Fairlead",
            ) from exc

    async def _keep(self, task: KnownTask) -> None:
        if (store := self._store) is not None:
            await store.put(NAMESPACE, _key(task.server_id, task.task_id), _encode(task), expect=ANY)

    async def _forget(self, server_id: str, task_id: str) -> None:
        if (store := self._store) is not None:
            await store.delete(NAMESPACE, _key(server_id, task_id), expect=ANY)


def _key(server_id: str, task_id: str) -> str:
    return f"{server_id}/{task_id}"
