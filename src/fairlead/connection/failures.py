"""Conversion of exceptions of the SDK, the system and HTTP into `FairleadError`s with hints.

No other module converts them. Text of servers is sanitized here. Each hint names the setting to change or the
command to run; tests follow those that can be followed on one machine.
"""

import errno
import re
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from fairlead.catalog.sanitize import gate
from fairlead.config.command_lines import command_line
from fairlead.connection.diagnosis import MAX_EXCERPT, Diagnosis, diagnose
from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerUnreadable,
    ConnectionClosed,
    ConnectionEnding,
    HttpRejected,
    NotEncodable,
    NotSent,
    RequestExpired,
    RequestFailed,
    RequestRejected,
    SessionExpired,
    SpawnFailed,
    TroubleKind,
    Unreachable,
)
from fairlead.errors import (
    AuthRequired,
    CallFailed,
    CallRejected,
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    Delivery,
    FairleadError,
)

_MCP_URL = "look for the MCP URL in the server's documentation, often one that ends in `/mcp` or `/sse`"
_MORE_TIME = "`startup_timeout_ms` gives it more time"
_PROXY_LOGIN = "the proxy wants a login: write HTTPS_PROXY or HTTP_PROXY as `http://user:password@host:port`"

_ON_THE_WAY: Mapping[TroubleKind | None, str] = {
    "certificate": (
        "add the certificate, or that of its issuer, to those that this machine trusts; or set SSL_CERT_FILE"
        " to a PEM file of all certificates to trust, which then replaces the machine's"
    ),
    "certificate_expired": "have the server's certificate renewed; is the clock of this machine right?",
    "certificate_host": (
        "write the host in `url` as the certificate names it, or have the certificate name this one too"
    ),
    "tls": "does the server speak TLS at this port? If not, write `http://` in `url`",
    "dns": (
        "check the host in `url`; is this machine online? The name may need a VPN, or a proxy (HTTPS_PROXY)"
    ),
    "refused": "is the server running, and is the port in `url` right?",
    "unreachable": "can this machine reach that network? It may need a VPN, or a proxy (HTTPS_PROXY)",
    "timeout": (
        "is the host in `url` right, and does a firewall let this machine reach it? HTTPS_PROXY sets a proxy"
    ),
    "proxy": "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY names hosts that are reached without a proxy",
    "proxy_login": _PROXY_LOGIN,
    "not_http": "does the server speak TLS at this port? Then write `https://` in `url`; else check the port",
    "closed": (
        "does the server speak TLS at this port? Then write `https://` in `url`;"
        " else the server's own log may say why it closed the connection"
    ),
    None: "is it running, and is the URL right?",
}

_STATUSES: Mapping[int, str] = {
    400: f"is `url` an MCP endpoint? {_MCP_URL}",
    403: (
        "the server does not allow it: check the rights of the token or key in `headers`,"
        " and whether the server lets this machine in"
    ),
    404: f"check the path of `url`; {_MCP_URL}",
    405: f"`url` takes no MCP requests; {_MCP_URL}",
    406: f"`url` does not answer as MCP does; {_MCP_URL}",
    407: _PROXY_LOGIN,
    408: "the server gave up waiting; try again, and see its own log if that does not help",
    410: f"what was at `url` is gone; {_MCP_URL}",
    415: f"`url` does not take what MCP sends; {_MCP_URL}",
    421: "write the host in `url` as the server knows it",
    429: "it limits how often it may be asked; try again later",
    502: "what stands in front of the server cannot reach it: is the server behind it running?",
    503: "the server is overloaded or down for maintenance; try again later",
    504: "what stands in front of the server got no answer from it: is the server behind it running?",
}

_LOGIN_PAGE = re.compile(r"log-?in|sign-?in|sso|auth|account|saml|idp", re.IGNORECASE)
_WANTS_TLS = re.compile(r"https", re.IGNORECASE)


def hint_on_the_way(kind: TroubleKind | None) -> str:
    """The hint for a network error."""
    return _ON_THE_WAY[kind]


