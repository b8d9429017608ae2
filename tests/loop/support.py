"""What the tests of the loop share: a run, and what happened in it."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import anyio

from fairlead.events import Event
from fairlead.host.model.toolset import Toolset
from fairlead.loop.events import RunEvent, RunFinished, TextDelta
from fairlead.loop.provider import ChatModel, Provider
from fairlead.loop.run import run_task

PROVIDERS: list[Provider] = ["openai", "anthropic"]
SECONDS = 30
EventT = TypeVar("EventT", bound=RunEvent)


async def played(toolset: Toolset, model: ChatModel, task: str = "do it", **rest: Any) -> list[RunEvent]:
    """Everything that happens in a run."""
    with anyio.fail_after(SECONDS):
        async with run_task(toolset, model, task, **rest) as events:
            return [event async for event in events]


def of_kind(events: list[RunEvent], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def said(events: list[RunEvent]) -> str:
    return "".join(event.text for event in of_kind(events, TextDelta))


def ending(events: list[RunEvent]) -> RunFinished:
    assert isinstance(events[-1], RunFinished)
    return events[-1]


async def next_of(happenings: AsyncIterator[Event], kind: type[Event]) -> None:
    """Wait until something of that kind happens in the host."""
    async for event in happenings:
        if isinstance(event, kind):
            return
