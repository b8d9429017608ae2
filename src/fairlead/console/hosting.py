"""The host behind the console, and its operator: the heavy part, loaded after the prompt is drawn.

`PromptOperator` asks the user at the prompt for approvals and elicitations.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.config.load import LoadedConfig
from fairlead.console.conversation import ChatConversation
from fairlead.console.lines import RunningWork
from fairlead.console.prompt import ConsolePrompt
from fairlead.console.screen import Screen
from fairlead.console.session import ConsoleOptions, ConsoleSession
from fairlead.console.verbs import load_verbs
from fairlead.errors import CallDenied, ConfigError, ConsentRequired, ModelFailed
from fairlead.events import Event, StateChanged, ToolsQuarantined
from fairlead.host.events import Subscriber
from fairlead.host.host import Host
from fairlead.host.model.bundles import select
from fairlead.host.operator import Ability, ApprovalAnswer, ApprovalRequest, SampleRequest
from fairlead.loop.provider import ChatModel
from fairlead.loop.run import sample, words_in
from fairlead.terminal.log_output import shorten_warnings
from fairlead.terminal.output import printable, printable_lines, say
from fairlead.terminal.prompts import LineReader, PersonOperator, show_words
from fairlead.terminal.trace_export import tracing

if TYPE_CHECKING:
    from mcp_types import CreateMessageResult


WITH_A_MODEL: Final = PersonOperator.abilities | frozenset[Ability]({"sample"})


class PromptOperator(PersonOperator):
    """Operator that asks the user at the prompt, and remembers the answers to approvals."""

    def __init__(self, lines: LineReader) -> None:
        super().__init__(lines)
        self.answers: list[tuple[ApprovalRequest, ApprovalAnswer]] = []
        """What was answered in this run, the oldest first."""
        self._model: ChatModel | None = None
        self._may_sample: set[str] = set()

    def take_model(self, model: ChatModel | None) -> None:
        """Set the model that answers sampling requests; without one, sampling is not offered to servers."""
        self._model = model
        self.abilities = WITH_A_MODEL if model is not None else PersonOperator.abilities

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Show the whole call and ask whether it may be made."""
        answer = await super().approve(request)
        self.answers.append((request, answer))
        return answer

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Show a server's sampling request, and send it to the model if the user agrees."""
        assert self._model is not None, "it was not declared"
        if request.server_id not in self._may_sample:
            answer = await self._ask_in_turn(lambda: self._ask_to_sample(request), "no")
            if answer == "no":
                raise CallDenied(
                    f"`{request.server_id}` may not use the model: the user rejected its sampling request"
                )
            if answer == "session":
                self._may_sample.add(request.server_id)
        try:
            return await sample(self._model, request)
        except ModelFailed as exc:
            say(f"`{request.server_id}` got no answer from the model: {printable_lines(str(exc))}")
            raise

    async def _ask_to_sample(self, request: SampleRequest) -> str:
        say(f"\n`{request.server_id}` wants to ask your model, for up to {request.max_tokens:,} tokens.")
        if request.params.system_prompt:
            show_words("System prompt:", request.params.system_prompt)
        for message in request.params.messages:
            show_words(f"It has the {printable(message.role)} say:", words_in(message.content_as_list))
        return await self.choose("May it?", ["once", "session", "no"], "no")


class _EventDisplay(Subscriber):
    """Shows the host's events that the user should know of."""

    def __init__(self, screen: Screen, work: RunningWork) -> None:
        super().__init__()
        self._screen = screen
        self._work = work

    def put(self, event: Event) -> None:
        """Show an event."""
        self._work.note(event)
        match event:
            case StateChanged(state="auth_required"):
                self._screen.warn(f"`{event.server_id}` wants a login", f"`/mcp login {event.server_id}`")
            case StateChanged(state="error" | "needs_client_registration") if event.reason:
                self._screen.warn(event.reason)
            case StateChanged(state="connecting") if event.reason:
                self._screen.words_of(f"{event.server_id}: {event.reason}")  # a download before its start
            case ToolsQuarantined():
                self._screen.warn(
                    f"`{event.server_id}`: {', '.join(event.tools)} are not what was reviewed, and held back",
                    f"`/mcp review {event.server_id}`",
                )
            case _:
                pass


@asynccontextmanager
async def open_session(
    wanted: ConsoleOptions, prompt: ConsolePrompt, work: RunningWork
) -> AsyncGenerator[ConsoleSession]:
    """Run a host for the length of the block, and connect every server in the background."""
    shorten_warnings()
    loaded = wanted.load()
    select(loaded, wanted.bundle)  # raises where there is no such bundle
    screen = Screen()
    person = PromptOperator(prompt)
    conversation = ChatConversation(lambda: host.toolset(wanted.bundle), prompt.redraw)
    conversation.choose(loaded, wanted.model, os.environ)
    person.take_model(conversation.model)
    async with (
        tracing() as tracer,
        Host.open(loaded, operator=person, tracer=tracer) as host,
        anyio.create_task_group() as tasks,
    ):

        async def take(changed: LoadedConfig) -> None:
            conversation.choose(changed, wanted.model, os.environ)
            person.take_model(conversation.model)
            await host.reload(changed)
            tasks.start_soon(_connect, host, screen)

        def show_reload(problem: ConfigError | None) -> None:
            if problem is None:
                screen.say("the configuration changed, and is in effect")
            else:
                screen.warn("the configuration changed, but does not load; the old one stays")
                screen.error(problem)

        configuration = LiveConfiguration(loaded, wanted.load, take)
        session = ConsoleSession(
            host=host,
            configuration=configuration,
            screen=screen,
            person=person,
            conversation=conversation,
            env=os.environ,
            verbs=load_verbs(),
            attached=[],
            leave=prompt.leave,
        )
        with host.bus.listening(_EventDisplay(screen, work)):
            tasks.start_soon(configuration.watch, show_reload)
            tasks.start_soon(_connect, host, screen)
            yield session
            tasks.cancel_scope.cancel()


async def _connect(host: Host, screen: Screen) -> None:
    """Connect what is switched on and not yet up, so that everything is there when it is wanted.

    No call needs these servers yet, so the user is not prompted to log in to them.
    """
    wanted = [each.server_id for each in host.status() if each.enabled and each.state == "idle"]
    with host.logins.without_login_requests(wanted):
        failures = await host.connect(*wanted)
    for server_id, failure in failures.items():
        if isinstance(failure, ConsentRequired):  # of which no state tells
            screen.warn(str(failure), f"`/mcp review {server_id}` shows it, and lets it start")
