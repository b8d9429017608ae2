"""Typed lines: their verb, completion, and execution.

`RunningWork` tracks lines that are not done and tool calls under way.
"""

import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Final

import anyio

from fairlead.console.attachments import ask_mention, complete_mention, say_to_model
from fairlead.console.prompt_verbs import list_known_prompts, summary_of, verb_of
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, suggest
from fairlead.errors import ArgumentsInvalid
from fairlead.events import Event, McpToolCallBegin, McpToolCallEnd, McpToolCallProgress

MOST_COMPARED: Final = 500
"""How many prompts are looked at for one of a similar name."""


async def carry_out(session: ConsoleSession, line: str) -> None:
    """Execute a line: a verb, or a message for the model."""
    if not line.startswith("/"):
        await session.completions.read_offers(session.host)
        await say_to_model(session, line)
        return
    name, _, rest = line[1:].partition(" ")
    if name not in session.verbs:
        await session.completions.read_offers(session.host)
    await _require_verb(session, name).run(session, rest.strip())


def suggestions(session: ConsoleSession, line: str) -> Iterable[Suggestion]:
    """Completions of the line up to the cursor, as far as they are known. Waits for nothing."""
    if not line.startswith("/"):
        return complete_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    if not blank:
        return suggest(name, _verb_names(session, name))
    verb = _verb(session, name)
    return verb.complete(session, rest) if verb is not None and verb.complete is not None else ()


async def fetch_suggestions(session: ConsoleSession, line: str) -> Iterable[Suggestion]:
    """Further completions: of offers that had to be read first, and of a server's own."""
    before = frozenset(suggestions(session, line))
    has_read = await session.completions.read_offers(session.host)
    read = [each for each in suggestions(session, line) if each not in before] if has_read else []
    return [*read, *await _ask_server(session, line)]


async def _ask_server(session: ConsoleSession, line: str) -> Iterable[Suggestion]:
    if not line.startswith("/"):
        return await ask_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    verb = _verb(session, name) if blank else None
    return await verb.ask(session, rest) if verb is not None and verb.ask is not None else ()


def _verb_names(session: ConsoleSession, begun: str) -> Iterator[tuple[str, str]]:
    """Every verb that begins so, ours and the prompts of servers, with what it is for."""
    for name, verb in session.verbs.items():
        yield f"{name} ", verb.summary
    for name, prompt in list_known_prompts(session).items():
        if name.startswith(begun) and name not in session.verbs:
            yield f"{name} ", summary_of(prompt)


def _verb(session: ConsoleSession, name: str) -> Verb | None:
    if name in session.verbs:
        return session.verbs[name]
    prompt = list_known_prompts(session).get(name)
    return verb_of(prompt) if prompt is not None else None


def _require_verb(session: ConsoleSession, name: str) -> Verb:
    verb = _verb(session, name)
    if verb is None:
        # To compare a name takes some 20 µs.
        names = [*session.verbs, *islice(list_known_prompts(session), MOST_COMPARED)]
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean `/{close[0]}`?" if close else "`/help` shows what there is"
        raise ArgumentsInvalid(f"there is no command `/{name}`", hint=hint)
    return verb


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningLine:
    """A line or call under way, for display."""

    label: str
    since: float
    progress: float | None = None
    total: float | None = None
    message: str | None = None

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.since


class RunningWork:
    """Lines and calls under way. `changed` is called after every change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lines: dict[anyio.CancelScope, RunningLine] = {}
        self._calls: dict[int, RunningLine] = {}
        self._idle = anyio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a line is still being executed."""
        return bool(self._lines)

    @property
    def shown(self) -> list[RunningLine]:
        """The running calls, else the lines that have made none yet."""
        return [*self._calls.values()] or [*self._lines.values()]

    async def do(self, label: str, what: Callable[[], Awaitable[None]]) -> bool:
        """Run a function that `cancel` ends. False where it was cancelled."""
        with self._track(label) as scope:
            await what()
        return not scope.cancelled_caught

    def cancel(self) -> None:
        """Cancel all that is under way. Servers are notified."""
        for scope in [*self._lines]:
            scope.cancel()

    async def wait_idle(self) -> None:
        """Wait until nothing is under way."""
        while self._lines:
            self._idle = anyio.Event()
            await self._idle.wait()

    def note(self, event: Event) -> None:
        """Follow a host's calls."""
        match event:
            case McpToolCallBegin():
                label = f"{event.server_id}/{event.tool}"
                self._calls[event.call_id] = RunningLine(label=label, since=time.monotonic())
            case McpToolCallProgress() if event.call_id in self._calls:
                self._calls[event.call_id] = replace(
                    self._calls[event.call_id],
                    progress=event.progress,
                    total=event.total,
                    message=event.message,
                )
            case McpToolCallEnd():
                self._calls.pop(event.call_id, None)
            case _:
                pass
        self._changed()

    @contextmanager
    def _track(self, label: str) -> Generator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            self._lines[scope] = RunningLine(label=label, since=time.monotonic())
            self._changed()
            try:
                yield scope
            finally:
                del self._lines[scope]
                self._idle.set()
                self._changed()
