"""OpenTelemetry spans for MCP requests, named by its semantic conventions for MCP.

Spans have no arguments, results, session ids or error texts, though the conventions allow them.
"""

from importlib.metadata import version as installed_version
from typing import Final

from mcp.shared.exceptions import MCPError
from opentelemetry import trace as api
from opentelemetry.trace import SpanKind, StatusCode

from fairlead.catalog.sanitize import gate
from fairlead.connection.tracing import SpanDetails, Trace, Tracer
from fairlead.errors import CallRejected, FairleadError

SERVER_ID: Final = "fairlead.server.id"
"""The attribute with the server's id. The semantic conventions have none for it."""

_METHOD: Final = "mcp.method.name"
_NAMES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""Under which attribute methods have the name in them. Of other methods it may be anything."""
_MAX_CHARACTERS: Final = 128
"""Longest name, method or id in an attribute: clients choose them."""


class OpenTelemetry:
    """Tracer that records requests as spans of an OpenTelemetry provider."""

    def __init__(self, provider: api.TracerProvider) -> None:
        self._tracer = provider.get_tracer("fairlead", installed_version("fairlead"))

    def serving(self, about: SpanDetails, parent: Trace | None) -> "_Span":
        """Record a request that a client makes."""
        return self._start_span(about, parent, SpanKind.SERVER)

    def requesting(self, about: SpanDetails, parent: Trace | None) -> "_Span":
        """Record a request to a server."""
        return self._start_span(about, parent, SpanKind.CLIENT)

    def _start_span(self, about: SpanDetails, parent: Trace | None, kind: SpanKind) -> "_Span":
        attributes = _attributes(about)
        target = next((attributes[key] for key in _NAMES.values() if key in attributes), None)
        name = f"{attributes[_METHOD]} {target}" if target else attributes[_METHOD]
        # Without a parent of its own it belongs to the program's current span, if any.
        context = api.set_span_in_context(_span_of_trace(parent)) if parent else None
        return _Span(self._tracer.start_span(name, context, kind, attributes))


class _Span:
    """One span, over at the end of its block."""

    def __init__(self, span: api.Span) -> None:
        self._span = span
        self._is_wanted = True

    @property
    def trace(self) -> Trace:
        """The trace context for requests made within this span."""
        context = self._span.get_span_context()
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        return Trace(parent, context.trace_state.to_header() or None, is_ours=True)

    def record_failure(self, kind: str, *, rpc_code: int | None = None) -> None:
        """Note that it failed."""
        self._span.set_attribute("error.type", kind)
        if rpc_code is not None:
            self._span.set_attribute("rpc.response.status_code", str(rpc_code))
        self._span.set_status(StatusCode.ERROR)  # and no description, which would quote what was sent

    def forget(self) -> None:
        """Drop the span: one that never ends is not exported."""
        self._is_wanted = False

    def __enter__(self) -> "_Span":
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            self._record_exception(exc)
        if self._is_wanted:
            self._span.end()

    def _record_exception(self, exc: BaseException) -> None:
        match exc:
            case CallRejected():
                self.record_failure(str(exc.rpc_code), rpc_code=exc.rpc_code)
            case MCPError():
                self.record_failure(str(exc.error.code), rpc_code=exc.error.code)
            case FairleadError():
                self.record_failure(exc.code)
            case Exception():
                self.record_failure(type(exc).__qualname__)
            case _:
                self.record_failure("cancelled")


def _span_of_trace(trace: Trace) -> api.Span:
    """A span that another process records."""
    _, trace_id, span_id, flags = trace.parent.split("-")
    context = api.SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=not trace.is_ours,
        trace_flags=api.TraceFlags(int(flags, 16)),
        trace_state=api.TraceState.from_header([trace.state]) if trace.state else None,
    )
    return api.NonRecordingSpan(context)


def _attributes(about: SpanDetails) -> dict[str, str]:
    attributes = {
        _METHOD: about.method,
        "mcp.protocol.version": about.version,
        "network.transport": about.transport,
        "jsonrpc.request.id": about.request_id,
        SERVER_ID: about.server_id,
    }
    if about.method in _NAMES:
        attributes[_NAMES[about.method]] = about.name
    if about.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return {name: gate.content(value, _MAX_CHARACTERS) for name, value in attributes.items() if value}


def programs_tracer() -> Tracer | None:
    """The tracer of a program that has set a tracer provider; None in others."""
    provider = api.get_tracer_provider()
    is_none = isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)
    return None if is_none else OpenTelemetry(provider)
