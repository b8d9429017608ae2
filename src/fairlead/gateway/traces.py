"""Requests of clients as parts of traces, where the SDK's server answers them. See `connection.tracing`."""

from typing import Final

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp_types import CallToolResult

from fairlead.connection.tracing import About, Trace, Tracer, carrying, read_trace
from fairlead.gateway.turns import Context

_ENDLESS: Final = "subscriptions/listen"
"""A request that is answered when the client goes away: no span is of use that is told of hours later."""


def traced(tracer: Tracer | None) -> ServerMiddleware[object]:
    """What the SDK's server shall do around every message: note whose trace it belongs to, and record it."""

    async def middleware(ctx: Context, call_next: CallNext) -> HandlerResult:
        parent = _trace_of(ctx)
        if tracer is None or ctx.request_id is None or ctx.method == _ENDLESS:
            with carrying(parent):
                return await call_next(ctx)
        name: object = (ctx.params or {}).get("name")
        about = About(
            method=ctx.method,
            name=name if isinstance(name, str) else None,
            version=ctx.protocol_version,
            transport="pipe" if ctx.request is None else "tcp",
            request_id=str(ctx.request_id),
        )
        with tracer.serving(about, parent) as span, carrying(span.trace):
            result = await call_next(ctx)
            match result:
                case CallToolResult(is_error=True) | {"isError": True}:
                    span.failed("tool_error")
                case _:
                    pass
            return result

    return middleware


def _trace_of(ctx: Context) -> Trace | None:
    """What a request says of its trace: in itself, or else in the headers it came with."""
    trace = read_trace(ctx.meta) if ctx.meta else None
    return read_trace(ctx.request.headers) if trace is None and ctx.request is not None else trace
