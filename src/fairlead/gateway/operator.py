"""The operator of a gateway's hosts: elicitation and sampling go to the client, approvals to the user.

`UrlElicitations` remembers which client was sent which page: only that client is notified of its completion.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from fairlead.catalog.repair.content import is_block_of
from fairlead.catalog.repair.protocol_versions import VERSIONS, version_number
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.text import reveal_hidden
from fairlead.connection.peer import CALLER
from fairlead.errors import ApprovalRequired
from fairlead.gateway.open_requests import OpenRequests
from fairlead.gateway.pending_approvals import PendingApprovals
from fairlead.gateway.request_context import UNASKABLE, ClientResult, RequestContext, ServerRequest
from fairlead.host.elicitation.urls import UrlRefused, show_url
from fairlead.host.operator import (
    Ability,
    ApprovalAnswer,
    ApprovalRequest,
    FormAnswer,
    FormRequest,
    SampleRequest,
    UrlAnswer,
    UrlRequest,
)
from fairlead.wording import end_sentence

MAX_PAGES: Final = 1_000
"""Number of elicitations remembered, the latest: a server need not say that one is complete."""


class UrlElicitations:
    """The URL elicitations that clients were sent: the request, and the id there."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[tuple[str, str], RequestContext]] = {}

    def register(self, context: RequestContext, elicitation: UrlRequest) -> str:
        """Return the elicitation id for a client: one of ours, which no two servers choose alike."""
        name = uuid4().hex
        if elicitation.elicitation_id is not None:
            if len(self._given) == MAX_PAGES:
                del self._given[next(iter(self._given))]
            self._given[name] = ((elicitation.server_id, elicitation.elicitation_id), context)
        return name

    def take_completed(self, server_id: str, elicitation_id: str) -> list[tuple[RequestContext, str]]:
        """Return the requests that sent a completed elicitation, with its id there. They are forgotten."""
        page = (server_id, elicitation_id)
        completed = [(context, name) for name, (given, context) in self._given.items() if given == page]
        for _, name in completed:
            del self._given[name]
        return completed


_CHOICES: Final[dict[ApprovalAnswer, str]] = {
    "once": "Yes, this once",
    "session": "Yes, and do not ask again in this session",
    "no": "No",
}
"""Nothing for good: what is answered in a client counts only while `gateway.approvals` is `client`."""
_SEVERAL_BLOCKS_SINCE: Final = VERSIONS.index("2025-11-25")


