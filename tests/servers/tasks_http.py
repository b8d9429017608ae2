"""The tasks server over HTTP, in a thread: 2026-07-28 alone, and strict about its headers."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.tasks_server import META, UNSUPPORTED_VERSION, Message, ModernServer, Refused, Tasks

HEADER_MISMATCH = -32020
HEADERS = ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name")


class Handler(BaseHTTPRequestHandler):
    """One connection, whose requests must say in their headers what they say in their body."""

    protocol_version = "HTTP/1.1"
    timeout = 10

    def __init__(self, tasks_server: ModernServer, turn: threading.Lock, *rest: Any) -> None:
        self.tasks_server = tasks_server
        self.turn = turn
        super().__init__(*rest)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: Message = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            self.check_headers(request)
            with self.turn:
                answer["result"] = self.tasks_server.answer(request)
        except Refused as refused:
            answer["error"] = refused.error
        is_misfit = answer.get("error", {}).get("code") in (HEADER_MISMATCH, UNSUPPORTED_VERSION)
        body = json.dumps(answer).encode()
        self.send_response(400 if is_misfit else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def check_headers(self, request: Message) -> None:
        method, params = request["method"], request["params"]
        name = params.get("taskId") if method.startswith("tasks/") else params.get("name")
        said = (params["_meta"][f"{META}protocolVersion"], method, name)
        found = tuple(self.headers[header] for header in HEADERS)
        if found != said:
            raise Refused(HEADER_MISMATCH, f"the headers say {found}, the body says {said}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library calls it so
        return


@contextmanager
def serving_tasks(state: Path) -> Generator[str]:
    """Serve on a free port of this machine, and give the URL."""
    handler = partial(Handler, ModernServer(Tasks(state)), threading.Lock())
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join(timeout=10)
            assert not thread.is_alive()
