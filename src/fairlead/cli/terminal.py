"""The person at the terminal: lines they type, read so that Ctrl-C leaves a question and not the program."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar

import anyio
import click
from anyio import to_thread

from fairlead.cli.asking import PersonOperator
from fairlead.cli.displays import still
from fairlead.cli.output import is_interactive
from fairlead.host.operator import UNATTENDED, Operator

AnswerT = TypeVar("AnswerT")

_MAX_TYPED_BYTES = 65_536
_END_OF_INPUT = b"\x04"


def operator_here() -> Operator:
    """Whoever can be asked: the person at the terminal, or nobody."""
    return TerminalOperator() if is_interactive() else UNATTENDED


class TerminalOperator(PersonOperator):
    """Asks the person at the terminal."""

    def __init__(self) -> None:
        super().__init__(TerminalLines())


class TerminalLines:
    """Lines as the terminal hands them over."""

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask, while nothing moves on the terminal. None is Ctrl-C, or the end of the input."""
        with still():
            forget_what_was_typed()
            return await _unless_interrupted(ask)

    async def read(self, prompt: str) -> str:
        """One line. Raises `EOFError` at the end of the input."""
        click.echo(prompt, nl=False, err=True)
        text = (await _typed()).decode(errors="replace")
        if not text:
            raise EOFError
        return text.rstrip("\r\n")


async def ask_yes_or_no(question: str, *, default: Literal["yes", "no"]) -> bool:
    """Ask something for a command of ours. Ctrl-C ends the command; the end of the input is a no."""
    with still():
        forget_what_was_typed()
        try:
            return await TerminalOperator().choose(question, ["yes", "no"], default) == "yes"
        except EOFError:
            return False


async def typed_line(prompt: str) -> str | None:
    """Ask for a line for a command of ours, at a terminal or from a pipe. None at the end of the input.

    It can be of any length, and broken where it was pasted from. Ctrl-C ends the command.
    """
    click.echo(prompt, nl=False, err=True)
    typed = b""
    with _lines_of_any_length():
        while not typed.endswith((b"\n", _END_OF_INPUT)):
            more = await _typed()
            if not more:
                break
            typed += more
    line = typed.decode(errors="replace").rstrip("\r\n\x04")
    return line if line or typed.endswith(b"\n") else None


async def _unless_interrupted(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
    answer: AnswerT | None = None
    with _interrupts() as interrupts:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at, interrupts, tasks.cancel_scope)
            with suppress(EOFError):
                answer = await ask()
            tasks.cancel_scope.cancel()
    return answer


async def _cancel_at(interrupts: AsyncIterable[object], scope: anyio.CancelScope) -> None:
    async for _ in interrupts:
        scope.cancel()


@contextmanager
def _interrupts() -> Generator[AsyncIterable[object]]:
    """Each Ctrl-C, for the length of the block; afterwards it means again what it meant before."""
    if sys.platform == "win32":  # where it ends the program, as ever
        yield _never()
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
            yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)  # the receiver would leave the default behind


async def _never() -> AsyncGenerator[object]:
    await anyio.sleep_forever()
    yield


async def _typed() -> bytes:
    """What comes from the terminal: a line as a rule. Whoever gives up leaves no reader behind."""
    stdin = sys.stdin.fileno()
    if sys.platform == "win32":
        return await to_thread.run_sync(os.read, stdin, _MAX_TYPED_BYTES, abandon_on_cancel=True)
    with suppress(PermissionError):  # a file, which is readable at any time
        await anyio.wait_readable(stdin)
    return os.read(stdin, _MAX_TYPED_BYTES)


@contextmanager
def _lines_of_any_length() -> Generator[None]:
    """Take what is typed as it comes: a terminal that waits for a line cuts it, some at 1,024 characters."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    changed = termios.tcgetattr(stdin)
    changed[3] &= ~(termios.ICANON | termios.ECHOCTL)  # else the end of a line would show as `^J`
    termios.tcsetattr(stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSANOW, before)


def forget_what_was_typed() -> None:
    """What was typed before a question was asked is no answer to it."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
