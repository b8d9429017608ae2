"""Turn what the SDK, the system and HTTP raise into our own errors. The only place that does.

Servers have a say in most of them, so here their words pass the gate.
"""

import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from fairlead.catalog import gate
from fairlead.config.command_lines import command_line
from fairlead.connection.diagnosis import MAX_EXCERPT, Diagnosis, diagnose
from fairlead.connection.hints import hint_for_slow_start, hint_for_spawn, hint_for_status, hint_on_the_way
from fairlead.connection.http_outcomes import (
    AnswerLost,
    HttpRejected,
    NotSent,
    SessionExpired,
    Unreachable,
)
from fairlead.connection.outcomes import (
    AnswerUnreadable,
    ConnectionClosed,
    Ending,
    NotEncodable,
    RequestExpired,
    RequestFailed,
    RequestRejected,
    SpawnFailed,
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


def root_cause(exc: BaseException) -> BaseException:
    """The one real failure inside the groups that task groups wrap it in; the first, where there are more."""
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
        raise connect_failure(server_id, cause) from gate.shown_cause(cause)


def connect_failure(server_id: str, cause: BaseException) -> ConnectFailed | AuthRequired:
    """The error for a connection that could not be made."""
    words = gate.text(str(cause))
    if isinstance(cause, HttpRejected) and cause.status == 401:
        return _refused_login(server_id)
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
    """Which fields are not valid, and why."""
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


def _ending_words(ending: Ending, *, has_worked: bool = False) -> str:
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


def _refused_login(server_id: str) -> AuthRequired:
    hint = f"correct `headers.Authorization`; or leave it out and run `{command_line('login', server_id)}`"
    return AuthRequired(server_id, "it wants a login (401)", hint=hint)


FAILURES = (RequestFailed, NotSent, NotEncodable)
"""What a request raises that brings no result. `call_failure` makes one of our errors of it."""


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
            raise call_failure(self._server_id, exc) from gate.shown_cause(exc)


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
            return _refused_login(server_id)
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


def lost(server_id: str, ending: Ending) -> ConnectionLost:
    """The error for a connection that ended by itself."""
    return ConnectionLost(server_id, _ending_words(ending, has_worked=True), delivery="not_sent")


def _repeat_hint(delivery: Delivery) -> str | None:
    if delivery == "unknown":
        return "the server may have carried it out; check before you repeat it"
    return None
