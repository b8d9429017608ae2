"""Prompt of the console, the only reader of the terminal. A request replaces it, and a draft is restored.

A stream whose lines appear above the prompt, from any writer and thread.

The lines a person typed, to be had again with the arrow keys: a private file, without what is secret.
"""

import asyncio
import io
import json
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO, TypeVar, cast

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import (
    Application,
    create_app_session,
    get_app_or_none,
    get_app_session,
    in_terminal,
)
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import DummyHistory, History
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from fairlead.config.document.files import read_text, write_atomic
from fairlead.config.secrets.masking import SECRETS
from fairlead.errors import ConfigError


class PromptStdout(io.TextIOBase):
    """Replacement of stdout and stderr while there is a prompt. An incomplete line waits.

    To be made before it takes their place, while the terminal's own are there.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._output = get_app_session().output
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []
        self._wanted = anyio.Event()
        self._turn = anyio.Lock()

    def write(self, text: str, /) -> int:
        """Store text, to be shown with the rest of its line."""
        ends_a_line = "\n" in text  # which refuses bytes, as code that probes the stream's type expects
        self._waiting.append(text)
        if ends_a_line:
            self._loop.call_soon_threadsafe(self._want)
        return len(text)

    def isatty(self) -> bool:
        """True: the output ends up on a terminal."""
        return True

    def fileno(self) -> int:
        """File descriptor of the terminal."""
        return self._terminal.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - it is no variable
        """Encoding of the terminal."""
        return self._terminal.encoding

    async def show(self) -> None:
        """Show what is written, as it comes, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self.wait_shown()

    async def wait_shown(self) -> None:
        """Wait until every complete line written so far is on the terminal."""
        async with self._turn:
            text = self._whole_lines()
            if text:
                async with in_terminal():
                    self._output.write_raw(text)
                    self._output.flush()

    def _want(self) -> None:
        self._wanted.set()

    def _whole_lines(self) -> str:
        count = len(self._waiting)  # a thread may be adding more
        whole, newline, rest = "".join(self._waiting[:count]).rpartition("\n")
        self._waiting[:count] = [rest]
        return whole + newline


AnswerT = TypeVar("AnswerT")

PAUSE_SECONDS: Final = 0.6
"""How long the user must not have typed before a request takes the place of the line."""

REDRAW_SECONDS: Final = 0.05
"""How often what moves is drawn, at most: a model may say hundreds of words a second."""

SIGN: Final = "> "
_STYLE: Final = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "prompt": "bold"})


class _Displaced(Exception):
    """A request to the user wants the terminal."""


@contextmanager
def plain_on_dumb_terminals() -> Generator[None]:
    """Write no control sequences to a terminal without support for them, for the length of the block."""
    if not is_dumb_terminal():
        yield
        return
    with create_app_session(output=PlainTextOutput(sys.stdout)):
        yield