class ElicitableClient(Protocol):
    """A client session, as its operator knows it."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """The requests of servers that the client takes."""
        ...

    @property
    def requests(self) -> OpenRequests:
        """Its requests that are being handled."""
        ...


class ClientOperator:
    """An operator that sends requests on to the client that the present request is made for.

    A handshake server that asks over stdio does not say in which request. It asks the `client` whose own
    connection that is, and no other: in the only request it can belong to, or the latest that takes it.
    Over HTTP the stream says which request it is. A connection that many clients share has no `client`.
    """

    def __init__(self, approvals: PendingApprovals, client: ElicitableClient | None = None) -> None:
        self._approvals = approvals
        self._client = client
        self._pages = UrlElicitations()
        self._offered_logins: set[str] = set()

    @property
    def abilities(self) -> frozenset[Ability]:
        """The requests of servers that the client takes."""
        caller = CALLER.get()
        if isinstance(caller, RequestContext):
            return caller.abilities
        return self._client.abilities if self._client is not None else UNASKABLE

    def _find_context(
        self, server_id: str, ability: Ability, tried: Collection[RequestContext] = ()
    ) -> RequestContext | None:
        """Return the request in whose course the client can be sent an elicitation or another request."""
        caller = CALLER.get()
        if isinstance(caller, RequestContext):
            return caller if ability in caller.abilities and caller not in tried else None
        if self._client is None:
            return None
        return self._client.requests.find_for_elicitation(server_id, ability, tried)

    async def _ask(
        self, server_id: str, ability: Ability, build: Callable[[RequestContext], ServerRequest]
    ) -> ClientResult:
        """Send a request to the client in the course of one of its own, or of the next if that ends before.

        Raises:
            MCPError: No open request takes it, or the client left the one in which it was sent.
        """
        tried: set[RequestContext] = set()
        while (context := self._find_context(server_id, ability, tried)) is not None:
            answer = await context.put(build(context), server_id)
            if answer is not None:
                return answer
            if not context.may_ask_elsewhere:
                raise MCPError(types.INVALID_REQUEST, "the request this belongs to was given up")
            tried.add(context)
        raise _no_client()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Have the call wait for the user; by a form in the client only where the configuration trusts that.

        An agent can fill in any form that it is sent, so that its answer proves nothing about its user.
        """
        context = self._find_context(request.server_id, "form")
        if context is None or not context.client.may_approve:
            return await self._approvals.ask(request)
        answer: ClientResult | None = None
        try:
            with anyio.move_on_after(self._approvals.seconds):
                answer = await self._ask(request.server_id, "form", lambda _: _approval_form(request))
        except MCPError:
            if context.is_ended:
                raise
            return await self._approvals.ask(request)  # its client cannot show the form after all
        if not context.client.may_approve:  # any more: the form was open meanwhile
            return await self._approvals.ask(request)
        return _approval_answer(request, answer)

    async def elicit_form(self, elicitation: FormRequest) -> FormAnswer:
        """Form elicitation: sent on to the client."""
        copied = msgspec.json.decode(msgspec.json.encode(elicitation.requested_schema))
        schema = await gate.run(gate.Cleaner(counts=False).value_steps(copied))

        def request(context: RequestContext) -> types.ElicitRequest:
            message = self._label_message(elicitation.server_id, elicitation.message, context)
            fitted = _form_for(schema, version_number(context.client.version))
            return types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message=message, requested_schema=fitted, _meta=_mark(elicitation)
                )
            )

        answer = await self._ask(elicitation.server_id, "form", request)
        assert isinstance(answer, types.ElicitResult)
        content: Any = answer.content or {}
        return FormAnswer(action=answer.action, content=content)

    async def elicit_url(self, elicitation: UrlRequest) -> UrlAnswer:
        """URL elicitation: sent on to the client."""

        def request(context: RequestContext) -> types.ElicitRequest:
            params = types.ElicitRequestURLParams(
                message=self._label_message(elicitation.server_id, elicitation.message, context),
                url=elicitation.url.url,
                elicitation_id=self._pages.register(context, elicitation),
                _meta=_mark(elicitation),
            )
            return types.ElicitRequest(params=params)

        answer = await self._ask(elicitation.server_id, "url", request)
        assert isinstance(answer, types.ElicitResult)
        return answer.action

    async def offer_login(self, context: RequestContext, server_id: str, url: str) -> None:
        """Send a login page to a client with URL elicitation, in the course of a request.

        Once for each server: the error of the request names the page as well.
        """
        page = show_url(url)
        is_offered = server_id in self._offered_logins
        if "url" not in context.abilities or is_offered or isinstance(page, UrlRefused):
            return
        self._offered_logins.add(server_id)
        elicitation = UrlRequest(server_id=server_id, message="It needs a login of yours.", url=page)
        with suppress(MCPError):  # the client left the request
            await self.elicit_url(elicitation)

    def page_completed(self, server_id: str, elicitation_id: str) -> None:
        """Notify the client that was sent the page, by the id that it knows."""
        for context, name in self._pages.take_completed(server_id, elicitation_id):
            context.client.notifier.announce_completed_page(context, name)

    async def sample(self, request: SampleRequest) -> types.CreateMessageResult:
        """Sampling: sent on to the client."""
        params = request.params.model_copy(update={"max_tokens": request.max_tokens, "meta": _mark(request)})

        def build(context: RequestContext) -> types.CreateMessageRequest:
            messages = [*_messages_for(params.messages, version_number(context.client.version))]
            return types.CreateMessageRequest(params=params.model_copy(update={"messages": messages}))

        answer = await self._ask(request.server_id, "sample", build)
        assert isinstance(answer, types.CreateMessageResult)
        return answer

    async def list_roots(self, server_id: str) -> types.ListRootsResult:
        """Roots: requested from the client."""
        answer = await self._ask(server_id, "roots", lambda _: types.ListRootsRequest())
        assert isinstance(answer, types.ListRootsResult)
        return answer

    async def open_url(self, url: str) -> bool:
        """Do nothing: the client opens the page that it was sent."""
        return True

    def notify(self, server_id: str, message: str) -> None:
        """Do nothing: the protocol has no message for it."""

    def _label_message(self, server_id: str, message: str, context: RequestContext) -> str:
        """Name the server in a message, where the client has several and nothing else names it."""
        unclear = context.client.has_many_servers and not context.names_servers
        return f"[{server_id}] {message}" if unclear else message


