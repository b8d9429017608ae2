"""An MCP server over HTTP that can be broken and mended while it runs."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

Fault = Callable[["Handler"], bool]
"""Answers a request in place of the server, and says whether it did."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: "_Server"  # pyright: ignore[reportIncompatibleVariableOverride] - what it is made by
    body = b""

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.web.fault is not None and self.server.web.fault(self):
            return
        if self.path != "/mcp":
            self.answer(404)
            return
        message = json.loads(self.body)
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }
        if "id" not in message:
            self.answer(202)
        elif message["method"] in results:
            self.reply({"id": message["id"], "result": results[message["method"]]})
        else:
            self.reply({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})

    def do_GET(self) -> None:
        if self.server.web.fault is None or not self.server.web.fault(self):
            self.answer(405)

    def do_HEAD(self) -> None:
        self.do_GET()

    def reply(self, message: dict[str, object]) -> None:
        """Answer with a JSON-RPC message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.answer(200, body, **{"Content-Type": "application/json"})

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer with anything."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    web: "WebServer"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away."""


@dataclass
class WebServer:
    """The server, and what is wrong with it."""

    fault: Fault | None = None
    port: int = 0
    scheme: str = "http"
    authority: trustme.CA = field(default_factory=trustme.CA)

    @property
    def url(self) -> str:
        """Its MCP endpoint."""
        return f"{self.scheme}://127.0.0.1:{self.port}/mcp"


@contextmanager
def web_server(fault: Fault | None = None, *, port: int = 0, tls: bool = False) -> Generator[WebServer]:
    """Serve for the length of the block."""
    web = WebServer(fault=fault, scheme="https" if tls else "http")
    server = _Server(("127.0.0.1", port), Handler)
    server.web = web
    web.port = server.server_address[1]
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with web.authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.tempfile() as file:
            context.load_cert_chain(file)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answering(status: int, body: bytes = b"", **headers: str) -> Fault:
    """A fault: every request is answered like this."""

    def fault(handler: Handler) -> bool:
        handler.answer(status, body, **{name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return fault


def wanting(token: str, status: int = 401, body: bytes = b"") -> Fault:
    """A fault: requests without this token are refused."""

    def fault(handler: Handler) -> bool:
        if handler.headers.get("Authorization") == f"Bearer {token}":
            return False
        handler.answer(status, body, **{"Content-Type": "application/json"})
        return True

    return fault


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
