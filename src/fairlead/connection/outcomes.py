"""How a request can end without a result, and how a connection can end.

RequestFailed                  an `MCPError`, which is what the SDK's session expects of a failed request
├── RequestRejected            the server answered with an error
├── AnswerUnreadable           the server answered, and nobody can read it
├── RequestExpired             no answer in time
└── ConnectionClosed           the connection ended first; `ending` says why
SpawnFailed                    a server's process could not be started
NotEncodable                   what should be sent is not JSON

Each says in `delivery` how far the request got. `failures` turns them into the errors users see.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT

from fairlead.errors import Delivery


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Why a connection is over: a word for programs, a sentence for people, and what the process left."""

    kind: Literal["closed", "exited", "hung_up", "overflow", "failed"]
    message: str
    exit_code: int | None = None
    signal: int | None = None
    stderr: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    """What it wrote to stdout that is no message, where it wrote nothing to stderr."""
    unheard: bool = False
    """The server read nothing of what it was sent: whatever ended it, that did not."""


class RequestFailed(MCPError):
    """A request brought no result. `delivery` says whether it can have had an effect.

    A failure to reach the server at all must not be one of these, lest the probe for the protocol era take an
    outage for an answer.
    """

    delivery: Delivery = "unknown"


class RequestRejected(RequestFailed):
    """The server answered with an error."""

    delivery: Delivery = "done"


class AnswerUnreadable(RequestFailed):
    """The server answered, and nobody can read the answer."""

    delivery: Delivery = "done"

    def __init__(self, reason: str) -> None:
        super().__init__(PARSE_ERROR, f"the answer cannot be read: {reason}")


class RequestExpired(RequestFailed):
    """No answer in time."""

    def __init__(self, method: str, seconds: float, delivery: Delivery) -> None:
        super().__init__(REQUEST_TIMEOUT, f"no answer to {method} within {seconds:g} s")
        self.delivery = delivery


class ConnectionClosed(RequestFailed):
    """The connection ended before the answer came; `ending` says why."""

    def __init__(self, ending: Ending, delivery: Delivery) -> None:
        super().__init__(CONNECTION_CLOSED, ending.message)
        self.ending = ending
        self.delivery = delivery


class SpawnFailed(Exception):
    """A server's process could not be started."""

    delivery: ClassVar[Delivery] = "not_sent"


class NotEncodable(ValueError):
    """What should be sent is not JSON; nothing was sent."""

    delivery: ClassVar[Delivery] = "not_sent"
