"""Exceptions for requests without a result, and for ended connections, over any transport and over HTTP.

RequestFailed                  an `MCPError`, which is what the SDK's session expects of a failed request
├── RequestRejected            the server answered with an error
├── AnswerUnreadable           the answer cannot be parsed
├── RequestExpired             no answer in time
└── ConnectionClosed           the connection ended first; `ending` says why
SpawnFailed                    a server's process could not be started
NotEncodable                   what should be sent is not JSON

Over HTTP:

NotSent                        nothing left this machine; no `MCPError`, so no verdict about the server
├── Unreachable                no connection could be made
└── HeadersUnavailable         the headers it needs could not be had
RequestFailed
├── HttpRejected               an HTTP status, or a kind of content, that is no answer
│   └── SessionExpired         the server no longer knows the session
├── AnswerLost                 the connection broke before the answer was there
└── AnswerUnreadable
    └── AnswerTooLong          the answer is larger than allowed

Each has in `delivery` how far the request got. `failures` turns them into the errors that users see.
"""

import errno
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import aiohttp
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, METHOD_NOT_FOUND, PARSE_ERROR, REQUEST_TIMEOUT

from fairlead.errors import Delivery
from fairlead.net.http import is_loopback


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionEnding:
    """Why a connection is over: a word for programs, a sentence for people, and what the process left."""

    kind: Literal["closed", "exited", "hung_up", "overflow", "failed"]
    message: str
    exit_code: int | None = None
    signal: int | None = None
    stderr: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    """Its stdout output that is not a message."""
    is_local: bool = False
    """It was a process on this machine."""
    unheard: bool = False
    """The server read nothing of what it was sent, so that cannot be why it ended."""


class RequestFailed(MCPError):
    """A request brought no result. `delivery` says whether it can have had an effect.

    A failure to reach the server at all must not be one of these, lest the probe for the protocol take an
    outage for an answer.
    """

    delivery: Delivery = "unknown"


class RequestRejected(RequestFailed):
    """The server answered with an error."""

    delivery: Delivery = "done"


class AnswerUnreadable(RequestFailed):
    """The server's answer cannot be parsed."""

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

    def __init__(self, ending: ConnectionEnding, delivery: Delivery) -> None:
        super().__init__(CONNECTION_CLOSED, ending.message)
        self.ending = ending
        self.delivery = delivery


SpawnTrouble: TypeAlias = Literal[
    "no_folder",
    "folder_denied",
    "no_program",
    "whole_line",
    "tilde",
    "no_interpreter",
    "is_folder",
    "denied",
    "windows_lines",
    "built_for_another",
    "empty",
    "format",
    "too_many_files",
]
"""Why a process could not be started, where that is known."""


class SpawnFailed(Exception):
    """A server's process could not be started."""

    delivery: ClassVar[Delivery] = "not_sent"

    def __init__(
        self,
        message: str,
        trouble: SpawnTrouble | None = None,
        *,
        program: str = "",
        instead: str | None = None,
    ) -> None:
        """Say why.

        Args:
            message: What happened, for people.
            trouble: The kind of failure.
            program: What was to be run.
            instead: What was meant, or is missing: a program of a similar name, an interpreter.
        """
        super().__init__(message)
        self.trouble: SpawnTrouble | None = trouble
        self.program = program
        self.instead = instead


class NotEncodable(ValueError):
    """A value to send cannot be encoded as JSON; nothing was sent."""

    delivery: ClassVar[Delivery] = "not_sent"


TroubleKind: TypeAlias = Literal[
    "certificate",
    "certificate_expired",
    "certificate_host",
    "tls",
    "old_tls",
    "no_tls",
    "wants_tls",
    "dns",
    "refused",
    "refused_loopback",
    "unreachable",
    "timeout",
    "proxy",
    "proxy_login",
    "not_http",
    "closed",
    "closed_tls",
    "damaged",
]
"""The kinds of network errors that have different hints."""


class NotSent(Exception):
    """A request never left this machine."""

    delivery: ClassVar[Delivery] = "not_sent"


class DecisionOutdated(Exception):
    """A request was kept back: what decided that it may be sent has changed while it waited.

    This is no failure of the request: `Connection` has it decided again, and no caller sees this.
    """

    delivery: ClassVar[Delivery] = "not_sent"