def _mark(request: FormRequest | UrlRequest | SampleRequest) -> Any:  # noqa: ANN401 - `_meta` of any request
    """`_meta` of a server's request to a client: it says which untrusted server asks."""
    return gate.mark_error_data(None, request.server_id if request.untrusted else None)


def _no_client() -> MCPError:
    """Return the error for a server where no client takes its request: no answer is made up."""
    return MCPError(types.INVALID_REQUEST, "no client takes this request")


def _messages_for(messages: list[types.SamplingMessage], number: int) -> Iterator[types.SamplingMessage]:
    """Messages for a model as a client's protocol version has them: before 2025-11-25, of one block each."""
    for message in messages:
        content = message.content
        if number >= _SEVERAL_BLOCKS_SINCE:
            yield message
            continue
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, types.AudioContent) and not is_block_of("audio", number):
                block = types.TextContent(text=f"[audio, {block.mime_type}]")
            yield types.SamplingMessage(role=message.role, content=block)


def _form_for(schema: dict[str, Any], number: int) -> dict[str, Any]:
    """A form as a client's protocol version has it: before 2025-11-25, titles of choices stand apart.

    Raises:
        MCPError: It has a field that the version does not have.
    """
    if number >= _SEVERAL_BLOCKS_SINCE:
        return schema
    fields = {name: _field_for(field) for name, field in schema.get("properties", {}).items()}
    return {**schema, "properties": fields}


def _field_for(field: dict[str, Any]) -> dict[str, Any]:
    if field.get("type") == "array":
        raise MCPError(
            types.INVALID_REQUEST, "the client's protocol version has no fields of several choices"
        )
    if "oneOf" not in field:
        return field
    others = {name: value for name, value in field.items() if name != "oneOf"}
    choices = field["oneOf"]
    names = [choice.get("title", choice["const"]) for choice in choices]
    return {**others, "enum": [choice["const"] for choice in choices], "enumNames": names}


def _approval_form(request: ApprovalRequest) -> types.ElicitRequest:
    # What is hidden in them is sent, and so it is shown.
    encoded = reveal_hidden(msgspec.json.encode(request.arguments).decode())
    arguments = gate.text(encoded, gate.MAX_DATA_BYTES)
    claims = f" The server says: {'; '.join(request.claims)}." if request.claims else ""
    answers = _CHOICES if request.remember else {"once": _CHOICES["once"], "no": _CHOICES["no"]}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "answer": {
                "type": "string",
                "title": "May it be called?",
                "enum": list(answers),
                "enumNames": list(answers.values()),
            }
        },
        "required": ["answer"],
    }
    preview = gate.text(request.preview, gate.MAX_DATA_BYTES) if request.preview else None
    change = f"\n\nIt would change:\n{preview}\n" if preview else ""
    settled = f" To settle it for good: {end_sentence(request.hint)}" if request.hint else ""
    message = (
        f"May `{gate.text(request.name)}` be called with {arguments}?"
        f" Reason: {request.reason}.{claims}{settled}{change}"
    )
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _approval_answer(request: ApprovalRequest, answer: ClientResult | None) -> ApprovalAnswer:
    """Answer in a client's form about a call. Raises `ApprovalRequired` where it is neither yes nor no."""
    if isinstance(answer, types.ElicitResult):
        chosen = (answer.content or {}).get("answer") if answer.action == "accept" else None
        if answer.action == "decline" or chosen == "no":
            return "no"
        if chosen == "once":
            return "once"
        if chosen in ("session", "always"):  # the latter is not on the form
            return "session"
    raise ApprovalRequired(
        f"`{request.name}` was not called: the approval form in the client"
        f" was not answered: {request.reason}",
        hint=request.hint,
    )
