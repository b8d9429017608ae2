"""Calls that are made for clients past the SDK, and can be taken back."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from anyio.abc import TaskGroup


class PlainCall:
    """The call that the current task makes. A cancel scope would do, at twenty times the price."""

    __slots__ = ("_is_cancelled", "_is_over", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task(loop)
        assert task is not None, "every request has a task"
        self._task = task
        self._is_cancelled = False
        self._is_over = False

    def end(self) -> None:
        """It is over, and the task goes on to other things."""
        self._is_over = True

    def cancel(self) -> None:
        """Take it back, if it is not over: whoever wanted it said so, or is gone."""
        if not self._is_over and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    def was_cancelled(self) -> bool:
        """Is this why the task was interrupted? If so it goes on; whoever else cancels it means all of it."""
        return self._is_cancelled and self._task.uncancel() == 0


class TaskStarter:
    """Starts tasks for callbacks of the event loop, in which anyio does not work."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Coroutine[Any, Any, None]], tuple[object, ...]]] = deque()
        self._filled = asyncio.Event()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Have `work(*args)` run as a task, if `run` runs."""
        self._waiting.append((work, args))
        self._filled.set()

    async def run(self, tasks: TaskGroup) -> None:
        """Start what is wanted, in `tasks`, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                work, args = self._waiting.popleft()
                tasks.start_soon(work, *args)