class Unreachable(NotSent):
    """No connection to the server could be made; `kind` says why, where that is known."""

    def __init__(self, message: str, kind: TroubleKind | None = None) -> None:
        super().__init__(message)
        self.kind: TroubleKind | None = kind


class HeadersUnavailable(NotSent):
    """The headers a request needs could not be had."""


CredentialOrigin: TypeAlias = Literal["headers", "headers_helper", "auth_provider", "login"]
"""Where the credentials of a request come from: the entry, a program, the program's own code, a login."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """The credentials that a request was sent with: their origin and names, without the values."""

    origin: CredentialOrigin
    names: tuple[str, ...] = ()
    """The headers."""
    expired: bool = False
    """Whether the token says of itself that it has expired, or the server does."""

    @property
    def described(self) -> str:
        """The credentials in words."""
        match self.origin:
            case "login":
                return "the token of your login"
            case "headers_helper":
                return "what `headers_helper` prints"
            case "auth_provider":
                return "what the auth provider returns"
            case "headers":
                return "the token in " + " and ".join(f"`headers.{name}`" for name in self.names)


class HttpRejected(RequestFailed):
    """The server's HTTP answer is no answer to the request.

    `status` and `challenge`, its `WWW-Authenticate`, are what a login needs to know. `retry_after` is when to
    try again, as the server says it, `content_type` what came in place of an answer, and `location` where the
    server would have the client go. `credentials` are what the request was sent with, and `detail` is the
    server's own reason.
    """

    def __init__(  # noqa: PLR0913 - what is known of an HTTP response
        self,
        status: int,
        message: str,
        *,
        delivery: Delivery | None = None,
        challenge: str | None = None,
        retry_after: str | None = None,
        content_type: str | None = None,
        location: str | None = None,
        credentials: Credentials | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR, message)
        self.status = status
        self.challenge = challenge
        self.retry_after = retry_after
        self.content_type = content_type
        self.location = location
        self.credentials = credentials
        self.detail = detail
        self.delivery = _delivery(status) if delivery is None else delivery


def _delivery(status: int) -> Delivery:
    """The delivery of a request that was rejected with this status."""
    if status in _REFUSALS or 300 <= status < 400:
        return "not_sent"
    # Another error that is the client's is the server's answer. Behind one that is the server's, or of time,
    # a proxy may have given up on a request that was carried out all the same.
    return "done" if 400 <= status < 500 and status != 408 else "unknown"


_REFUSALS = frozenset({401, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 417, 421, 426, 428, 429, 431})
"""Statuses that turn a request down for its sender, target, form or rate: it was not handled."""


class SessionExpired(HttpRejected):
    """The server no longer knows the session and did not look at the request: begin anew and send it again.

    Unless another request has: `session_id` is the one the request was sent with.
    """

    def __init__(self, status: int, session_id: str | None) -> None:
        super().__init__(status, "the server no longer knows the session", delivery="not_sent")
        self.session_id = session_id


class AnswerLost(RequestFailed):
    """The connection broke after the request was sent and before its answer was there."""

    def __init__(self, reason: str, delivery: Delivery = "unknown", kind: TroubleKind | None = None) -> None:
        super().__init__(CONNECTION_CLOSED, reason)
        self.delivery = delivery
        self.kind: TroubleKind | None = kind


class AnswerTooLong(AnswerUnreadable):
    """The answer is larger than allowed; the rest of it was not read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it is longer than the limit of {limit} bytes")
        self.limit = limit


def connection_trouble(exc: Exception) -> str:
    """Return what failed on the way to a server, for a person. The URL stays out; it may hold secrets."""
    match exc:
        case aiohttp.ClientConnectorError():
            return _connector_trouble(exc)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refused the connection: {exc.status} {exc.message}"
        case aiohttp.ClientResponseError():
            return _response_trouble(exc)
        case aiohttp.InvalidURL():
            return "the URL cannot be used"
        case aiohttp.ClientPayloadError():
            return "the answer broke off, or cannot be decompressed"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection"
        case TimeoutError():
            return "no connection in time"
        case OSError():
            return _socket_trouble(exc)
        case _:
            return str(exc) or type(exc).__name__


