"""Values that pages show, independent of where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.actions.approvals import PendingCall
from fairlead.actions.context import Notice
from fairlead.actions.logins import LoginOffer
from fairlead.catalog.catalog import CatalogTool, HiddenTool
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.edit_scope import EditTarget
from fairlead.host.model.explain import ToolExplanation
from fairlead.host.operator import ApprovalAnswer
from fairlead.host.server_status import ServerStatus
from fairlead.policy.review import ReviewedTool

MOST_EXPLAINED = 200
"""How many tools the page of a server explains."""


def with_notices(message: str, notices: Sequence[Notice]) -> str:
    """A confirmation, and what the user should know besides."""
    said = [f"{each.message}{f' ({each.hint})' if each.hint else ''}." for each in notices]
    return " ".join((message, *said))


class NoQueue:
    """Approval queue of a program that has none."""

    def pending(self, principal: str | None = None) -> Sequence[PendingCall]:
        """Return none."""
        return ()

    async def answer(self, id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:  # noqa: A002 - as in `ApprovalQueue`
        """Return False: no such call waits."""
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerDetails:
    """One server as its page shows it, with its state."""

    status: ServerStatus
    target: str
    """The command or URL, less secrets."""
    description: str | None = None
    log: tuple[str, ...] = ()
    """The last lines of what it said on its stderr."""
    can_switch: bool = True
    files: Sequence[EditTarget] = ()
    """Where it can be enabled and disabled: the file that decides first."""
    has_login: bool = False
    """Does it take a login?"""
    tools: Sequence[ToolExplanation] = ()
    """What its tools may do, up to `MOST_EXPLAINED` of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedTool:
    """A tool of the catalog, and the approximate number of tokens of its definition."""

    tool: CatalogTool
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDetails:
    """One tool, as its page shows it."""

    entry: ToolEntry
    schema: object
    output_schema: object
    tokens: int
    agent_name: str | None = None
    """What agents call it; None where it is not offered."""
    explanation: ToolExplanation | None = None
    """What decides about calls of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPage:
    """A page of the catalog."""

    tools: Sequence[ListedTool]
    matching: int
    """Number of all matches."""
    total: int
    total_tokens: int
    is_direct: bool
    """Are agents handed the tools themselves, rather than tools to search them?"""
    hidden: Mapping[ToolKey, HiddenTool] = field(default_factory=dict[ToolKey, HiddenTool])
    """What is not offered, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelReview:
    """Review of one server as pages show it."""

    server_id: str
    tools: Sequence[ReviewedTool] = ()
    instructions: Sequence[str] = ()
    """What is new in its instructions, as a diff; empty where nothing is."""
    files: Sequence[EditTarget] = ()
    """Where the answers can go: the file that decides first."""
    instructions_digest: str = ""
    are_refused: bool = False
    """Whether a review refused these instructions: they need no decision until they change."""
    unread: str = ""
    """What it offers besides tools that models may not read yet."""
    problem: str | None = None
    """Why nothing can be reviewed."""

    @property
    def waiting(self) -> int:
        """Number of decisions that are open."""
        return sum(tool.is_open for tool in self.tools) + self.asks_about_instructions + bool(self.unread)

    @property
    def asks_about_instructions(self) -> bool:
        """Whether its instructions need a decision."""
        return bool(self.instructions) and not self.are_refused


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenReviews:
    """Open reviews of all servers."""

    tools: Sequence[tuple[str, ReviewedTool]] = ()
    """The tools, each with its server, the riskiest first."""
    servers: int = 0
    """How many servers they are of."""
    waiting: int = 0
    """How many of them are held back."""
    instructions: Sequence[str] = ()
    """The servers whose instructions need a decision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelVerdict:
    """Answers of a review, each by the digest of the definition that was shown."""

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    instructions: str | None = None
    """The digest of instructions that were answered about."""
    are_accepted: bool = True
    """Whether those instructions were accepted, rather than refused."""
    reading: str | None = None
    """What it offers besides tools, in words, that models may read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingLogin:
    """A login that was begun here: its page once that is known, or its outcome."""

    server_id: str
    offer: LoginOffer | None = None
    error: str | None = None
    is_done: bool = False
    warning: str | None = None
    """What the user should know of a login that is done."""
