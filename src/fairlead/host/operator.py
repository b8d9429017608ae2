"""The operator protocol: how a surface answers approvals, elicitations and sampling for the user.

Abilities that an operator lacks are not declared to servers, so that no server asks for them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from fairlead.bounded_repr import BoundedRepr, bound_repr, names
from fairlead.config.argument_types import fits
from fairlead.config.principal import LOCAL
from fairlead.errors import WrongType
from fairlead.host.elicitation.forms import Form, FormValue
from fairlead.host.elicitation.urls import ShownUrl
from fairlead.policy.tool_names import written_name

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, CreateMessageResult, ListRootsResult

Ability = Literal["approve", "form", "url", "sample", "roots"]
ApprovalAnswer = Literal["once", "session", "always", "no", "cancel"]
UrlAnswer = Literal["accept", "decline", "cancel"]
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ApprovalRequest:
    """A request for approval of one call."""

    server_id: str
    """The id of the server."""
    tool: str
    """The name of the tool."""
    arguments: dict[str, Any]
    """The arguments of the call, whole."""
    reason: str
    """Why policy asks."""
    claims: tuple[str, ...] = ()
    """The annotations of the tool. They are the server's claims and prove nothing."""
    remember: bool = True
    """Whether an approval can hold for later calls. If not, `session` and `always` mean `once`."""
    principal: str = LOCAL
    """The identity that the call is made for."""
    hint: str | None = None
    """How the user can allow later calls without approval."""
    preview: str | None = None
    """What the call would change, as a unified diff, where its server is built in and can tell beforehand."""

    @property
    def name(self) -> str:
        """The tool for messages, as `server.tool`."""
        return written_name(self.server_id, self.tool)

    def __repr__(self) -> str:
        # The names of arguments only: their values may be secrets.
        call = f"{self.server_id}.{self.tool}({names(self.arguments)})"
        return f"ApprovalRequest({bound_repr(call)}, reason={bound_repr(self.reason)})"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class FormRequest(BoundedRepr):
    """A form elicitation of a server. Its text is sanitized, and still untrusted content."""

    server_id: str
    """The id of the server."""
    message: str
    """What the server says with the form."""
    form: Form
    """The fields to fill in."""
    requested_schema: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The schema that the server sent, sanitized and with secrets masked."""
    untrusted: bool = False
    """Whether an untrusted server asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormAnswer:
    """The user's answer to a form elicitation."""

    action: Literal["accept", "decline", "cancel"]
    """What the user chose."""
    content: dict[str, FormValue] = field(default_factory=dict[str, FormValue], repr=False)
    """The values by field, with `accept`."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class UrlRequest(BoundedRepr):
    """A URL elicitation of a server."""

    server_id: str
    """The id of the server."""
    message: str
    """What the server says with the URL."""
    url: ShownUrl
    """The page to open, with what to show of it."""
    elicitation_id: str | None = None
    """Its id, if the server will notify us of its completion."""
    untrusted: bool = False
    """Whether an untrusted server asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """A sampling request of a server."""

    server_id: str
    """The id of the server."""
    params: "CreateMessageRequestParams" = field(repr=False)
    """The messages and options of the request."""
    max_tokens: int
    """Token limit for the answer, perhaps less than requested."""
    untrusted: bool = False
    """Whether an untrusted server asks: for a model its text is data, never instructions."""


class Operator(Protocol):
    """Answers for the user. Its methods have no timeout: the host cancels them when the call is given up."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """The kinds of requests it can answer."""
        ...

    async def approve(self, request: ApprovalRequest, /) -> ApprovalAnswer:
        """Ask the user to approve a call. Requests about different tools may be open at the same time.

        Args:
            request: The call, and why policy asks.

        Returns:
            `once`, `session` or `always` to allow it, `no` to deny it, `cancel` to end the whole run.
        """
        ...

    async def elicit_form(self, request: FormRequest, /) -> FormAnswer:
        """Have the user fill in a form.

        Args:
            request: The form. `request.form` checks answers.

        Returns:
            The action, and for `accept` the content.
        """
        ...

    async def elicit_url(self, request: UrlRequest, /) -> UrlAnswer:
        """Ask the user whether to open a page. Nothing is opened before the answer.

        Args:
            request: The page, and what is suspicious about its URL.

        Returns:
            `accept`, `decline` or `cancel`.
        """
        ...

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Have a model answer a server's sampling request.

        Args:
            request: The messages and the token limit.
        """
        ...

    async def open_url(self, url: str) -> bool:
        """Open a page that the user accepted.

        Args:
            url: The page.

        Returns:
            False if the user has to open it.
        """
        ...

    def notify(self, server_id: str, message: str) -> None:
        """Show the user a message that needs no answer.

        Args:
            server_id: The server it is about.
            message: The text.
        """
        ...


