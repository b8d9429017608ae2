"""A task group that may be closed from another task than opened it.

A task group of anyio belongs to the task that enters it. Those who open a host are not always those who close
it: fixtures of tests, lifespans of web frameworks and exit stacks of programs leave a block in another task.
So the group lives in a task of its own.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def task_owner(name: str) -> AsyncGenerator[TaskGroup]:
    """Run a task group for the length of the block, which may end in any task. Its tasks end with it.

    Args:
        name: What shows in lists of tasks.

    Raises:
        ExceptionGroup: At the end of the block, if one of its tasks failed.
    """
    opened: asyncio.Future[TaskGroup] = asyncio.get_running_loop().create_future()

    async def own() -> None:
        async with anyio.create_task_group() as tasks:
            if not opened.cancelled():
                opened.set_result(tasks)
            await anyio.sleep_forever()

    owner = asyncio.create_task(own(), name=name)  # noqa: TID251 - this is the owner of the others
    try:
        tasks = await opened
        yield tasks
    finally:
        if opened.done() and not opened.cancelled():
            opened.result().cancel_scope.cancel()
        else:
            owner.cancel()
        with anyio.CancelScope(shield=True):
            await _ended(owner)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and (failure := task.exception()) is not None:
        raise failure
