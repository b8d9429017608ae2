"""Eight real servers at once: those of `tests/real`, two more, and a site for those that read the web."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.conftest import Machine
from tests.real.servers import HANDSHAKE, MODERN, NPM_BIN, SERVERS, RealServer, stdio_entry


def sequential_thinking(machine: Machine) -> RealServer:
    """Counts thoughts."""
    argv = [str(NPM_BIN / "mcp-server-sequential-thinking")]
    thought = {"thought": "Begin.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    return RealServer(
        server_id="thinking",
        entry=stdio_entry(machine, "thinking", argv, {"DISABLE_THOUGHT_LOGGING": "true"}),
        version=HANDSHAKE,
        tools=frozenset({"sequentialthinking"}),
        tool="sequentialthinking",
        arguments=thought,
        answer='"thoughtNumber": 1',
    )


def context7(machine: Machine, site: str) -> RealServer:
    """Looks things up in documentation, here that of the test."""
    argv = [str(NPM_BIN / "context7-mcp")]
    return RealServer(
        server_id="context7",
        entry=stdio_entry(machine, "context7", argv, {"CONTEXT7_API_URL": f"{site}/api"}),
        version=MODERN,
        tools=frozenset({"query-docs", "resolve-library-id"}),
        tool="query-docs",
        arguments={"libraryId": "/test/library", "query": "how"},
        answer="the documentation of the test",
    )


def eight_servers(machine: Machine, site: str) -> dict[str, RealServer]:
    """All of them, by their ids."""
    servers = [make(machine, f"{site}/page") for make in SERVERS.values()]
    servers += [sequential_thinking(machine), context7(machine, site)]
    return {server.server_id: server for server in servers}


GITLAB_PROJECT = {
    "id": 1,
    "name": "the repository of the test",
    "path_with_namespace": "test/repository",
    "visibility": "public",
    "web_url": "http://127.0.0.1/test/repository",
    "description": None,
    "ssh_url_to_repo": "git@127.0.0.1:test/repository.git",
    "http_url_to_repo": "http://127.0.0.1/test/repository.git",
    "created_at": "2026-01-01T00:00:00Z",
    "last_activity_at": "2026-01-01T00:00:00Z",
    "default_branch": "main",
}


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        chart = {"success": True, "resultObj": f"http://{self.headers['Host']}/chart.png"}
        pages = {
            "/page": "a page of the test\n",
            "/api/v2/context": "the documentation of the test\n",
            "/gitlab/projects": json.dumps([GITLAB_PROJECT]),
            "/chart": json.dumps(chart),
        }
        body = pages.get(path, "").encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Say nothing: a test reads its own output."""


@contextmanager
def serving_site() -> Generator[str]:
    """The URL of a site on loopback, in a thread, because it outlives the loop of a single test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_address[1]}"
        finally:
            site.shutdown()
            thread.join()
