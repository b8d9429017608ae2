"""The human side of a host: the one protocol through which a surface answers for a person.

What an operator cannot do is not declared to servers, so that none asks in vain and no answer is made up.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from fairlead.config.argument_types import fits
from fairlead.config.principal import LOCAL
from fairlead.errors import WrongType
from fairlead.host.elicitation.forms import Form, Value
from fairlead.host.elicitation.urls import ShownUrl

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, CreateMessageResult, ListRootsResult

Ability = Literal["approve", "form", "url", "sample", "roots"]
ApprovalAnswer = Literal["once", "session", "always", "no", "cancel"]
UrlAnswer = Literal["accept", "decline", "cancel"]
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """May this very call be made? `claims` is what the server says of the tool, which proves nothing."""

    server_id: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    """Why it is asked about at all."""
    claims: tuple[str, ...] = ()
    remember: bool = True
    """Whether an answer can hold for later calls. If not, `session` and `always` mean `once`."""
    principal: str = LOCAL
    """Who wants the call made."""
    hint: str | None = None
    """What settles it for all later calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormRequest:
    """A server wants a form filled in. Its words are safe to show, and are still its words."""

    server_id: str
    message: str
    form: Form
    requested_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The form as the server sent it, which is not safe to show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormAnswer:
    """What a person did with a form: sent it, said no, or went away."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True, kw_only=True, slots=True)
class UrlRequest:
    """A server wants a person to open a page."""

    server_id: str
    message: str
    url: ShownUrl
    elicitation_id: str | None = None
    """What the server calls it, if it will say when all is done there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """A server wants a model's word. `max_tokens` is what it may have, perhaps less than it asked for."""

    server_id: str
    params: "CreateMessageRequestParams"
    max_tokens: int


class Operator(Protocol):
    """Answers for a person. A call is waited for without a limit: cancel it to give up."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do at all."""
        ...

    async def approve(self, question: ApprovalRequest) -> ApprovalAnswer:
        """May a call be made? About different tools, several questions may be open at once."""
        ...

    async def elicit_form(self, question: FormRequest) -> FormAnswer:
        """Have a form filled in."""
        ...

    async def elicit_url(self, question: UrlRequest) -> UrlAnswer:
        """Ask whether a page is to be opened. Nothing is opened before the answer."""
        ...

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Have a model answer."""
        ...

    async def open_url(self, url: str) -> bool:
        """Open a page that the person agreed to. False where that is left to them."""
        ...

    def notify(self, server_id: str, message: str) -> None:
        """Tell the person something that needs no answer."""
        ...


@runtime_checkable
class RootsProvider(Protocol):
    """An operator that can say where its person works: one with the ability `roots`."""

    async def list_roots(self, server_id: str) -> "ListRootsResult":
        """Name the folders."""
        ...


@runtime_checkable
class UrlCompletionListener(Protocol):
    """An operator that wants to know when all is done on a page that its person was asked to open."""

    def page_completed(self, server_id: str, elicitation_id: str) -> None:
        """All is done there, the server says, by the name it gave the question."""
        ...


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """An operator made of functions of yours. What you leave out, it cannot do."""

    on_approve: Callable[[ApprovalRequest], Awaitable[ApprovalAnswer]] | None = None
    on_form: Callable[[FormRequest], Awaitable[FormAnswer]] | None = None
    on_url: Callable[[UrlRequest], Awaitable[UrlAnswer]] | None = None
    on_sample: Callable[[SampleRequest], Awaitable["CreateMessageResult"]] | None = None
    on_open_url: Callable[[str], Awaitable[bool]] | None = None
    on_notify: Callable[[str, str], None] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not callable(value):
                raise WrongType(
                    f"`{each.name}` of `Callbacks` is a function or None, not {type(value).__name__}"
                )

    @property
    def abilities(self) -> frozenset[Ability]:
        """What there is a function for."""
        return self._abilities

    @cached_property
    def _abilities(self) -> frozenset[Ability]:  # every call asks for them
        functions: dict[Ability, object] = {
            "approve": self.on_approve,
            "form": self.on_form,
            "url": self.on_url,
            "sample": self.on_sample,
        }
        return frozenset(name for name, function in functions.items() if function is not None)

    async def approve(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Ask your function; without one the answer is no, which is never sent as anybody's word."""
        return await _ask("on_approve", self.on_approve(question)) if self.on_approve else "no"

    async def elicit_form(self, question: FormRequest) -> FormAnswer:
        """Ask your function."""
        assert self.on_form is not None, "it was not declared"
        return await _ask("on_form", self.on_form(question), FormAnswer)

    async def elicit_url(self, question: UrlRequest) -> UrlAnswer:
        """Ask your function."""
        assert self.on_url is not None, "it was not declared"
        return await _ask("on_url", self.on_url(question), UrlAnswer)

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Ask your function."""
        assert self.on_sample is not None, "it was not declared"
        return await _ask("on_sample", self.on_sample(request))

    async def open_url(self, url: str) -> bool:
        """Hand the page to your function, if there is one."""
        return await _ask("on_open_url", self.on_open_url(url)) if self.on_open_url else False

    def notify(self, server_id: str, message: str) -> None:
        """Tell your function, if there is one."""
        if self.on_notify:
            self.on_notify(server_id, message)


async def _ask(name: str, answer: Awaitable[AnswerT], kind: object = Any) -> AnswerT:
    """Await a function's answer. Raises `WrongType` for a function that is not async, or another answer."""
    if not fits(answer, Awaitable):
        raise WrongType(
            f"`{name}` of `Callbacks` returned {type(answer).__name__}, which cannot be awaited",
            hint=f"write it as `async def {name}(…)`",
        )
    given = await answer
    if not fits(given, kind):
        raise WrongType(f"`{name}` of `Callbacks` returned {type(given).__name__}, which is no answer")
    return given


UNATTENDED = Callbacks()
"""Nobody is there: nothing is declared, nothing is asked, nothing is made up."""