def hint_for_status(rejected: HttpRejected) -> str:
    """The hint for an unexpected HTTP response."""
    status = rejected.status
    if 300 <= status < 400:
        if _LOGIN_PAGE.search(rejected.location or ""):
            return f"that looks like a login page, so `url` is a web page and no MCP endpoint; {_MCP_URL}"
        return "if you trust where it leads, write that address as `url`"
    if status < 300 and "html" in (rejected.content_type or ""):
        return f"`url` is a web page, not an MCP endpoint; {_MCP_URL}"
    if status == 400 and _WANTS_TLS.search(rejected.message):
        return _ON_THE_WAY["not_http"]
    if rejected.retry_after and status in (429, 503):
        wait = (
            f"{rejected.retry_after} s"
            if rejected.retry_after.isdecimal()
            else f"until {rejected.retry_after}"
        )
        return f"{_STATUSES[status].partition(';')[0]}; wait {wait} and try again"
    if status in _STATUSES:
        return _STATUSES[status]
    return (
        _STATUSES[400]
        if status < 500
        else "the trouble is at the server: its own log says more; try again later"
    )


def hint_for_spawn(failed: SpawnFailed) -> str:
    """The hint for a process that could not be started."""
    match failed.__cause__:
        case OSError(filename="folder"):
            return "correct `cwd`"
        case FileNotFoundError():
            return "install it, or write its whole path as `command`; is `cwd` right?"
        case PermissionError():
            return "make it executable (`chmod +x`), or correct `command`"
        case OSError(errno=errno.ENOEXEC):
            return "is it for this machine? A script needs a first line such as `#!/usr/bin/env python3`"
        case _:
            return "check `command`, `args`, `env` and `cwd`"


def hint_for_slow_start(*, is_local: bool, has_said: bool) -> str:
    """The hint for a server that was not ready in time."""
    if not is_local:
        return f"it does not answer: is `url` an MCP endpoint? {_MCP_URL}; {_MORE_TIME}"
    if has_said:
        return f"does it wait for something, or does it not speak MCP over stdio? {_MORE_TIME}"
    return f"it wrote nothing to stderr: does it need an argument to speak MCP over stdio? {_MORE_TIME}"


