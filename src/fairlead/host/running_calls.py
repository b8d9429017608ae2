"""The calls that are under way, so that a user can cancel one of them."""

import asyncio
from itertools import count

from fairlead.errors import CallFailed


class RunningCalls:
    """The calls of a host, and of the hosts below it, by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._tasks: dict[int, asyncio.Task[object]] = {}
        self._cancelled: dict[int, str] = {}

    def number(self) -> int:
        """A number for a call, which no other call has."""
        return next(self._numbers)

    def begin(self, number: int) -> None:
        """Note that the current task makes a call, until `end`."""
        task = asyncio.current_task()
        assert task is not None, "calls are made in tasks"
        self._tasks[number] = task

    def end(self, number: int) -> None:
        """Note that a call is over."""
        task = self._tasks.pop(number, None)
        if self._cancelled.pop(number, None) is not None and task is not None:
            task.uncancel()  # it ended before it noticed

    def cancel(self, number: int, reason: str) -> bool:
        """Cancel a call: its caller gets an error, its server a notification. False where it is over.

        Args:
            number: The `call_id` of its events.
            reason: Who cancelled it, for the error.
        """
        task = self._tasks.get(number)
        if task is None or number in self._cancelled:
            return False
        self._cancelled[number] = reason
        # A cancel scope for every call would do, and costs more than all else that a host does for it.
        task.cancel()
        return True

    def blame_user(self, number: int, server_id: str, error: BaseException) -> None:
        """Raise `CallFailed` for the caller of a call that ended because a user cancelled it."""
        task = self._tasks.get(number)
        if task is None or number not in self._cancelled or not isinstance(error, asyncio.CancelledError):
            return
        reason = self._cancelled.pop(number)
        if task.uncancel() == 0:  # else the caller gave up as well
            raise CallFailed(server_id, f"the call was cancelled: {reason}", delivery="unknown") from None
