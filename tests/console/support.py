"""What the tests of the console share: servers to configure, and a session without a terminal."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.console.conversation import ChatConversation
from fairlead.console.hosting import PromptOperator
from fairlead.console.screen import Screen
from fairlead.console.session import ConsoleSession
from fairlead.console.typed_words import Suggestion
from fairlead.console.verbs import load_verbs
from fairlead.host.host import Host
from fairlead.loop.provider import ChatModel
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.asking import AskingServer
from tests.host.support import unasked

AnswerT = TypeVar("AnswerT")

SECONDS = 30


def configure(
    machine: Machine, *, asking: bool = False, more: dict[str, Any] | None = None, **script: Any
) -> ScriptedServer:
    """Have one server, `x`, in the user's file, and whatever else there is to be in it."""
    kind = AskingServer if asking else ScriptedServer
    server = kind(machine.home / "record", **script)
    machine.write_user(json.dumps({"servers": {"x": server.entry()}, **(more or {})}))
    return server


class TypedLines:
    """A person whose answers are known before they are asked. When there are no more, they leave."""

    def __init__(self, answers: Iterable[str]) -> None:
        self.answers = [*answers]
        self.prompts: list[str] = []

    async def alone(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | None:
        try:
            return await ask()
        except EOFError:
            return None

    async def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


class Shown:
    """A session, and what it showed and asked."""

    def __init__(self, session: ConsoleSession, lines: list[str], typed: TypedLines) -> None:
        self.session = session
        self.lines = lines
        self.typed = typed
        self.prompts = typed.prompts

    async def does(self, line: str) -> str:
        """Carry out a line, and return what that shows."""
        from fairlead.console.lines import carry_out

        before = len(self.lines)
        await carry_out(self.session, line)
        return "\n".join(self.lines[before:])

    def completes(self, line: str) -> list[str]:
        """What Tab offers at the end of a line."""
        from fairlead.console.lines import suggestions

        return _completed(line, suggestions(self.session, line))

    async def asks(self, line: str) -> list[str]:
        """What a server suggests besides."""
        from fairlead.console.lines import fetch_suggestions

        return _completed(line, await fetch_suggestions(self.session, line))


def _completed(line: str, suggestions: Iterable[Suggestion]) -> list[str]:
    return [line[: len(line) - each.replaces] + each.text for each in suggestions]


@asynccontextmanager
async def session_on(machine: Machine, *answers: str) -> AsyncGenerator[Shown]:
    """A session with a real host, and a person who gives these answers."""
    lines: list[str] = []
    typed = TypedLines(answers)
    person = PromptOperator(typed)
    loaded = machine.load()
    with anyio.fail_after(SECONDS):
        async with Host.open(loaded, env=machine.env, cwd=machine.project, operator=person) as host:
            conversation = ChatConversation(host.toolset, lambda: None)
            conversation.choose(loaded, None, machine.env)
            session = ConsoleSession(
                host=host,
                configuration=LiveConfiguration(loaded, machine.load, host.reload),
                screen=Screen(lines.append),
                person=person,
                conversation=conversation,
                env=machine.env,
                verbs=load_verbs(),
                attached=[],
                leave=lambda: None,
            )
            yield Shown(session, lines, typed)


@asynccontextmanager
async def session_with(
    machine: Machine, servers: dict[str, Any], *, model: ChatModel | None = None, **document: Any
) -> AsyncGenerator[Shown]:
    """A session with these servers, whose calls nobody is asked about unless their entries say so."""
    machine.write_user(json.dumps(unasked(servers, **document)))
    async with session_on(machine) as console:
        console.session.conversation.model = model
        yield console
