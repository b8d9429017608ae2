"""Turn what the SDK, the system and HTTP raise into our own errors. The only place that does.

Servers have a say in most of them, so here their words pass the gate.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from fairlead.catalog import gate
from fairlead.connection.http_outcomes import HttpRejected, NotSent, SessionExpired
from fairlead.connection.outcomes import (
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

SHOWN_STDERR_LINES = 8


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
        raise connect_failure(server_id, cause) from cause


def connect_failure(server_id: str, cause: BaseException) -> ConnectFailed | AuthRequired:
    """The error for a connection that could not be made."""
    words = gate.text(str(cause))
    match cause:
        case SpawnFailed():
            return ConnectFailed(server_id, words, hint="check `command` and `cwd`; is it installed?")
        case ConnectionClosed():
            return ConnectFailed(server_id, _ending_words(cause.ending))
        case HttpRejected(status=401):
            hint = "set `headers.Authorization`, or log in"
            return AuthRequired(server_id, "it wants a login (401)", hint=hint)
        case HttpRejected():
            return ConnectFailed(server_id, words, hint="is the URL an MCP endpoint?")
        case NotSent():
            return ConnectFailed(server_id, words, hint="is it running, and is the URL right?")
        case MCPError() if cause.code == UNSUPPORTED_PROTOCOL_VERSION:
            return ConnectFailed(server_id, f"it speaks no protocol version known here: {words}")
        case ValidationError():
            return ConnectFailed(server_id, "its answer to the handshake is not valid MCP")
        case MCPError():
            return ConnectFailed(server_id, f"it refused the handshake: {words}")
        case _:
            return ConnectFailed(server_id, words or type(cause).__name__)


def _ending_words(ending: Ending) -> str:
    tail = "\n".join(f"  {line}" for line in ending.stderr[-SHOWN_STDERR_LINES:])
    return gate.text(
        f"{ending.message}; it said:\n{tail}" if tail else ending.message, 2 * gate.MAX_TEXT_BYTES
    )


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
        if isinstance(exc, RequestFailed | NotSent | NotEncodable):
            raise call_failure(self._server_id, exc) from exc


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
            message = _ending_words(exc.ending)
            return ConnectionLost(server_id, message, delivery=delivery, hint=_repeat_hint(delivery))
        case SessionExpired():
            return ConnectionLost(server_id, words, delivery=delivery)
        case HttpRejected(status=401):
            return AuthRequired(
                server_id, "it wants a login (401)", hint="set `headers.Authorization`, or log in"
            )
        case RequestFailed() if exc.code == CONNECTION_CLOSED:
            return ConnectionLost(server_id, words, delivery=delivery, hint=_repeat_hint(delivery))
        case NotSent():
            return ConnectionLost(server_id, words, delivery=delivery)
        case _:
            return CallFailed(server_id, words, delivery=delivery)


def lost(server_id: str, ending: Ending) -> ConnectionLost:
    """The error for a connection that ended by itself."""
    return ConnectionLost(server_id, _ending_words(ending), delivery="not_sent")


def _repeat_hint(delivery: Delivery) -> str | None:
    if delivery == "unknown":
        return "the server may have carried it out; check before you repeat it"
    return None
