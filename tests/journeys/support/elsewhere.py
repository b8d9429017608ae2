"""A browser on another machine: it reaches the internet, and of this machine only what is forwarded to it.

All its requests go through a proxy, which stands for the network between the two. `forwarded` is what
`ssh -L NEAR:localhost:FAR` does: the port that the browser uses, and the one here that it leads to.
"""

import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.journeys.support.browser import Visitor, browser

SECONDS = 60


@dataclass
class Network:
    """What the other machine reaches."""

    forwarded: dict[int, int] = field(default_factory=dict[int, int])
    refused: list[str] = field(default_factory=list[str])
    """The addresses at which nothing was to be reached."""


class _Proxy(BaseHTTPRequestHandler):
    server: "_ProxyServer"  # pyright: ignore[reportIncompatibleVariableOverride] - what it is made by

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        port = self.server.network.forwarded.get(target.port or 80)
        if port is None:
            self.server.network.refused.append(self.path)
            self.send_error(502, "This site can't be reached")
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = target._replace(scheme="", netloc="").geturl()
        far = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        far.request(self.command, path, body or None, {**self.headers, "Connection": "close"})
        answer = far.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while data := answer.read1(65536):
            self.wfile.write(data)
            self.wfile.flush()
        far.close()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    network: Network

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that goes away."""


@contextmanager
def browser_elsewhere() -> Generator[tuple[Visitor, Network]]:
    """Run a browser on another machine."""
    network = Network()
    server = _ProxyServer(("127.0.0.1", 0), _Proxy)
    server.network = network
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        proxy = f"--proxy-server=http://127.0.0.1:{server.server_address[1]}"
        with browser(proxy, "--proxy-bypass-list=<-loopback>") as visitor:
            yield visitor, network
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
