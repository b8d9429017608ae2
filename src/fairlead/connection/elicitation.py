"""Elicitations that come with the answer to a request: `input_required` results and URL errors.

A stateless server answers with `input_required`: the request is sent again with the answers and the server's
state, until a real result comes. A server of 2025-11-25 rejects a request with error -32042 and names pages:
once the user has accepted each and the server has reported completion, the request is sent again.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.client.session import ClientRequestContext, IncomingMessage
from pydantic import ValidationError

from fairlead.catalog.sanitize.slices import may_have_string
from fairlead.config.untyped import is_object
from fairlead.connection.outcomes import AnswerUnreadable, RequestFailed, RequestRejected
from fairlead.connection.peer import INPUT_REQUEST, ClientPeer
from fairlead.connection.server_messages import REPAIRED_REQUESTS, repair_request
from fairlead.connection.session import Session
from fairlead.connection.transport.messages import object_of
from fairlead.errors import Delivery
from fairlead.jsonrpc.limits import MAX_REQUEST_VALUES

MAX_ROUNDS = 10
MAX_INPUT_REQUESTS = 64
"""How many elicitations one result may have."""

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0

_MAX_REQUEST_BYTES = 1024 * 1024
"""A larger answer is a result: looking through all of it would hold up every other call."""

Send = Callable[[Mapping[str, Any]], Awaitable[msgspec.Raw]]


class TooManyRounds(RequestFailed):
    """The server requested input `MAX_ROUNDS` times in one request, without an answer."""

    delivery: Delivery = "done"


class ElicitationRefused(RequestFailed):
    """An input request that comes in place of the answer was refused."""

    delivery: Delivery = "done"


class _Tagged(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    request_state: msgspec.Raw = msgspec.Raw()


class _InputRequests(msgspec.Struct, rename="camel"):
    input_requests: dict[str, msgspec.Raw] | None = None


_decode = msgspec.json.Decoder(_Tagged).decode
_decode_input_requests = msgspec.json.Decoder(_InputRequests).decode


def may_need_more(result: msgspec.Raw) -> bool:
    """Whether this may be an elicitation or a task rather than a result. False is certain."""
    if len(result) > _MAX_REQUEST_BYTES:
        return False
    return may_have_string(bytes(result), b'"input_required"', b'"task"')


def wants_input(result: msgspec.Raw) -> bool:
    """Whether this is an `input_required` result."""
    if len(memoryview(result)) > _MAX_REQUEST_BYTES:
        return False
    if not may_have_string(bytes(result), b'"input_required"'):
        return False
    try:
        return _decode(result).result_type == "input_required"
    except (msgspec.DecodeError, RecursionError):
        return False


async def answer_rounds(first: msgspec.Raw, session: Session, send: Send) -> msgspec.Raw:
    """Answer the input requests and repeat the request, until there is a result or a limit is reached."""
    result, wait = first, _FIRST_WAIT_SECONDS
    for _ in range(MAX_ROUNDS):
        requests = _read(result)
        more: dict[str, Any] = {}
        if requests:
            more["inputResponses"] = await answer_input_requests(requests, session)
            wait = _FIRST_WAIT_SECONDS
        else:
            await anyio.sleep(wait)  # it only wants the request repeated
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        state = _decode(result).request_state
        if state and bytes(state) != b"null":
            more["requestState"] = state  # as the bytes that came
        result = await send(more)
        if not wants_input(result):
            return result
    raise TooManyRounds(types.INTERNAL_ERROR, f"it requested input {MAX_ROUNDS} times and did not answer")


def _read(result: msgspec.Raw) -> Mapping[str, types.InputRequest]:
    """The elicitations of a result, counted before any of them is parsed."""
    try:
        requests = _decode_input_requests(result).input_requests or {}
        if len(requests) > MAX_INPUT_REQUESTS:
            raise _too_many(len(requests))
        fields = object_of(result, max_values=MAX_REQUEST_VALUES)
        valid = types.InputRequiredResult.model_validate(_repair_input_requests(fields), by_name=False)
    except (ValueError, RecursionError) as exc:  # pydantic's and msgspec's errors are ValueErrors, too
        raise AnswerUnreadable("its request for input cannot be parsed") from exc
    return valid.input_requests or {}


def _too_many(count: int) -> ElicitationRefused:
    return ElicitationRefused(types.INVALID_REQUEST, f"it sends {count} requests for input at once")


def _repair_input_requests(fields: dict[str, Any]) -> dict[str, Any]:
    """The result with each request in it as the protocol has it."""
    requests: object = fields.get("inputRequests")
    for request in requests.values() if is_object(requests) else ():
        if is_object(request) and (method := request.get("method")) in REPAIRED_REQUESTS:
            params: object = request.get("params")
            request["params"] = repair_request(method, params if is_object(params) else None)
    return fields


async def answer_input_requests(
    requests: Mapping[str, types.InputRequest], session: Session
) -> dict[str, Any]:
    """Answer elicitations concurrently. Returns the answers by their keys."""
    if len(requests) > MAX_INPUT_REQUESTS:
        raise _too_many(len(requests))
    answers: dict[str, Any] = {}
    refused: list[types.ErrorData] = []

    async def answer(key: str, request: types.InputRequest) -> None:
        INPUT_REQUEST.set(key)  # in a task that does nothing else
        context = ClientRequestContext(session=session.sdk, request_id=key)
        response = await session.sdk.dispatch_input_request(context, request)
        if isinstance(response, types.ErrorData):
            refused.append(response)
            asking.cancel_scope.cancel()
        else:
            answers[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)

    async with anyio.create_task_group() as asking:
        for key, request in requests.items():
            asking.start_soon(answer, key, request)
    if refused:
        raise ElicitationRefused(refused[0].code, f"its request for input was refused: {refused[0].message}")
    return answers


MAX_PAGES = 10


class PageNotVisited(RequestRejected):
    """The server wants a page visited first, and that did not happen."""


@dataclass(eq=False)
class _Visit:
    """Pages that are open, by the ids of what is to be done there."""

    left: set[str]
    over: anyio.Event = field(default_factory=anyio.Event)

    def done(self, elicitation_id: str) -> None:
        self.left.discard(elicitation_id)
        if not self.left:
            self.over.set()


class UrlVisits:
    """The visits to a server's pages that are under way."""

    def __init__(self, peer: ClientPeer) -> None:
        self._peer = peer
        self._visits: set[_Visit] = set()

    def handle_message(self, message: IncomingMessage) -> None:
        """Handle a notification of the server, if it reports a completed elicitation."""
        if isinstance(message, types.ElicitCompleteNotification):
            for visit in self._visits:
                visit.done(message.params.elicitation_id)
            self._peer.handle_completion(message.params.elicitation_id)

    async def visit(self, rejection: RequestRejected, *, seconds: float) -> None:
        """Have the user visit the pages of a rejection, and wait so many seconds for their completion.

        Raises `PageNotVisited`, which says why the request had better not be sent again.
        """
        pages = _read_url_elicitations(rejection)
        visit = _Visit({page.elicitation_id or "" for page in pages})
        self._visits.add(visit)  # before the user is prompted: completion may be reported before the answer
        try:
            for page in pages:
                answer = await self._peer.elicit(page)
                if isinstance(answer, types.ErrorData):
                    raise _not_visited_error(answer.message)
                if answer.action != "accept":
                    raise _not_visited_error(f"the answer was `{answer.action}`")
            with anyio.move_on_after(seconds) as patience:
                await visit.over.wait()
            if patience.cancelled_caught:
                raise _not_visited_error(
                    "it did not report completion in time; call again when it is complete"
                )
        finally:
            self._visits.discard(visit)


def _read_url_elicitations(rejection: RequestRejected) -> list[types.ElicitRequestURLParams]:
    try:
        pages = types.ElicitationRequiredErrorData.model_validate(rejection.error.data).elicitations
    except ValidationError:
        pages = []
    if not 0 < len(pages) <= MAX_PAGES:
        raise _not_visited_error(f"it names no pages, or more than {MAX_PAGES}")
    return pages


def _not_visited_error(reason: str) -> PageNotVisited:
    message = f"it wants a page visited first: {reason}"
    return PageNotVisited(types.URL_ELICITATION_REQUIRED, message)
