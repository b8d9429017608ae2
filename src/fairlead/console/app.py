"""The console: a prompt at once, a host that follows, and lines carried out in the background."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, redirect_stderr, redirect_stdout
from functools import partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from fairlead.config.paths import state_folder
from fairlead.console.completion import LineCompleter
from fairlead.console.lines import RunningLine, RunningWork
from fairlead.console.prompt import (
    FILE_NAME,
    ConsolePrompt,
    LineHistory,
    PromptStdout,
    plain_on_dumb_terminals,
)
from fairlead.console.screen import Screen
from fairlead.console.typed_words import Suggestion
from fairlead.errors import FairleadError
from fairlead.terminal.output import printable, still

if TYPE_CHECKING:
    from fairlead.console.session import ConsoleOptions, ConsoleSession
    from fairlead.host.server_status import ServerStatus

REFRESH_SECONDS: Final = 0.5
LIVE_LINES: Final = 4
"""How much of a line is shown that is not whole yet."""
HOW_TO_LEAVE: Final = "`/quit` or Ctrl-D leaves"


class Console:
    """One run of the console. Heavy modules are loaded in the background, once the prompt is drawn."""

    def __init__(self, wanted: "ConsoleOptions") -> None:
        self._wanted = wanted
        self._above = PromptStdout(sys.stdout)
        self._screen = Screen()
        self._session: ConsoleSession | None = None
        self._opened = anyio.Event()
        self._left = anyio.Event()
        self._closed = anyio.Event()
        self._failure: FairleadError | None = None
        self._work = RunningWork(self._redraw)
        self._prompt = ConsolePrompt(
            self._above,
            toolbar=self._toolbar,
            live=self._live,
            completer=LineCompleter(self._suggest, self._suggest_from_servers),
            history=LineHistory(state_folder(os.environ) / FILE_NAME),
            on_interrupt=self._on_interrupt,
        )

    async def run(self) -> None:
        """Read lines and execute them, until the user leaves. Raises where the host cannot start."""
        with redirect_stdout(self._above), redirect_stderr(self._above), still():
            async with anyio.create_task_group() as tasks:
                for task in (self._above.show, self._hear_signals, self._refresh, self._host):
                    tasks.start_soon(task)
                async for line in self._prompt.lines():
                    tasks.start_soon(self._carry_out, line)
                self._work.cancel()
                await self._work.wait_idle()
                self._left.set()
                await self._closed.wait()
                tasks.cancel_scope.cancel()
            await self._above.wait_shown()
        if self._failure is not None:
            raise self._failure

    async def _host(self) -> None:
        try:
            open_session = await to_thread.run_sync(_load_hosting)
            async with open_session(self._wanted, self._prompt, self._work) as session:
                self._session = session
                self._opened.set()
                self._redraw()
                await self._left.wait()
        except FairleadError as exc:
            self._failure = exc
            self._prompt.leave()
        finally:
            self._opened.set()
            self._closed.set()

    # Lines.

    async def _carry_out(self, line: str) -> None:
        label = line.split()[0] if line.startswith("/") else "the model"
        try:
            if not await self._work.do(label, partial(self._do, line)):
                self._screen.say(f"cancelled: {label}")
        except FairleadError as exc:
            self._screen.error(exc)
        except Exception as exc:
            if os.environ.get("FAIRLEAD_DEBUG"):
                raise
            self._screen.say(f"error: this is a bug in Fairlead: {type(exc).__name__}")
            self._screen.say("hint: start the console with FAIRLEAD_DEBUG=1, do it again, and report that")

    async def _do(self, line: str) -> None:
        from fairlead.console.lines import carry_out  # which the host brings along

        await self._opened.wait()
        if self._session is not None:
            await carry_out(self._session, line)

    def _suggest(self, line: str) -> Iterable[Suggestion]:
        if self._session is None:
            return ()
        from fairlead.console.lines import suggestions

        return suggestions(self._session, line)

    async def _suggest_from_servers(self, line: str) -> Iterable[Suggestion]:
        if self._session is None:
            return ()
        from fairlead.console.lines import fetch_suggestions

        return await fetch_suggestions(self._session, line)

    # The terminal.

    def _on_interrupt(self) -> bool:
        """Ctrl-C at the prompt: ends what is under way, else clears the line, else says how to leave."""
        if self._work.is_busy:
            self._work.cancel()
            return True
        if self._prompt.is_empty:
            self._screen.say(HOW_TO_LEAVE)
        return False

    async def _hear_signals(self) -> None:
        """Handle Ctrl-C while no prompt reads keys, and signals that end the program."""
        if sys.platform == "win32":
            return
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if number != signal.SIGINT:
                    self._prompt.leave()
                elif not self._prompt.interrupt():
                    self._work.cancel()

    async def _refresh(self) -> None:
        """Have times and bars move while something is under way."""
        while True:
            await anyio.sleep(REFRESH_SECONDS)
            if self._work.is_busy:
                self._redraw()

    def _redraw(self) -> None:
        self._prompt.redraw()

    def _live(self) -> str:
        """The end of the line that the model is saying."""
        spoken = self._session.conversation.live if self._session else ""
        return printable(spoken.expandtabs(4)[-LIVE_LINES * get_terminal_size().columns :])

    def _toolbar(self) -> str:
        session = self._session
        statuses = session.host.status() if session else None
        model = session.conversation.model_name if session else None
        return toolbar(statuses, self._work.shown, model, get_terminal_size().columns)


def _load_hosting() -> (
    "Callable[[ConsoleOptions, ConsolePrompt, RunningWork], AbstractAsyncContextManager[ConsoleSession]]"
):
    """Load what the host needs, in a thread, so that typing goes on meanwhile."""
    from fairlead.console.hosting import open_session
    from fairlead.terminal.host_run import collect_garbage

    collect_garbage()
    return open_session


async def run_console(wanted: "ConsoleOptions") -> None:
    """Run the console until the user leaves."""
    with plain_on_dumb_terminals():
        await Console(wanted).run()


# The lines below the prompt: where servers stand, what is under way, and which model listens.

MOST_LINES: Final = 5
BAR_CELLS: Final = 20

_WORDS: Final = {
    "ready": "ready",
    "connecting": "starting",
    "error": "failed",
    "auth_required": "want a login",
    "needs_client_registration": "want a client",
    "idle": "idle",
}


def toolbar(
    servers: "Iterable[ServerStatus] | None", running: Sequence[RunningLine], model: str | None, width: int
) -> str:
    """The lines below the prompt. `servers` is None before the host has started."""
    parts = ["starting …" if servers is None else servers_line(servers)]
    if model:
        parts.append(printable(model))
    parts.append("Ctrl-C cancels" if running else "/help")
    lines = [_bar_line(each) for each in running[:MOST_LINES]]
    if len(running) > MOST_LINES:
        lines.append(f"and {len(running) - MOST_LINES} more")
    return "\n".join(f" {line}"[:width] for line in (" · ".join(parts), *lines))


def servers_line(servers: "Iterable[ServerStatus]") -> str:
    """Number of servers in each state."""
    counts = Counter(status.state for status in servers if status.enabled)
    if not counts:
        return "no servers"
    return ", ".join(f"{counts[state]} {words}" for state, words in _WORDS.items() if counts[state])


def _bar_line(running: RunningLine) -> str:
    parts = [printable(running.label)]
    if running.progress is not None and running.total:
        share = min(1.0, max(0.0, running.progress / running.total))
        full = round(share * BAR_CELLS)
        parts.append(f"[{'█' * full}{'░' * (BAR_CELLS - full)}] {share:.0%}")
    elif running.progress is not None:
        parts.append(f"{running.progress:g}")
    if running.message:
        parts.append(printable(running.message))
    parts.append(f"{running.seconds:.0f} s")
    return "  ".join(parts)