class ConsolePrompt:
    """Lines that the user types, and requests between them."""

    def __init__(
        self,
        above: PromptStdout,
        *,
        toolbar: Callable[[], str],
        live: Callable[[], str],
        completer: Completer,
        history: History,
        on_interrupt: Callable[[], bool],
    ) -> None:
        self._above = above
        self._live = live
        self._on_interrupt = on_interrupt
        self._terminal = anyio.Lock()
        """Its holder reads from the terminal."""
        self._draft = Document()
        self._typed_at = 0.0
        self._questions = 0
        self._is_over = False
        self._lines: PromptSession[str] = PromptSession(
            self._message,
            completer=completer,
            complete_while_typing=False,
            bottom_toolbar=toolbar,
            key_bindings=self._keys(),
            history=history,
            style=_STYLE,
        )
        self._lines.app.min_redraw_interval = REDRAW_SECONDS
        self._lines.default_buffer.on_text_changed += self._note_typing
        self._answers: PromptSession[str] = PromptSession(
            style=_STYLE, bottom_toolbar=toolbar, history=DummyHistory()
        )

    # Lines.

    async def lines(self) -> AsyncGenerator[str]:
        """The typed lines, until the user leaves."""
        while not self._is_over:
            async with self._terminal:
                line = None if self._is_over else await self._line()
            if line and line.strip():
                yield line.strip()

    def redraw(self) -> None:
        """Redraw the display of what is under way."""
        for session in (self._lines, self._answers):
            if session.app.is_running:
                session.app.invalidate()

    def leave(self) -> None:
        """End the lines."""
        self._is_over = True
        self._exit(self._lines, EOFError)
        self._exit(self._answers, EOFError)

    async def _line(self) -> str | None:
        """One line; None where a request comes first, or the user left."""
        app = self._lines.app
        app.erase_when_done = False
        try:
            return await self._lines.prompt_async(
                default=self._draft, pre_run=self._displace, set_exception_handler=False, handle_sigint=False
            )
        except _Displaced:
            return None
        except EOFError:
            self._is_over = True
            return None
        finally:
            if not app.erase_when_done:
                self._draft = Document()

    def _message(self) -> AnyFormattedText:
        live = self._live()
        return [("", f"{live}\n" if live else ""), ("class:prompt", SIGN)]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def interrupt(event: KeyPressEvent) -> None:
            if not self._on_interrupt():
                event.current_buffer.reset()

        keys.add("c-c")(interrupt)
        return keys

    @property
    def is_empty(self) -> bool:
        """Whether nothing is typed yet."""
        return not self._lines.default_buffer.text

    def _note_typing(self, _buffer: object) -> None:
        self._typed_at = time.monotonic()

    # Questions.

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask in the place of the prompt, when the user pauses typing. None is Ctrl-C, or Ctrl-D."""
        self._questions += 1
        try:
            await self._pause()
            self._displace()
            async with self._terminal:
                return None if self._is_over else await self._ask_fresh(ask)
        finally:
            self._questions -= 1

    async def read(self, prompt: str) -> str:
        """One line, as part of the answer to a request. Raises `EOFError` at Ctrl-D."""
        await self._above.wait_shown()
        return await self._answers.prompt_async(prompt, set_exception_handler=False, handle_sigint=False)

    def interrupt(self) -> bool:
        """Cancel the request at the prompt, for a Ctrl-C that came as a signal. False where there is none."""
        return self._exit(self._answers, KeyboardInterrupt)

    async def _ask_fresh(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        self._forget_typed()
        try:
            return await ask()
        except (EOFError, KeyboardInterrupt):
            return None
        except anyio.get_cancelled_exc_class():
            self._forget_typed()  # the answer to a question that is over is no line for a model
            raise

    @staticmethod
    def _forget_typed() -> None:
        from fairlead.terminal.prompts import forget_what_was_typed

        forget_what_was_typed()
        clear_typeahead(get_app_session().input)

    async def _pause(self) -> None:
        """Return when nothing has been typed for a moment, or a line is done."""
        while _reading_app(self._lines) is not None:
            left = self._typed_at + PAUSE_SECONDS - time.monotonic()
            if left <= 0 or self.is_empty:
                return
            await anyio.sleep(left)

    def _displace(self) -> None:
        """Have the prompt make room for a request, and keep what is typed so far."""
        app = _reading_app(self._lines)
        if self._questions and app is not None:
            self._draft = self._lines.default_buffer.document
            self._lines.app.erase_when_done = True
            app.exit(exception=_Displaced)

    @staticmethod
    def _exit(session: PromptSession[str], why: type[BaseException]) -> bool:
        app = _reading_app(session)
        if app is not None:
            app.exit(exception=why)
        return app is not None


def _reading_app(session: PromptSession[str]) -> Application[str] | None:
    """The application that reads a line for a session: on a dumb terminal another one with its layout."""
    running = get_app_or_none()
    for app in (session.app, running):
        if app is not None and app.layout is session.layout and app.is_running and not app.is_done:
            return app
    return None


FILE_NAME: Final = "console_history"
MAX_LINES: Final = 1000

_MAY_BE_SECRET: Final = ("=", "{", "://")
"""What there is in a command with arguments, or with the address that a login ended at."""

logger = logging.getLogger(__name__)


class LineHistory(History):
    """History of lines, stored between runs. Commands with arguments are remembered in this run only."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The lines of earlier runs, the newest first."""
        try:
            kept = read_text(self._path).splitlines() if self._path.exists() else []
            if len(kept) > 2 * MAX_LINES:
                kept = kept[-MAX_LINES:]
                write_atomic(self._path, "".join(f"{line}\n" for line in kept), mode=0o600)
        except ConfigError:
            logger.warning("the lines of earlier runs cannot be read", exc_info=True)
            return []
        return [line for entry in reversed(kept) if (line := _read(entry)) is not None]

    def store_string(self, string: str) -> None:
        """Store a line, if that is allowed."""
        if not is_kept(string):
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{json.dumps(string)}\n")
        except OSError:
            logger.warning("this line is not kept for later runs", exc_info=True)


def is_kept(line: str) -> bool:
    """Whether a line may be stored in the history file."""
    if line.startswith("/") and any(sign in line for sign in _MAY_BE_SECRET):
        return False
    return SECRETS.mask(line) == line


def _read(entry: str) -> str | None:
    try:
        value = cast("object", json.loads(entry))
    except ValueError:
        return None
    return value if isinstance(value, str) else None
