"""Export of spans as the environment configures it: `OTEL_EXPORTER_OTLP_ENDPOINT` and its like."""

import os
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from fairlead.config.command_lines import extra_hint
from fairlead.terminal.output import warn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from fairlead.connection.tracing import Tracer

FLUSH_SECONDS: Final = 3.0
"""How long the end of a command waits for a collector that does not take its spans."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@asynccontextmanager
async def tracing() -> "AsyncGenerator[Tracer | None]":
    """Export spans during the block as the environment configures it; None where it does not."""
    exporters = read_exporters(os.environ)
    provider = _provider(exporters) if exporters else None
    if provider is None:
        yield None
        return
    from anyio import CancelScope, to_thread

    from fairlead.host.telemetry import OpenTelemetry

    try:
        yield OpenTelemetry(provider)
    finally:
        # A thread that the end of the process does not wait for, should the collector hang.
        closing = threading.Thread(target=provider.shutdown, daemon=True)
        closing.start()
        with CancelScope(shield=True):
            await to_thread.run_sync(closing.join, FLUSH_SECONDS)


def read_exporters(env: Mapping[str, str]) -> tuple[str, ...]:
    """The span exporters that an environment names, by OpenTelemetry's names for them."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = env.get("OTEL_TRACES_EXPORTER", "").strip()
    if not named and any(env.get(name) for name in _ENDPOINTS):
        named = "otlp"
    names = (name.strip().lower() for name in named.split(","))
    return tuple(name for name in names if name not in ("", "none"))


def _provider(exporters: tuple[str, ...]) -> "TracerProvider | None":
    """Provider that exports spans in the background. Exporters that cannot be made are left out."""
    if not all(_is_installed(module) for module in _NEEDED):
        warn("the environment wants traces, for which something is missing", extra_hint("otel"))
        return None
    opened = [exporter for name in exporters if (exporter := _exporter(name)) is not None]
    if not opened:
        return None
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = OTELResourceDetector().detect().attributes
    ours = {"service.name": "fairlead", "service.version": installed_version("fairlead")}
    provider = TracerProvider(resource=Resource.create({**ours, **named}), shutdown_on_exit=False)
    for exporter in opened:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of what it is in
        return False


def _exporter(name: str) -> "SpanExporter | None":
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # stdout is for data, and may be where a client listens
    if name != "otlp":
        warn(f"`OTEL_TRACES_EXPORTER` names `{name}`, which is not known here", "use `otlp` or `console`")
        return None
    protocol = next((value for key in _PROTOCOLS if (value := os.environ.get(key))), _HTTP)
    if protocol != _HTTP:
        warn(f"traces cannot be sent by `{protocol}`", f"set `{_PROTOCOLS[0]}={_HTTP}`")
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
