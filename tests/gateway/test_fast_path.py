"""Calls that are made past the SDK, taken back by whoever wanted them."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from fairlead.gateway.request_context import PlainCall

SECONDS = 10


class Caller:
    """A task that makes a call which nobody answers, and then goes on."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.go_on = anyio.Event()
        self.call: PlainCall
        self.task: asyncio.Task[None] | None = None
        self.was_taken_back = anyio.Event()
        self.went_on = False

    async def run(self) -> None:
        self.task = asyncio.current_task()
        self.call = PlainCall(asyncio.get_running_loop())
        try:
            self.began.set()
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if not self.call.was_cancelled():
                raise
            self.was_taken_back.set()
        finally:
            self.call.end()
        await self.go_on.wait()
        self.went_on = True


async def test_a_call_that_is_taken_back_ends_and_its_task_goes_on() -> None:
    caller = Caller()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.run)
            await caller.began.wait()
            caller.call.cancel()
            caller.call.cancel()
            await caller.was_taken_back.wait()
            caller.go_on.set()
    assert caller.went_on


async def test_taking_back_a_call_that_is_over_does_not_disturb_what_its_task_does_next() -> None:
    caller = Caller()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.run)
            await caller.began.wait()
            caller.call.cancel()
            await caller.was_taken_back.wait()
            caller.call.cancel()
            await anyio.lowlevel.checkpoint()
            caller.go_on.set()
    assert caller.went_on


@pytest.mark.parametrize("also_taken_back", [False, True])
async def test_whoever_cancels_the_task_ends_all_of_it(also_taken_back: bool) -> None:
    caller = Caller()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.run)
            await caller.began.wait()
            if also_taken_back:
                caller.call.cancel()
            if caller.task is not None:
                caller.task.cancel()
    assert not caller.went_on
    assert caller.task is not None
    assert caller.task.cancelled()
