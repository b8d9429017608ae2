"""Conversion of exceptions of the SDK, the system and HTTP into `FairleadError`s with hints.

No other module converts them. Text of servers is sanitized here; the hints are in `failure_hints`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from fairlead.catalog.sanitize import gate
from fairlead.connection.diagnosis import MAX_EXCERPT, Diagnosis, diagnose
from fairlead.connection.failure_hints import (
    CRASHES,
    NOT_MCP,
    NOT_MCP_ANSWER,
    OTHER_TRANSPORT,
    hint_for_download,
    hint_for_ending,
    hint_for_login,
    hint_for_loss,
    hint_for_refusal,
    hint_for_slow_answer,
    hint_for_slow_start,
    hint_for_spawn,
    hint_for_status,
    hint_for_version,
    hint_on_the_way,
)
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
from fairlead.wording import join_clauses


def root_cause(exc: BaseException) -> BaseException:
    """The exception inside nested exception groups; the first if there are several."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


@contextmanager
def connecting(
    server_id: str, *, is_local: bool = False, transport_hint: str | None = None
) -> Generator[None]:
    """Raise one of our errors for anything that goes wrong before a connection is ready.

    Args:
        server_id: The server.
        is_local: It is a process, not a URL.
        transport_hint: What to do where it refuses the transport of its entry.
    """
    try:
        yield
    except FairleadError:
        raise
    except Exception as exc:  # noqa: BLE001 - every exception of a transport or the SDK becomes ours here
        cause = root_cause(exc)
        if isinstance(cause, FairleadError):
            raise cause from None
        error = connect_failure(server_id, cause, is_local=is_local)
        if transport_hint and isinstance(cause, HttpRejected) and cause.status in OTHER_TRANSPORT:
            error.hint = join_clauses(transport_hint, f"else {error.hint}")
        raise error from gate.displayable_cause(cause)


def connect_failure(
    server_id: str, cause: BaseException, *, is_local: bool = False
) -> ConnectFailed | AuthRequired:
    """The error for a connection that could not be made."""
    words = gate.text(str(cause))
    if isinstance(cause, HttpRejected) and cause.status == 401:
        return _login_refusal(server_id, cause)
    hint = _connect_hint(cause)
    if hint is not None:
        return ConnectFailed(server_id, words, hint=hint)
    match cause:
        case ConnectionClosed():
            return _early_end_error(server_id, cause.ending)
        case MCPError() if cause.code == UNSUPPORTED_PROTOCOL_VERSION:
            message = f"it speaks no protocol version known here: {words}"
            return ConnectFailed(server_id, message, hint=hint_for_version(words))
        case ValidationError():
            message = f"its answer to the handshake is not valid MCP: {_fields(cause)}"
            return ConnectFailed(server_id, message, hint=NOT_MCP)
        case MCPError():
            hint = hint_for_refusal(server_id, words, cause.code, is_local=is_local)
            return ConnectFailed(server_id, f"it refused the handshake: {words}", hint=hint)
        case _:
            return ConnectFailed(server_id, words or type(cause).__name__)


def _early_end_error(server_id: str, ending: ConnectionEnding) -> ConnectFailed:
    found = _diagnose_ending(ending)
    hint = hint_for_ending(server_id, ending, found.reason) if ending.is_local else None
    return ConnectFailed(server_id, _describe_ending(ending, found), hint=hint)


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
            return gate.text(hint_for_spawn(cause))  # it may quote the first line of a script
        case HttpRejected():
            return hint_for_status(cause)
        case AnswerLost() | Unreachable():
            return hint_on_the_way(cause.kind)
        case NotSent():
            return "correct `headers`, or what gives them"
        case AnswerUnreadable():
            return NOT_MCP_ANSWER
        case _:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowStart:
    """A start that took too long."""

    allowed: float
    """The start timeout, in seconds."""
    took: float
    """How long it was waited for in fact; closing what did not answer can take longer."""
    is_local: bool
    """It is a process, not a URL."""
    stderr_lines: Sequence[str] = ()
    """What it wrote to stderr until then."""
    noise: Sequence[str] = ()
    """Its stdout outside the protocol."""
    download: str | None = None
    """What it was still fetching, in its own words."""
    command: str | None = None
    """The command that fetches it, where that can be shown."""


