"""Questions to a person: one at a time, and a server's words marked as its own.

What is asked is here; where the answers are typed is up to `Lines`. Everything is said on stderr.
"""

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
import click

from fairlead.auth.opening import open_in_browser
from fairlead.cli.output import printable, printable_lines, say
from fairlead.host.forms import Answers, ChoiceField, ChoicesField, Field, Form, Problems, Value
from fairlead.host.operator import (
    Ability,
    ApprovalAnswer,
    ApprovalQuestion,
    FormAnswer,
    FormQuestion,
    SampleRequest,
    UrlAnswer,
    UrlQuestion,
)

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


class Lines(Protocol):
    """Where a person types."""

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        """Ask, with nothing else on the terminal. What was typed before is no answer. None is Ctrl-C."""
        ...

    async def read(self, prompt: str) -> str:
        """One line, as part of a question. Raises `EOFError` at the end of the input."""
        ...


class PersonOperator:
    """Asks a person, line by line."""

    abilities: frozenset[Ability] = frozenset({"approve", "form", "url"})

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._turn = anyio.Lock()

    async def approve(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Show the whole call and ask whether it may be made."""

        async def ask() -> ApprovalAnswer:
            say(f"\nAn agent wants to call `{printable(question.tool)}` of `{question.server_id}`.")
            say(f"  {printable_lines(question.reason)}")
            _show_whole("with", json.dumps(question.arguments, indent=2, ensure_ascii=False))
            if question.claims:
                show_words("It says of itself:", "\n".join(question.claims))
            choices = [word for word in APPROVALS if question.remember or word not in _LASTING]
            return APPROVALS[await self.choose("May it?", choices, "no")]

        return await self._asked(ask, "cancel")

    async def elicit_form(self, question: FormQuestion) -> FormAnswer:
        """Go through a form field by field, show what would be sent, and send it if that is wanted."""

        async def ask() -> FormAnswer:
            say(f"\n`{question.server_id}` asks you something.")
            show_words("It says:", question.message)
            for field in question.form.fields:
                say(f"  - {printable(field.label)}{'' if field.required else ' (optional)'}")
            if await self.choose("Answer?", ["yes", "no"], None) == "no":
                return FormAnswer(action="decline")
            while True:
                answers = await self._filled_in(question.form)
                _show_whole(f"This goes to `{question.server_id}`:", _as_sent(question.form, answers))
                match await self.choose("Send it?", ["yes", "no", "again"], None):
                    case "yes":
                        return FormAnswer(action="accept", content=answers)
                    case "no":
                        return FormAnswer(action="decline")
                    case _:
                        continue

        return await self._asked(ask, FormAnswer(action="cancel"))

    async def elicit_url(self, question: UrlQuestion) -> UrlAnswer:
        """Show a page's address, whole and with its host apart, and ask whether to open it."""

        async def ask() -> UrlAnswer:
            url = question.url
            say(f"\n`{question.server_id}` wants you to open a page.")
            show_words("It says:", question.message)
            say(f"  {printable(url.url)}")
            say(f"  leads to: {bold(printable(url.host))}")
            for warning in url.warnings:
                say(f"  warning: {printable(warning)}")
            opened = await self.choose("Open it?", ["yes", "no"], "no") == "yes"
            return "accept" if opened else "decline"

        return await self._asked(ask, "cancel")

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Nothing: there is no model here, and it is not declared."""
        raise AssertionError("it was not declared")

    async def open_url(self, url: str) -> bool:
        """Open a page that the person agreed to in their browser, if there is one."""
        opened = await open_in_browser(url)
        if not opened:
            say("no browser was started from here: please open the page yourself")
        return opened

    def notify(self, server_id: str, message: str) -> None:
        """Tell the person something."""
        say(f"`{server_id}`: {printable_lines(message)}")

    async def asked(self, prompt: str) -> str | None:
        """Ask for a line of text, for a command of ours. None is Ctrl-C."""

        async def ask() -> str | None:
            return await self._line(f"{prompt}: ")

        return await self._asked(ask, None)

    async def chosen(self, prompt: str, words: Sequence[str], default: str | None = None) -> str | None:
        """Ask for one of the words, for a command of ours. None is Ctrl-C."""

        async def ask() -> str | None:
            return await self.choose(prompt, words, default)

        return await self._asked(ask, None)

    async def _asked(self, ask: Callable[[], Awaitable[AnswerT]], otherwise: AnswerT) -> AnswerT:
        """Ask when it is this question's turn. Ctrl-C and the end of the input are no answer: `otherwise`."""
        async with self._turn:
            try:
                answer = await self._lines.alone(ask)
            except anyio.get_cancelled_exc_class():
                say("\nnobody waits for this answer any more")
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

    async def _filled_in(self, form: Form) -> dict[str, Value]:
        """Answers that fit the form. A blank one says that there is none, where there would be a default."""
        return {
            field.name: answer for field in form.fields if (answer := await self._answer(field)) is not None
        }

    async def _answer(self, field: Field) -> Value | None:
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
            if not isinstance(checked, Problems):
                return checked.content.get(field.name, "") if typed else None
            say(f"  {printable(checked.by_field[field.name])}")

    async def _line(self, prompt: str) -> str:
        """One line of text. Raises `EOFError` at the end of the input."""
        while True:
            line = await self._lines.read(prompt)
            if line.isprintable():
                return line
            say("  there are keys in it that are no text; please type it again")


def _as_sent(form: Form, answers: dict[str, Value]) -> str:
    checked = form.check(answers)
    assert isinstance(checked, Answers), "each answer was checked"
    return json.dumps(checked.content, indent=2, ensure_ascii=False)


# Showing.


def show_words(lead: str | None, words: str) -> None:
    """Show a server's words so that they cannot be taken for ours."""
    if words and lead:
        say(lead)
    for line in words.split("\n") if words else ():
        say(f"  | {printable(line)}")


def _show_whole(lead: str, document: str) -> None:
    say(f"  {lead}")
    for line in document.split("\n"):
        say(f"    {printable(line)}")


def bold(text: str) -> str:
    """A text that stands out."""
    return text if os.environ.get("NO_COLOR") else click.style(text, bold=True)
