"""Trace propagation (W3C Trace Context) from clients' requests to requests of servers.

A client's trace context, from `_meta` or an HTTP header, goes to servers unchanged or, with a `Tracer`, as
the span of the request. Every server gets `traceparent` and `tracestate`, which are random numbers and grant
nothing; `baggage` goes to no server, since it may describe the user. Invalid values are dropped.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from fairlead.catalog.sanitize.slices import may_have_string

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_MAX_STATE_CHARACTERS = 512
_MAX_STATE_MEMBERS = 32

_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE_MEMBER = re.compile(
    r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace context: the parent span, and vendors' `tracestate`."""

    parent: str
    state: str | None = None
    is_ours: bool = False
    """Whether it is a span of this process rather than of the client."""

    @property
    def meta(self) -> dict[str, str]:
        """Its fields for the `_meta` of a request."""
        return {TRACEPARENT: self.parent} | ({TRACESTATE: self.state} if self.state else {})


TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace that the present task's requests belong to. What a connection does on its own belongs to none."""


def read_trace(meta: Mapping[str, object]) -> Trace | None:
    """The trace context in a request's `_meta` or headers, if there is a valid one."""
    parent = meta.get(TRACEPARENT)
    if not isinstance(parent, str) or _PARENT.fullmatch(parent) is None:
        return None
    state = meta.get(TRACESTATE)
    return Trace(parent, state if isinstance(state, str) and _is_state(state) else None)


def _is_state(text: str) -> bool:
    if len(text) > _MAX_STATE_CHARACTERS:
        return False
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    return 0 < len(members) <= _MAX_STATE_MEMBERS and all(map(_STATE_MEMBER.fullmatch, members))


class carrying:  # noqa: N801 - a block, and a class only because generators take three times as long
    """Set the trace context of the requests in the block; None for no trace."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace
        self._before: Token[Trace | None]

    def __enter__(self) -> None:
        self._before = TRACE.set(self._trace)

    def __exit__(self, *exc: object) -> None:
        TRACE.reset(self._before)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanDetails:
    """The attributes of a request that a span may have: neither arguments nor results."""

    method: str
    name: str | None = None
    """The name of the tool or prompt, if there is one."""
    version: str | None = None
    transport: Literal["pipe", "tcp"] | None = None
    server_id: str | None = None
    """The server that the request goes to, where we are the client."""
    request_id: str | None = None


class Span(Protocol):
    """A request while it is worked on."""

    @property
    def trace(self) -> Trace:
        """The trace context for requests made within this span."""
        ...

    def record_failure(self, kind: str, *, rpc_code: int | None = None) -> None:
        """Note that it failed, in one of few words, and with the protocol's code if there is one."""
        ...

    def forget(self) -> None:
        """Drop the span: the process that answers the request records it."""
        ...


class Tracer(Protocol):
    """Records requests as spans. An exception that leaves the block is recorded as the span's error."""

    def serving(self, about: SpanDetails, parent: Trace | None) -> AbstractContextManager[Span]:
        """Record a request that a client makes, for the length of the block."""
        ...

    def requesting(self, about: SpanDetails, parent: Trace | None) -> AbstractContextManager[Span]:
        """Record a request to a server, for the length of the block."""
        ...


class _SpanOutcome(msgspec.Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


_decode_outcome = msgspec.json.Decoder(_SpanOutcome).decode


def is_tool_error(result: bytes | msgspec.Raw) -> bool:
    """Whether a tool result has `isError`."""
    if not may_have_string(bytes(result), b'"isError"'):
        return False
    try:
        return _decode_outcome(result).is_error
    except (msgspec.DecodeError, RecursionError):
        return False