def trouble_kind(exc: Exception) -> TroubleKind | None:
    """Return what kind of trouble on the way to a server an exception of the HTTP library is."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return _certificate_trouble(exc.certificate_error)
    if isinstance(exc, aiohttp.ClientHttpProxyError) and exc.status == 407:
        return "proxy_login"
    if _speaks_no_tls(getattr(exc, "os_error", None)):
        return "no_tls"
    if _speaks_old_tls(getattr(exc, "os_error", None)):
        return "old_tls"
    if _is_compressed_otherwise(exc):
        return "damaged"
    for error, kind in _KINDS.items():
        if isinstance(exc, error):
            return kind
    if _tls_alert(exc) is not None:
        return "closed_tls"
    if isinstance(exc, OSError) and exc.errno in _ERRNO_KINDS:
        return _ERRNO_KINDS[exc.errno]
    return "unreachable" if isinstance(exc, aiohttp.ClientConnectorError) else None


def classify_refusal(kind: TroubleKind | None, host: str | None) -> TroubleKind | None:
    """Tell a refused connection to this machine itself, which has several addresses, from others."""
    return "refused_loopback" if kind == "refused" and is_loopback(host or "") else kind


_KINDS: Mapping[type[Exception], TroubleKind] = {
    aiohttp.ClientConnectorDNSError: "dns",
    aiohttp.ClientConnectorSSLError: "tls",
    aiohttp.ClientProxyConnectionError: "proxy",
    aiohttp.ClientHttpProxyError: "proxy",
    aiohttp.ClientPayloadError: "damaged",
    aiohttp.ClientResponseError: "not_http",
    aiohttp.ServerDisconnectedError: "closed",
    ConnectionResetError: "closed",
    BrokenPipeError: "closed",
    TimeoutError: "timeout",
}
"""The first that fits counts."""
_ERRNO_KINDS: Mapping[int | None, TroubleKind] = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "closed",
    errno.EPIPE: "closed",
}


def _speaks_no_tls(failure: object) -> bool:
    """Whether what came in place of a TLS handshake is no TLS at all."""
    return isinstance(failure, ssl.SSLError) and failure.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")


def _socket_trouble(exc: OSError) -> str:
    alert = _tls_alert(exc)
    if alert is not None:
        is_wanted = "CERTIFICATE_REQUIRED" in alert
        what = "it wants a certificate of the client" if is_wanted else alert
        return f"the server ended the TLS connection: {what}"
    # What aiohttp says of it names the URL.
    return "the connection broke" if exc.errno is None else f"the connection broke: {os.strerror(exc.errno)}"


def _tls_alert(exc: Exception) -> str | None:
    """The reason of an error of TLS, whose number is none of the system's."""
    found = _TLS_REASON.match(exc.strerror or "") if isinstance(exc, OSError) else None
    return found[1] if found else None


_TLS_REASON = re.compile(r"\[SSL: (\w+)\]")


def _response_trouble(exc: aiohttp.ClientResponseError) -> str:
    if _is_compressed_otherwise(exc):
        return "the answer cannot be decoded: it is compressed in a way that was not asked for"
    return "the answer is no HTTP that can be read: " + exc.message.partition("\n")[0].rstrip(":")


def _is_compressed_otherwise(exc: Exception) -> bool:
    return isinstance(exc, aiohttp.ClientResponseError) and "content-encoding" in exc.message


def _speaks_old_tls(failure: object) -> bool:
    return isinstance(failure, ssl.SSLError) and (failure.reason or "").endswith(
        ("ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")
    )


def _certificate_trouble(error: Exception) -> TroubleKind:
    match getattr(error, "verify_code", None):
        case 9 | 10:  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
            return "certificate_expired"
        case 62 | 64:  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
            return "certificate_host"
        case _:
            return "certificate"


def _connector_trouble(exc: aiohttp.ClientConnectorError) -> str:
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return f"the name {exc.host} cannot be resolved"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        error = exc.certificate_error
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error
        return f"the certificate of {exc.host} is not trusted: {reason}"
    is_proxy = isinstance(exc, aiohttp.ClientProxyConnectionError)
    where = f"{'the proxy ' if is_proxy else ''}{exc.host}:{exc.port}"
    failure: OSError = exc.os_error
    if _speaks_no_tls(failure):
        return f"{where} does not speak TLS, which `https://` wants"
    if failure.errno == errno.ECONNREFUSED:
        return f"no connection to {where}: nothing listens there (connection refused)"
    if _speaks_old_tls(failure):
        return f"{where} speaks only an old version of TLS"
    if isinstance(failure, ssl.SSLError):
        return f"no TLS connection to {where}: {failure.reason or 'the handshake failed'}"
    return f"no connection to {where}: {exc.strerror}"
