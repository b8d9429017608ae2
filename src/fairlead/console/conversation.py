"""A conversation with a model that has all the tools: streamed, kept, and begun anew on demand."""

from collections.abc import Callable, Mapping, Sequence

from fairlead.config.load import LoadedConfig
from fairlead.console.hints import console_hint
from fairlead.console.screen import Screen
from fairlead.errors import ConfigError, FairleadError
from fairlead.host.model.toolset import Toolset
from fairlead.host.search_memory import SearchSession
from fairlead.loop.events import (
    RunEvent,
    RunFinished,
    StepFinished,
    StepRetried,
    TextDelta,
    ToolReturned,
    Usage,
)
from fairlead.loop.model_choice import choose_model
from fairlead.loop.provider import ChatModel, Message
from fairlead.loop.run import run_task
from fairlead.terminal.output import plural
from fairlead.terminal.tables import ENDINGS, call_line

_ENDINGS = ENDINGS | {
    "max_steps": "the model is not done, but the step limit is reached; type `go on` to continue"
}
WITHOUT_A_MODEL = "no model is configured to read this; `/tools`, `/call` and `/help` work without"


class ChatConversation:
    """Messages of the conversation. `live` is the incomplete last line of the model's answer."""

    def __init__(self, toolset: Callable[[], Toolset], changed: Callable[[], None]) -> None:
        self._toolset = toolset
        self._changed = changed
        self._searches = SearchSession()
        self.model: ChatModel | None = None
        self.history: list[Message] = []
        self.usage = Usage()
        """The tokens of all that was said so far."""
        self.live = ""
        self._is_answering = False
        self._why_none: ConfigError | None = None

    @property
    def model_name(self) -> str | None:
        """Name of the model, for display."""
        return f"{self.model.provider}/{self.model.name}" if self.model else None

    @property
    def toolset(self) -> Toolset:
        """The tools the model has. All of the conversation is one search session."""
        toolset = self._toolset()
        toolset.session = self._searches
        return toolset

    def choose(self, loaded: LoadedConfig, wanted: str | None, env: Mapping[str, str]) -> None:
        """Use the named model, else the configured one, if there is one."""
        try:
            self.model, self._why_none = choose_model(loaded, wanted, env), None
        except ConfigError as exc:
            if wanted is not None:
                raise
            self.model, self._why_none = None, exc

    def clear(self) -> None:
        """Begin a new conversation."""
        self.history.clear()
        self._searches = SearchSession()
        self.usage = Usage()

    async def send(self, screen: Screen, text: str, before: Sequence[Message] = ()) -> None:
        """Send the model a message, with `before` ahead of it, and show its answer and calls."""
        if self.model is None:
            raise ConfigError(WITHOUT_A_MODEL, hint=self._why_none.hint if self._why_none else None)
        if self._is_answering:
            raise FairleadError("the model is still answering; Ctrl-C ends that")
        self._is_answering = True
        start = len(self.history)
        self.history += before
        try:
            async with run_task(self.toolset, self.model, text, history=self.history) as events:
                async for event in events:
                    self._take(screen, event)
        finally:
            if len(self.history) == start + len(before) + 1:  # nothing came of it
                del self.history[start:]
            self._is_answering = False
            self._end_line(screen)

    def _take(self, screen: Screen, event: RunEvent) -> None:
        match event:
            case TextDelta():
                *whole, self.live = (self.live + event.text).split("\n")
                if whole:
                    screen.say("\n".join(whole))
                self._changed()
            case StepRetried():
                self._end_line(screen)
                screen.say(f"asking the model again in {event.seconds:.1f} s: {event.reason}")
            case ToolReturned():
                self._end_line(screen)
                screen.say(call_line(event, console_hint(event.hint) if event.hint else None))
            case StepFinished():
                self._end_line(screen)
            case RunFinished():
                self.usage += event.usage
                if words := _ENDINGS[event.outcome]:
                    screen.say(words)
                screen.say(f"  {plural(event.steps, 'step')}, {plural(event.usage.total, 'token')}")
            case _:
                pass

    def _end_line(self, screen: Screen) -> None:
        if self.live:
            screen.say(self.live)
            self.live = ""
            self._changed()
