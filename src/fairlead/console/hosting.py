"""The host behind the console. This is the heavy part, which is loaded when the prompt is there already."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from fairlead.cli.live_configuration import LiveConfiguration
from fairlead.cli.one_line_logs import shorten_warnings
from fairlead.cli.traces import tracing
from fairlead.config.load import LoadedConfig
from fairlead.console.conversation import Conversation
from fairlead.console.person import PromptOperator
from fairlead.console.prompt import Prompt
from fairlead.console.screen import Screen
from fairlead.console.session import Session, Wanted
from fairlead.console.verbs import load_verbs
from fairlead.console.work import Work
from fairlead.errors import ConfigError, ConsentRequired
from fairlead.events import Event, StateChanged, ToolsQuarantined
from fairlead.host.bundles import select
from fairlead.host.bus import Subscriber
from fairlead.host.host import Host


class _Follower(Subscriber):
    """Hears what happens in the host, and shows what a person should know."""

    def __init__(self, screen: Screen, work: Work) -> None:
        super().__init__()
        self._screen = screen
        self._work = work

    def put(self, event: Event) -> None:
        """Take an event in."""
        self._work.note(event)
        match event:
            case StateChanged(state="auth_required"):
                self._screen.warn(f"`{event.server_id}` wants a login", f"`/mcp login {event.server_id}`")
            case StateChanged(state="error") if event.reason:
                self._screen.warn(event.reason)
            case ToolsQuarantined():
                self._screen.warn(
                    f"`{event.server_id}`: {', '.join(event.tools)} are not what was reviewed, and held back",
                    f"`/mcp review {event.server_id}`",
                )
            case _:
                pass


@asynccontextmanager
async def open_session(wanted: Wanted, prompt: Prompt, work: Work) -> AsyncGenerator[Session]:
    """Run a host for the length of the block, with every server connected beside, and what verbs need."""
    shorten_warnings()
    loaded = wanted.load()
    select(loaded, wanted.bundle)  # raises where there is no such bundle
    screen = Screen()
    person = PromptOperator(prompt)
    conversation = Conversation(lambda: host.toolset(wanted.bundle), prompt.redraw)
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

        def noted(problem: ConfigError | None) -> None:
            if problem is None:
                screen.say("the configuration changed, and is in effect")
            else:
                screen.warn("the configuration changed, but does not load; the old one stays")
                screen.error(problem)

        configuration = LiveConfiguration(loaded, wanted.load, take)
        session = Session(
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
        with host.listening(_Follower(screen, work)):
            tasks.start_soon(configuration.watch, noted)
            tasks.start_soon(_connect, host, screen)
            yield session
            tasks.cancel_scope.cancel()


async def _connect(host: Host, screen: Screen) -> None:
    """Connect what is switched on and not yet up, so that everything is there when it is wanted.

    Nobody asked for these servers yet, and so nobody is asked to log in to them either.
    """
    wanted = [each.server_id for each in host.status() if each.enabled and each.state == "idle"]
    with host.logins.asking_nobody(wanted):
        failures = await host.connect(*wanted)
    for server_id, failure in failures.items():
        if isinstance(failure, ConsentRequired):  # of which no state tells
            screen.warn(str(failure), f"`/mcp review {server_id}` shows it, and lets it start")