def start_timed_out(server_id: str, start: SlowStart) -> ConnectFailed:
    """The error for a server that was not ready in time."""
    seconds = start.allowed if start.took < start.allowed + 0.5 else round(start.took, 1)
    if start.download is not None:
        message = gate.text(f"still downloading after {round(start.took):g} s: {start.download}")
        return ConnectFailed(server_id, message, hint=hint_for_download(start.command))
    found = diagnose(start.stderr_lines)
    message = f"not ready after {seconds:g} s"
    if not start.is_local:
        return ConnectFailed(server_id, _with_diagnosis(message, found), hint=hint_for_slow_answer())
    hint = hint_for_slow_start(stderr_lines=start.stderr_lines, noise=() if found.reason else start.noise)
    if start.command is not None and not start.stderr_lines:
        hint = join_clauses(
            f"it may be downloading the server: {hint_for_download(start.command)}", f"or {hint}"
        )
    return ConnectFailed(server_id, _with_noise(message, found, start.noise), hint=hint)


def _diagnose_ending(ending: ConnectionEnding, *, has_worked: bool = False) -> Diagnosis:
    found = diagnose(ending.stderr, has_worked=has_worked)
    if ending.signal is not None and ending.signal not in CRASHES:
        return replace(
            found, reason=None
        )  # it was ended from outside: what it wrote before is not the reason
    return found


def _describe_ending(ending: ConnectionEnding, found: Diagnosis) -> str:
    return _with_noise(ending.message, found, ending.noise)


def _with_noise(message: str, found: Diagnosis, noise: Sequence[str]) -> str:
    """A message with the reason; where stderr has none, with what the server wrote to stdout as well."""
    if found.reason is not None or not noise:
        return _with_diagnosis(message, found)
    telling = diagnose(noise).reason or next(filter(_has_letters, reversed(noise)), noise[-1])
    message += f"; it wrote to stdout, where only MCP messages belong: {telling.strip()}"
    if len(noise) > 1:
        message += "\n" + "\n".join(f"  {line}" for line in noise[-MAX_EXCERPT:])
    return _with_diagnosis(message, found)


def _has_letters(line: str) -> bool:
    return any(map(str.isalpha, line))


def _with_diagnosis(message: str, found: Diagnosis) -> str:
    """A message with the reason in its first line, for where only that is shown, and more below."""
    if found.reason is not None:
        message += f": {found.reason}"
    if found.excerpt:
        message += "\nit said:\n" + "\n".join(f"  {line}" for line in found.excerpt)
    return gate.text(message, 2 * gate.MAX_TEXT_BYTES)


def _login_refusal(server_id: str, rejected: HttpRejected) -> AuthRequired:
    """The error for a request that was refused for want of a login: by what it was sent with."""
    refused = rejected.credentials
    if refused is None or not refused.names:
        message = "login required (401)"
    elif refused.expired:
        message = f"{refused.described} has expired (401)"
    else:
        message = f"it refused {refused.described} (401)"
    if rejected.detail:
        message = gate.text(f"{message}: {rejected.detail}")
    return AuthRequired(server_id, message, hint=hint_for_login(server_id, rejected))


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
            error = CallRejected(server_id, words, rpc_code=exc.code, data=exc.error.data)
            error.delivery = delivery  # one of a poll says nothing of the task
            return error
        case ConnectionClosed():
            found = _diagnose_ending(exc.ending, has_worked=True)
            hint = _repeat_hint(delivery) or hint_for_loss(server_id, exc.ending)
            return ConnectionLost(
                server_id, _describe_ending(exc.ending, found), delivery=delivery, hint=hint
            )
        case SessionExpired():
            return ConnectionLost(server_id, words, delivery=delivery)
        case HttpRejected(status=401):
            return _login_refusal(server_id, exc)
        case HttpRejected():
            return CallFailed(server_id, words, delivery=delivery, hint=hint_for_status(exc))
        case Unreachable():
            return ConnectionLost(server_id, words, delivery=delivery, hint=hint_on_the_way(exc.kind))
        case RequestFailed() if exc.code == CONNECTION_CLOSED:
            return ConnectionLost(server_id, words, delivery=delivery, hint=_repeat_hint(delivery))
        case NotSent():
            return ConnectionLost(server_id, words, delivery=delivery)
        case _:
            return CallFailed(server_id, words, delivery=delivery)


def lost_error(server_id: str, ending: ConnectionEnding) -> ConnectionLost:
    """The error for a connection that ended by itself."""
    message = _describe_ending(ending, _diagnose_ending(ending, has_worked=True))
    return ConnectionLost(server_id, message, delivery="not_sent", hint=hint_for_loss(server_id, ending))


def _repeat_hint(delivery: Delivery) -> str | None:
    if delivery == "unknown":
        return "the server may have carried it out; check before you repeat it"
    return None