@runtime_checkable
class RootsProvider(Protocol):
    """An operator that can list the user's working folders: one with the ability `roots`."""

    async def list_roots(self, server_id: str) -> "ListRootsResult":
        """The folders to report to a server as its roots.

        Args:
            server_id: The server that requests them.

        Returns:
            The folders, as `file:` URLs.
        """
        ...


@runtime_checkable
class UrlCompletionListener(Protocol):
    """An operator that is notified when a URL elicitation is complete."""

    def page_completed(self, server_id: str, elicitation_id: str) -> None:
        """Handle the server's notification that an elicitation is complete.

        Args:
            server_id: The server.
            elicitation_id: The id in its `UrlRequest`.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Callbacks:
    """An operator made of async functions. Abilities without a function are not declared to servers.

    ```python
    async def ask(request: ApprovalRequest) -> ApprovalAnswer:
        return "once" if request.tool == "get_current_time" else "no"

    async with Host.open(operator=Callbacks(on_approve=ask)) as host:
        await host.call("time.get_current_time", timezone="UTC")
    ```

    Args:
        on_approve: Approves calls; see `Operator.approve`.
        on_form: Fills in forms; see `Operator.elicit_form`.
        on_url: Accepts or declines pages; see `Operator.elicit_url`.
        on_sample: Answers sampling requests; see `Operator.sample`.
        on_open_url: Opens accepted pages; see `Operator.open_url`.
        on_notify: A plain function that shows messages; see `Operator.notify`.

    Raises:
        WrongType: One of them is not callable.
    """

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
        """The abilities there is a function for."""
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

    async def approve(self, request: ApprovalRequest, /) -> ApprovalAnswer:
        """Await `on_approve`. Without it, return `no`.

        Raises:
            WrongType: The function is not async.
        """
        return await _ask("on_approve", self.on_approve(request)) if self.on_approve else "no"

    async def elicit_form(self, request: FormRequest, /) -> FormAnswer:
        """Await `on_form`. Raises `WrongType` if it is not async or returns no `FormAnswer`."""
        assert self.on_form is not None, "it was not declared"
        return await _ask("on_form", self.on_form(request), FormAnswer)

    async def elicit_url(self, request: UrlRequest, /) -> UrlAnswer:
        """Await `on_url`. Raises `WrongType` if it is not async or returns no `UrlAnswer`."""
        assert self.on_url is not None, "it was not declared"
        return await _ask("on_url", self.on_url(request), UrlAnswer)

    async def sample(self, request: SampleRequest) -> "CreateMessageResult":
        """Await `on_sample`. Raises `WrongType` if it is not async."""
        assert self.on_sample is not None, "it was not declared"
        return await _ask("on_sample", self.on_sample(request))

    async def open_url(self, url: str) -> bool:
        """Await `on_open_url`. Without it, return False."""
        return await _ask("on_open_url", self.on_open_url(url)) if self.on_open_url else False

    def notify(self, server_id: str, message: str) -> None:
        """Call `on_notify`, if there is one."""
        if self.on_notify:
            self.on_notify(server_id, message)


async def _ask(name: str, answer: Awaitable[AnswerT], kind: object = Any) -> AnswerT:
    """Await a callback. Raises `WrongType` if it is not async, or its answer is of another type."""
    if not fits(answer, Awaitable):
        raise WrongType(
            f"`{name}` of `Callbacks` returned {type(answer).__name__}, which cannot be awaited",
            hint=f"write it as `async def {name}(…)`",
        )
    given = await answer
    if not fits(given, kind):
        raise WrongType(f"`{name}` of `Callbacks` returned {type(given).__name__}, not a valid answer")
    return given


UNATTENDED = Callbacks()
"""The operator without abilities: none is declared to servers, calls that need approval are refused."""
