"""What the tests of tracing share: two ways to see spans, and a server that shows what it was sent."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fairlead.host.telemetry import OpenTelemetry

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


class Recorded:
    """A tracer in this process, and what it recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OpenTelemetry(self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def last(self) -> ReadableSpan:
        return self.spans[-1]

    @property
    def error(self) -> object:
        """How the last one failed."""
        assert self.last.status.status_code is StatusCode.ERROR
        assert self.last.status.description is None
        assert not self.last.events
        return (self.last.attributes or {})["error.type"]


@dataclass(frozen=True)
class Sent:
    """A span as a collector got it."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    has_failed: bool
    attributes: dict[str, str]
    service: str

    @property
    def place(self) -> str:
        """How `traceparent` names it, less the flags."""
        return f"00-{self.trace_id}-{self.span_id}"


@dataclass
class Collector:
    """Spans as they came over OTLP, and the bytes they came in."""

    url: str
    spans: list[Sent] = field(default_factory=list[Sent])
    bodies: list[bytes] = field(default_factory=list[bytes])

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_sent(span, named["service.name"]) for span in scope.spans]

    def of(self, kind: str, trace_id: str) -> list[Sent]:
        return [span for span in self.spans if (span.kind, span.trace_id) == (kind, trace_id)]


def _sent(span: WireSpan, service: str) -> Sent:
    return Sent(
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        has_failed=span.status.code == 2,
        attributes={each.key: each.value.string_value for each in span.attributes},
        service=service,
    )


@contextmanager
def collecting() -> Generator[Collector]:
    """Run a collector on this machine for the length of the block."""

    def take(handler: BaseHTTPRequestHandler, body: bytes) -> bytes:
        assert handler.path == "/v1/traces"
        collector.take(body)
        return b""

    with _serving(take, "application/x-protobuf") as url:
        collector = Collector(url)
        yield collector


@dataclass
class Shown:
    """An MCP server over HTTP whose one tool answers with the `_meta` it was called with."""

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def entry(self, **fields: Any) -> dict[str, Any]:
        return {"url": f"{self.url}/mcp", "trust": "trusted", "approval": "allow", **fields}


@contextmanager
def showing(version: str) -> Generator[Shown]:
    """Run such a server, which speaks one version and no other, for the length of the block."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> bytes:
        message: dict[str, Any] = json.loads(body)
        server.messages.append(message)
        if "id" not in message:
            return b""
        result = _result(message, version)
        ended = (
            {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        )
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **ended}).encode()

    with _serving(answer, "application/json") as url:
        server = Shown(url)
        yield server


def _result(message: dict[str, Any], version: str) -> dict[str, Any] | None:
    greeting: dict[str, Any] = {
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "shown", "version": "1"},
    }
    complete = {"resultType": "complete"} if version == MODERN else {}
    match message["method"]:
        case "server/discover" if version == MODERN:
            return {**complete, **greeting, "supportedVersions": [version]}
        case "initialize":
            return {**greeting, "protocolVersion": version}
        case "tools/list":
            return {**complete, "tools": [{"name": "meta", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            text = json.dumps(message["params"].get("_meta", {}))
            return {**complete, "content": [{"type": "text", "text": text}]}
        case _:
            return None


@contextmanager
def _serving(answer: Any, content_type: str) -> Generator[str]:
    """Answer POST requests in threads of their own, whatever the test itself waits for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reply = answer(self, self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(200 if reply or "protobuf" in content_type else 202, reply)

        def do_GET(self) -> None:
            self._reply(405, b"")

        do_DELETE = do_GET  # noqa: N815 - as above

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
