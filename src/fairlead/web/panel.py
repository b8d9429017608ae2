"""What the pages show and do, whoever is behind them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairlead.catalog.catalog import CatalogTool, HiddenTool
from fairlead.catalog.tools import ToolKey
from fairlead.config.principal import LOCAL
from fairlead.gateway.client_session import SessionInfo
from fairlead.host.elicitation.urls import ShownUrl
from fairlead.host.managed_server import ServerStatus
from fairlead.host.model.explain import ToolExplanation
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest
from fairlead.policy.audit import AuditQuery, AuditRecord
from fairlead.policy.review import ReviewedTool
from fairlead.web.live import Activity

MOST_EXPLAINED = 200
"""How many tools the page of a server explains."""


class PendingCall(Protocol):
    """A call that waits for a person's word."""

    @property
    def id(self) -> str:
        """What it is answered by."""
        ...

    @property
    def question(self) -> ApprovalRequest:
        """What is asked."""
        ...

    @property
    def created(self) -> float:
        """Since when it waits, in seconds since 1970."""
        ...


class ApprovalQueue(Protocol):
    """The calls that wait for a person's word."""

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """All of them or one principal's, the oldest first."""
        ...

    def answer(self, id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:  # noqa: A002 - what it is called there
        """Give the word. False where none waits for it any more, or it is not the principal's to give."""
        ...


class NoQueue:
    """Where no call ever waits."""

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """None."""
        return ()

    def answer(self, id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:  # noqa: A002 - as above
        """Nobody waits."""
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerDetails:
    """What a page says of one server beside where it stands."""

    status: ServerStatus
    target: str
    """The command or URL, less secrets."""
    description: str | None = None
    log: tuple[str, ...] = ()
    """The last lines of what it said on its stderr."""
    can_switch: bool = True
    has_login: bool = False
    """Can somebody log in to it?"""
    tools: Sequence[ToolExplanation] = ()
    """What its tools may do, up to `MOST_EXPLAINED` of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedTool:
    """A tool of the catalog, and about how many tokens its definition is."""

    tool: CatalogTool
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPage:
    """Some of the catalog."""

    tools: Sequence[ListedTool]
    matching: int
    """How many there are of what was asked for."""
    total: int
    total_tokens: int
    is_direct: bool
    """Are agents handed the tools themselves, rather than tools to search them?"""
    hidden: Mapping[ToolKey, HiddenTool] = field(default_factory=dict[ToolKey, HiddenTool])
    """What is not offered, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelReview:
    """What there is to review of a server."""

    server_id: str
    tools: Sequence[ReviewedTool] = ()
    instructions: Sequence[str] = ()
    """What is new in its instructions, as a diff; empty where nothing is."""
    instructions_digest: str = ""
    problem: str | None = None
    """Why nothing can be reviewed."""

    @property
    def waiting(self) -> int:
        """How many things wait for somebody to decide."""
        return sum(tool.waits for tool in self.tools) + bool(self.instructions)


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelVerdict:
    """What a person decided in a review, each by the digest of what they looked at."""

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    instructions: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingLogin:
    """A login that was begun here: the page to open, once it is known, or how it ended."""

    server_id: str
    page: ShownUrl | None = None
    terms: str | None = None
    """Where its tokens come from, in words."""
    error: str | None = None
    is_done: bool = False


class Panel(Protocol):
    """Everything the dashboard can show and do. What cannot be done raises a `FairleadError`."""

    @property
    def activity(self) -> Activity:
        """The calls under way, and how many went how."""
        ...

    @property
    def is_ready(self) -> bool:
        """Can requests be served, with all servers that are required?"""
        ...

    def changes(self, idle_seconds: float) -> AsyncGenerator[bool]:
        """True whenever something changed, False after each `idle_seconds` in which nothing did."""
        ...

    # Servers.

    def status(self) -> Sequence[ServerStatus]:
        """Where every server stands."""
        ...

    async def details(self, server_id: str) -> ServerDetails:
        """All there is to say of one server."""
        ...

    async def restart(self, server_id: str) -> None:
        """End a server's connection and begin another. Does not wait for it to be ready."""
        ...

    async def switch(self, server_id: str, *, on: bool) -> None:
        """Enable or disable a server, for good."""
        ...

    # Logins.

    def login(self, server_id: str, principal: str = LOCAL) -> PendingLogin | None:
        """The login of a principal that was begun here last."""
        ...

    async def begin_login(self, server_id: str, principal: str = LOCAL) -> None:
        """Begin to log in. Returns when the page to open is known, or why there is none."""
        ...

    def finish_login(self, server_id: str, address: str, principal: str = LOCAL) -> str | None:
        """Take the address at which a browser ended up. Returns what is wrong with it, if anything is."""
        ...

    # Tools.

    async def tools(self, query: str, server_id: str | None, *, start: int, limit: int) -> ToolPage:
        """The tools that fit a wish, the best first, or all in order where there is none."""
        ...

    def held_back(self) -> Mapping[str, int]:
        """How many tools of each server are not offered before somebody reviews them."""
        ...

    async def review(self, server_id: str) -> PanelReview:
        """What there is to review of a server, as it listed itself last."""
        ...

    async def decide(self, server_id: str, verdict: PanelVerdict) -> None:
        """Carry out what a person decided. Refused where something is no longer what they looked at."""
        ...

    # Calls.

    async def audit(self, wanted: AuditQuery, limit: int) -> Sequence[AuditRecord]:
        """The last calls, the newest first."""
        ...

    def sessions(self) -> Sequence[SessionInfo]:
        """Everybody who uses the gateway."""
        ...

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """The calls that wait for a person's word: all, or one principal's."""
        ...

    def answer(self, call_id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:
        """Give that word. False where none waits for it any more, or it is not the principal's to give."""
        ...
