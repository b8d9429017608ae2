"""Prompts for the user: one at a time, with a server's text marked as its own.

`LineReader` is where the answers are typed. Everything is written to stderr.

The person at the terminal: lines they type, read so that Ctrl-C leaves a question and not the program.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

import anyio
import click
from anyio import to_thread

from fairlead.auth.browser import open_in_browser
from fairlead.host.elicitation.forms import (
    ChoiceField,
    ChoicesField,
    Field,
    Form,
    FormContent,
    FormProblems,
    FormValue,
)
from fairlead.host.operator import (
    UNATTENDED,
    Ability,
    ApprovalAnswer,
    ApprovalRequest,
    FormAnswer,
    FormRequest,
    Operator,
    SampleRequest,
    UrlAnswer,
    UrlRequest,
)
from fairlead.terminal.colors import paint, use_color
from fairlead.terminal.output import is_interactive, printable, printable_lines, say, still

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult


AnswerT = TypeVar("AnswerT")

APPROVALS: Final[dict[str, ApprovalAnswer]] = {
    "once": "once",
    "session": "session",
    "always": "always",
    "no": "no",
    "cancel": "cancel",
}
_LASTING: Final = frozenset({"session", "always"})

_CHOICES_IN_A_LINE = 10


class LineReader(Protocol):
    """Source of lines that the user types."""

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask, with nothing else on the terminal. Text typed before is discarded. None is Ctrl-C."""
        ...

    async def read(self, prompt: str) -> str:
        """One line, as part of a question. Raises `EOFError` at the end of the input."""
        ...


class PersonOperator:
    """Operator that asks the user, line by line."""

    abilities: frozenset[Ability] = frozenset({"approve", "form", "url"})

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines
        self._turn = anyio.Lock()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Show the whole call and ask whether it may be made."""

        async def ask() -> ApprovalAnswer:
            say(f"\nAn agent wants to call `{printable(request.tool)}` of `{request.server_id}`.")
            say(f"  {printable_lines(request.reason)}")
            _show_whole("with", json.dumps(request.arguments, indent=2, ensure_ascii=False))
            if request.preview is not None:
                _show_whole("It would change:", request.preview)
            if request.claims:
                show_words("It says of itself:", "\n".join(request.claims))
            if request.hint is not None:
                say(f"  to settle it for good: {printable_lines(request.hint)}")
            choices = [word for word in APPROVALS if request.remember or word not in _LASTING]
            return APPROVALS[await self.choose("May it?", choices, "no")]

        return await self._ask_in_turn(ask, "cancel")

    async def elicit_form(self, elicitation: FormRequest) -> FormAnswer:
        """Ask for each field of a form, show what would be sent, and send it if the user agrees."""

        async def ask() -> FormAnswer:
            say(f"\n`{elicitation.server_id}` asks you something.")
            show_words("It says:", elicitation.message)
            for field in elicitation.form.fields:
                say(f"  - {printable(field.label)}{'' if field.required else ' (optional)'}")
            if await self.choose("Answer?", ["yes", "no"], None) == "no":
                return FormAnswer(action="decline")
            while True:
                answers = await self._fill_in_form(elicitation.form)
                _show_whole(
                    f"This goes to `{elicitation.server_id}`:", _render_answers(elicitation.form, answers)
                )
                match await self.choose("Send it?", ["yes", "no", "again"], None):
                    case "yes":
                        return FormAnswer(action="accept", content=answers)
                    case "no":
                        return FormAnswer(action="decline")
                    case _:
                        continue

        return await self._ask_in_turn(ask, FormAnswer(action="cancel"))

    async def elicit_url(self, elicitation: UrlRequest) -> UrlAnswer:
        """Show a page's whole URL, with its host apart, and ask whether to open it."""

        async def ask() -> UrlAnswer:
            url = elicitation.url
            say(f"\n`{elicitation.server_id}` wants you to open a page.")
            show_words("It says:", elicitation.message)
            say(f"  {printable(url.url)}")
            say(f"  leads to: {bold(printable(url.host))}")
            for warning in url.warnings:
                say(f"  warning: {printable(warning)}")
            opened = await self.choose("Open it?", ["yes", "no"], "no") == "yes"
            return "accept" if opened else "decline"

        return await self._ask_in_turn(ask, "cancel")

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Never called: there is no model here, so sampling is not declared."""
        raise AssertionError("it was not declared")

    async def open_url(self, url: str) -> bool:
        """Open a page that the user agreed to in their browser, if there is one."""
        opened = await open_in_browser(url)
        if not opened:
            say("no browser was started from here: please open the page yourself")
        return opened

    def notify(self, server_id: str, message: str) -> None:
        """Print a message."""
        say(f"`{server_id}`: {printable_lines(message)}")

    async def ask_line(self, prompt: str) -> str | None:
        """Ask for a line of text, for a command of ours. None is Ctrl-C."""

        async def ask() -> str | None:
            return await self._line(f"{prompt}: ")

        return await self._ask_in_turn(ask, None)

    async def pick(self, prompt: str, words: Sequence[str], default: str | None = None) -> str | None:
        """Ask for one of the words, for a command of ours. None is Ctrl-C."""

        async def ask() -> str | None:
            return await self.choose(prompt, words, default)

        return await self._ask_in_turn(ask, None)

    async def _ask_in_turn(self, ask: Callable[[], Awaitable[AnswerT]], otherwise: AnswerT) -> AnswerT:
        """Ask when it is this question's turn. Ctrl-C and the end of the input are no answer: `otherwise`."""
        async with self._turn:
            try:
                answer = await self._lines.alone(ask)
            except anyio.get_cancelled_exc_class():
                say("\nthis answer is not needed any more")
                raise
        if answer is None:
            say("\nleft unanswered")
            return otherwise
        return answer

    # Reading.

    async def choose(self, prompt: str, words: Sequence[str], default: str | None) -> str:
        """Ask until one of the words is typed, or its beginning. Enter alone is the default."""
        shown = "/".join(word.upper() if word == default else word for word in words)
        while True:
            typed = (await self._line(f"{prompt} [{shown}]: ")).strip().casefold()
            if not typed and default is not None:
                return default
            meant = [word for word in words if typed and word.startswith(typed)]
            if len(meant) == 1:
                return meant[0]
            say(f"  please type one of {', '.join(words)}")

    async def _fill_in_form(self, form: Form) -> dict[str, FormValue]:
        """Answers that fit the form. A blank one says that there is none, where there would be a default."""
        return {
            field.name: answer for field in form.fields if (answer := await self._answer(field)) is not None
        }

    async def _answer(self, field: Field) -> FormValue | None:
        """Ask for one field until the answer fits. None stands for the default, or for nothing."""
        alone = Form(fields=(field,))
        say(f"\n{bold(printable(field.label))}{' (required)' if field.required else ''}")
        if field.description:
            show_words(None, field.description)
        say(f"  {printable(field.expects)}")
        if isinstance(field, ChoiceField | ChoicesField) and len(field.choices) > _CHOICES_IN_A_LINE:
            show_words(None, "\n".join(choice.label for choice in field.choices))
        for default in alone.defaults().values():
            without = "" if field.required else ", a space for none"
            say(f"  Enter takes {printable(json.dumps(default, ensure_ascii=False))}{without}")
        while True:
            typed = await self._line("> ")
            checked = alone.check({field.name: typed} if typed else {})
            if not isinstance(checked, FormProblems):
                return checked.content.get(field.name, "") if typed else None
            say(f"  {printable(checked.by_field[field.name])}")

    async def _line(self, prompt: str) -> str:
        """One line of text. Raises `EOFError` at the end of the input."""
        while True:
            line = await self._lines.read(prompt)
            if line.isprintable():
                return line
            say("  there are keys in it that are no text; please type it again")


