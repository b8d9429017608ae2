"""How a request over HTTP can end without a result, beyond what `outcomes` knows for all transports.

NotSent                        nothing left this machine; no `MCPError`, so no verdict about the server
├── Unreachable                no connection could be made
└── HeadersUnavailable         the headers it needs could not be had
RequestFailed
├── HttpRejected               an HTTP status, or a kind of content, that is no answer
│   └── SessionExpired         the server no longer knows the session
├── AnswerLost                 the connection broke before the answer was there
└── AnswerUnreadable
    └── AnswerTooLong          the answer is larger than allowed
"""

import os
import ssl
from typing import ClassVar

import aiohttp
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND

from fairlead.connection.outcomes import AnswerUnreadable, RequestFailed
from fairlead.errors import Delivery


class NotSent(Exception):
    """A request never left this machine."""

    delivery: ClassVar[Delivery] = "not_sent"


class Unreachable(NotSent):
    """No connection to the server could be made."""


class HeadersUnavailable(NotSent):
    """The headers a request needs could not be had."""


class HttpRejected(RequestFailed):
    """The server's HTTP answer is no answer to the request.

    `status` and `challenge`, its `WWW-Authenticate`, are what a login needs to know.
    """

    def __init__(
        self, status: int, message: str, *, delivery: Delivery | None = None, challenge: str | None = None
    ) -> None:
        super().__init__(METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR, message)
        self.status = status
        self.challenge = challenge
        self.delivery = _delivery(status) if delivery is None else delivery


def _delivery(status: int) -> Delivery:
    """Say how far a request got that was turned down with this status."""
    if status in (401, 403) or 300 <= status < 400:
        return "not_sent"
    # An error that is the client's was noticed before anything was done. Behind one that is the server's, a
    # proxy may have given up on a request that was carried out all the same.
    return "done" if 400 <= status < 500 else "unknown"


class SessionExpired(HttpRejected):
    """The server no longer knows the session and did not look at the request: begin anew and send it again.

    Unless somebody has: `session_id` is the one the request was sent with.
    """

    def __init__(self, status: int, session_id: str | None) -> None:
        super().__init__(status, "the server no longer knows the session", delivery="not_sent")
        self.session_id = session_id


class AnswerLost(RequestFailed):
    """The connection broke after the request was sent and before its answer was there."""

    def __init__(self, reason: str, delivery: Delivery = "unknown") -> None:
        super().__init__(CONNECTION_CLOSED, reason)
        self.delivery = delivery


class AnswerTooLong(AnswerUnreadable):
    """The answer is larger than allowed; the rest of it was not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is longer than the limit of {limit} bytes")
        self.limit = limit


def connection_trouble(exc: Exception) -> str:
    """Return what went wrong on the way to a server, for a person. The URL stays out; it may hold secrets."""
    match exc:
        case aiohttp.ClientConnectorError():
            return _connector_trouble(exc)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused the connection: {exc.status} {exc.message}"
        case aiohttp.ClientResponseError():
            return "the answer is no HTTP that can be read: " + exc.message.partition("\n")[0].rstrip(":")
        case aiohttp.InvalidURL():
            return "the URL cannot be used"
        case aiohttp.ClientPayloadError():
            return "the answer broke off, or cannot be decompressed"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection"
        case TimeoutError():
            return "no connection in time"
        case OSError(errno=int(number)):
            return f"the connection broke: {os.strerror(number)}"
        case OSError():
            return "the connection broke"  # what aiohttp says of it names the URL
        case _:
            return str(exc) or type(exc).__name__


def _connector_trouble(exc: aiohttp.ClientConnectorError) -> str:
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return f"the name {exc.host} cannot be resolved"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        error = exc.certificate_error
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error
        return f"the certificate of {exc.host} is not trusted: {reason}"
    return f"no connection to {exc.host}:{exc.port}: {exc.strerror}"
