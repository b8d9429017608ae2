"""Pages that a person has to visit before a server does what it was asked (2025-11-25, error -32042).

The server turns the request down and names the pages. Once the person has agreed to each, and the server has
said that all is done there, the request can be sent again: the one that was turned down was not carried out.
"""

from dataclasses import dataclass, field

import anyio
import mcp_types as types
from mcp.client.session import IncomingMessage
from pydantic import ValidationError

from fairlead.connection.outcomes import RequestRejected
from fairlead.connection.peer import Peer

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


class Pages:
    """The visits to a server's pages that are under way."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._visits: set[_Visit] = set()

    def heard(self, message: IncomingMessage) -> None:
        """Take note of what is done, if this is what the server says."""
        if isinstance(message, types.ElicitCompleteNotification):
            for visit in self._visits:
                visit.done(message.params.elicitation_id)
            self._peer.completed(message.params.elicitation_id)

    async def visit(self, rejection: RequestRejected, *, seconds: float) -> None:
        """Have a person visit the pages of a rejection, and wait so many seconds until all is done there.

        Raises `PageNotVisited`, which says why the request had better not be sent again.
        """
        pages = _named(rejection)
        visit = _Visit({page.elicitation_id or "" for page in pages})
        self._visits.add(visit)  # before anybody is asked, for it may be done before the answer is here
        try:
            for page in pages:
                answer = await self._peer.elicit(page)
                if isinstance(answer, types.ErrorData):
                    raise _not_visited(answer.message)
                if answer.action != "accept":
                    raise _not_visited(f"the answer was `{answer.action}`")
            with anyio.move_on_after(seconds) as patience:
                await visit.over.wait()
            if patience.cancelled_caught:
                raise _not_visited("it did not say in time that all is done there; call again when it is")
        finally:
            self._visits.discard(visit)


def _named(rejection: RequestRejected) -> list[types.ElicitRequestURLParams]:
    try:
        pages = types.ElicitationRequiredErrorData.model_validate(rejection.error.data).elicitations
    except ValidationError:
        pages = []
    if not 0 < len(pages) <= MAX_PAGES:
        raise _not_visited(f"it names no pages, or more than {MAX_PAGES}")
    return pages


def _not_visited(reason: str) -> PageNotVisited:
    message = f"it wants a page visited first: {reason}"
    return PageNotVisited(types.URL_ELICITATION_REQUIRED, message)
