"""A session of the console, and the verbs that work with it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.config.principal import LOCAL
from fairlead.console.completion import Completions
from fairlead.console.screen import Screen
from fairlead.console.typed_words import Suggestion

if TYPE_CHECKING:
    from fairlead.actions.context import ActionContext, RunningConfiguration
    from fairlead.auth.redirect import BrowserRedirect
    from fairlead.config.load import LoadedConfig
    from fairlead.console.conversation import ChatConversation
    from fairlead.host.host import Host
    from fairlead.host.operator import ApprovalAnswer, ApprovalRequest


class UserPrompts(Protocol):
    """Prompts for the user: a request takes the place of the prompt until it is answered, one at a time."""

    @property
    def answers(self) -> "Sequence[tuple[ApprovalRequest, ApprovalAnswer]]":
        """Answers to approvals in this run, the oldest first."""
        ...

    async def ask_line(self, prompt: str) -> str | None:
        """Ask for a line. None where it was left unanswered."""
        ...

    async def pick(self, prompt: str, words: Sequence[str], default: str | None = None) -> str | None:
        """Ask for one of the words, of which the beginning will do. None where it was left unanswered."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """A resource attached to the next message to the model."""

    label: str
    """What it is, for the person: `server:uri`."""
    text: str
    """What the model reads of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleOptions:
    """Options of `fairlead console`."""

    load: "Callable[[], LoadedConfig]"
    """Reads the configuration."""
    model: str | None = None
    bundle: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One verb of the console."""

    name: str
    usage: str
    """How it is typed: `/tools [query]`."""
    summary: str
    """What a person gets by it, in one line."""
    run: Callable[["ConsoleSession", str], Awaitable[None]]
    """Does it. It is given the rest of the line, stripped, and may take its time: Ctrl-C cancels it."""
    complete: Callable[["ConsoleSession", str], Iterable[Suggestion]] | None = None
    """What may follow. It is given the rest of the line up to the cursor, and must not wait for anything."""
    ask: Callable[["ConsoleSession", str], Awaitable[Iterable[Suggestion]]] | None = None
    """What a server suggests may follow, given the same. It may wait; typing never waits for it."""


@dataclass(kw_only=True, slots=True)
class ConsoleSession:
    """One run of the console, for the verbs."""

    host: "Host"
    configuration: "RunningConfiguration"
    """What the console's host runs with."""
    screen: Screen
    person: UserPrompts
    conversation: "ChatConversation"
    """What was said to the model, and by it; the model, where there is one."""
    env: Mapping[str, str]
    verbs: Mapping[str, Verb]
    """The verbs that are always there, by name."""
    attached: list[Attachment]
    """What the next message to the model takes along."""
    leave: Callable[[], None]
    """Ends the console."""
    logins: "dict[str, BrowserRedirect]" = field(default_factory=dict[str, Any])
    """Logins under way, whose browser has not come back yet, by server."""
    completions: Completions = field(default_factory=Completions)
    """What servers offer and suggest, for completion."""

    @property
    def loaded(self) -> "LoadedConfig":
        """The configuration in effect."""
        return self.configuration.loaded

    @property
    def actions(self) -> "ActionContext":
        """The context of what the user does here."""
        from fairlead.actions.context import running_context

        return running_context("console", self.configuration, self.env, LOCAL)