def root_cause(exc: BaseException) -> BaseException:
    """The exception inside nested exception groups; the first if there are several."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


@contextmanager
def connecting(server_id: str) -> Generator[None]:
    """Raise one of our errors for anything that goes wrong before a connection is ready."""
    try:
        yield
    except FairleadError:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever a transport or the SDK raises becomes ours here
        cause = root_cause(exc)
        if isinstance(cause, FairleadError):
            raise cause from None
        raise connect_failure(server_id, cause) from gate.displayable_cause(cause)


def connect_failure(server_id: str, cause: BaseException) -> ConnectFailed | AuthRequired:
    """The error for a connection that could not be made."""
    words = gate.text(str(cause))
    if isinstance(cause, HttpRejected) and cause.status == 401:
        return _login_refusal(server_id)
    hint = _connect_hint(cause)
    if hint is not None:
        return ConnectFailed(server_id, words, hint=hint)
    match cause:
        case ConnectionClosed():
            return ConnectFailed(server_id, _ending_words(cause.ending))
        case MCPError() if cause.code == UNSUPPORTED_PROTOCOL_VERSION:
            return ConnectFailed(server_id, f"it speaks no protocol version known here: {words}")
        case ValidationError():
            return ConnectFailed(server_id, f"its answer to the handshake is not valid MCP: {_fields(cause)}")
        case MCPError():
            return ConnectFailed(server_id, f"it refused the handshake: {words}")
        case _:
            return ConnectFailed(server_id, words or type(cause).__name__)


def _fields(cause: ValidationError) -> str:
    """The invalid fields, each with the reason."""
    found = [
        f"`{'.'.join(map(str, error['loc'])) or 'all of it'}`: {error['msg']}"
        for error in cause.errors(include_url=False, include_input=False, include_context=False)
    ]
    return gate.text("; ".join(found[:5]))


def _connect_hint(cause: BaseException) -> str | None:
    match cause:
        case SpawnFailed():
            return hint_for_spawn(cause)
        case HttpRejected():
            return hint_for_status(cause)
        case AnswerLost() | Unreachable():
            return hint_on_the_way(cause.kind)
        case NotSent():
            return "correct `headers`, or what gives them"
        case AnswerUnreadable():
            return "is it an MCP server?"
        case _:
            return None


def start_timed_out(
    server_id: str, allowed: float, took: float, said: Sequence[str], *, is_local: bool
) -> ConnectFailed:
    """The error for a server that was not ready in time.

    Args:
        server_id: The server.
        allowed: The start timeout, in seconds.
        took: How long it was waited for in fact; closing what did not answer can take longer.
        said: What it wrote to stderr, or to stdout beside the protocol, until then.
        is_local: It is a process, not a URL.
    """
    seconds = allowed if took < allowed + 0.5 else round(took, 1)
    message = _with_diagnosis(f"not ready after {seconds:g} s", diagnose(said))
    hint = hint_for_slow_start(is_local=is_local, has_said=bool(said))
    return ConnectFailed(server_id, message, hint=hint)


def _ending_words(ending: ConnectionEnding, *, has_worked: bool = False) -> str:
    if not ending.stderr and ending.noise:
        noise = "\n".join(f"  {line}" for line in ending.noise[-MAX_EXCERPT:])
        said = f"{ending.message}; it wrote to stdout, where only MCP messages belong:\n{noise}"
        return gate.text(said, 2 * gate.MAX_TEXT_BYTES)
    found = diagnose(ending.stderr, has_worked=has_worked)
    if ending.signal is not None and ending.signal not in _CRASHES:
        found = replace(found, reason=None)  # it was ended from outside, whatever it wrote before
    return _with_diagnosis(ending.message, found)


_CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE})


def _with_diagnosis(message: str, found: Diagnosis) -> str:
    """A message with the reason in its first line, for where only that is shown, and more below."""
    if found.reason is not None:
        message += f": {found.reason}"
    if found.excerpt:
        message += "\nit said:\n" + "\n".join(f"  {line}" for line in found.excerpt)
    return gate.text(message, 2 * gate.MAX_TEXT_BYTES)


def _login_refusal(server_id: str) -> AuthRequired:
    hint = f"correct `headers.Authorization`; or leave it out and run `{command_line('login', server_id)}`"
    return AuthRequired(server_id, "it wants a login (401)", hint=hint)


FAILURES = (RequestFailed, NotSent, NotEncodable)
"""The exceptions of a request without a result. `call_failure` converts them."""


@lru_cache(maxsize=1024)
def calling(server_id: str) -> "_Calling":
    """Raise one of our errors for anything that goes wrong in a request. Each says how far it got.

    It has no state of its own, so that all requests to a server share one.
    """
    return _Calling(server_id)


class _Calling:
    # A class rather than a generator, which takes three times as long: every call is in this block.
    __slots__ = ("_server_id",)

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, FAILURES):
            raise call_failure(self._server_id, exc) from gate.displayable_cause(exc)


def call_failure(server_id: str, exc: RequestFailed | NotSent | NotEncodable) -> CallFailed | AuthRequired:
    """The error for a request that brought no result."""
    delivery: Delivery = exc.delivery
    words = gate.text(str(exc))
    match exc:
        case RequestExpired():
            return CallTimedOut(server_id, words, delivery=delivery)
        case RequestRejected():
            return CallRejected(server_id, words, rpc_code=exc.code, data=exc.error.data)
        case ConnectionClosed():
            message = _ending_words(exc.ending, has_worked=True)
            return ConnectionLost(server_id, message, delivery=delivery, hint=_repeat_hint(delivery))
        case SessionExpired():
            return ConnectionLost(server_id, words, delivery=delivery)
        case HttpRejected(status=401):
            return _login_refusal(server_id)
        case HttpRejected(status=403 | 407 | 429 | 500 | 502 | 503 | 504):
            return CallFailed(server_id, words, delivery=delivery, hint=hint_for_status(exc))
        case Unreachable():
            return ConnectionLost(server_id, words, delivery=delivery, hint=hint_on_the_way(exc.kind))
        case RequestFailed() if exc.code == CONNECTION_CLOSED:
            return ConnectionLost(server_id, words, delivery=delivery, hint=_repeat_hint(delivery))
        case NotSent():
            return ConnectionLost(server_id, words, delivery=delivery)
        case _:
            return CallFailed(server_id, words, delivery=delivery)


def lost(server_id: str, ending: ConnectionEnding) -> ConnectionLost:
    """The error for a connection that ended by itself."""
    return ConnectionLost(server_id, _ending_words(ending, has_worked=True), delivery="not_sent")


def _repeat_hint(delivery: Delivery) -> str | None:
    if delivery == "unknown":
        return "the server may have carried it out; check before you repeat it"
    return None