def _render_answers(form: Form, answers: dict[str, FormValue]) -> str:
    checked = form.check(answers)
    assert isinstance(checked, FormContent), "each answer was checked"
    return json.dumps(checked.content, indent=2, ensure_ascii=False)


# Showing.


def show_words(lead: str | None, words: str) -> None:
    """Show a server's text, marked so that it cannot be taken for Fairlead's own."""
    if words and lead:
        say(lead)
    for line in words.split("\n") if words else ():
        say(f"  | {printable(line)}")


def _show_whole(lead: str, document: str) -> None:
    say(f"  {lead}")
    for line in document.split("\n"):
        say(f"    {printable(line)}")


def bold(text: str) -> str:
    """A text in bold."""
    return paint(text, "bold") if use_color(sys.stderr) else text


_MAX_TYPED_BYTES = 65_536
_END_OF_INPUT = b"\x04"


def operator_here() -> Operator:
    """The operator for this process: the user at the terminal, or one that refuses."""
    return TerminalOperator() if is_interactive() else UNATTENDED


class TerminalOperator(PersonOperator):
    """Operator that asks the user at the terminal."""

    def __init__(self) -> None:
        super().__init__(TerminalLines())


class TerminalLines:
    """Lines read from the terminal."""

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask, with all displays paused. None is Ctrl-C, or the end of the input."""
        with still():
            forget_what_was_typed()
            return await _ask_until_interrupted(ask)

    async def read(self, prompt: str) -> str:
        """One line. Raises `EOFError` at the end of the input."""
        click.echo(prompt, nl=False, err=True)
        text = (await _read_typed_bytes()).decode(errors="replace")
        if not text:
            raise EOFError
        return text.rstrip("\r\n")


async def ask_yes_or_no(question: str, *, default: Literal["yes", "no"]) -> bool:
    """Ask a yes-or-no question of a command. Ctrl-C ends the command; the end of the input is a no."""
    with still():
        forget_what_was_typed()
        try:
            return await TerminalOperator().choose(question, ["yes", "no"], default) == "yes"
        except EOFError:
            return False


async def ask_for_line(prompt: str) -> str | None:
    """Ask for a line for a command of ours, at a terminal or from a pipe. None at the end of the input.

    It can be of any length, and broken where it was pasted from. Ctrl-C ends the command.
    """
    click.echo(prompt, nl=False, err=True)
    typed = b""
    with _lines_of_any_length():
        while not typed.endswith((b"\n", _END_OF_INPUT)):
            more = await _read_typed_bytes()
            if not more:
                break
            typed += more
    line = typed.decode(errors="replace").rstrip("\r\n\x04")
    return line if line or typed.endswith(b"\n") else None


async def _ask_until_interrupted(ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
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


async def _read_typed_bytes() -> bytes:
    """Input from the terminal: a line as a rule. Cancelling it leaves no reader behind."""
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
    """Discard pending input, so that text typed before a prompt is no answer to it."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
