"""Log of HTTP connections and requests, for `--verbose`: names, addresses, statuses and times.

URLs are logged without user, query and fragment, and neither headers nor bodies are.
"""

import logging
import time
from types import SimpleNamespace

import aiohttp
from yarl import URL

logger = logging.getLogger(__name__)


def request_traces() -> list[aiohttp.TraceConfig]:
    """Trace configuration for an HTTP client: none, unless this log is read."""
    if not logger.isEnabledFor(logging.DEBUG):
        return []
    traces = aiohttp.TraceConfig()
    traces.on_request_start.append(_on_request_start)
    traces.on_connection_create_start.append(_on_connect_start)
    traces.on_connection_create_end.append(_on_connect_end)
    traces.on_request_end.append(_on_response)
    traces.on_request_exception.append(_on_request_failed)
    return [traces]


async def _on_request_start(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.began = time.perf_counter()


async def _on_connect_start(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.connecting = time.perf_counter()


async def _on_connect_end(_session: object, context: SimpleNamespace, _params: object) -> None:
    logger.debug("connected", extra={"seconds": _since(context.connecting)})


async def _on_response(
    _session: object, context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
) -> None:
    logger.debug(
        "http request",
        extra={
            "method": params.method,
            "url": _redact_url(params.url),
            "status": params.response.status,
            "seconds": _since(context.began),
        },
    )


async def _on_request_failed(
    _session: object, context: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams
) -> None:
    logger.debug(
        "http request failed",
        extra={
            "method": params.method,
            "url": _redact_url(params.url),
            "reason": type(params.exception).__name__,
            "seconds": _since(context.began),
        },
    )


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.3f}"


def _redact_url(url: URL) -> str:
    return str(url.with_user(None).with_query(None).with_fragment(None))
