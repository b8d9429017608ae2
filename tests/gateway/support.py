"""Gateways for tests: on a real socket, with a client of any era in front."""

import base64
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from starlette.types import Scope

from fairlead.config.load import load_config
from fairlead.config.untyped import is_object
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.servers.framework.server import McpServer


class ByName:
    """Lets every client in, under the name that its token says: `principal`, or `principal#token`."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        headers = dict(scope["headers"])
        token = headers.get(b"authorization", b"Bearer local").decode().removeprefix("Bearer ")
        principal, _, credential = token.partition("#")
        return AuthenticatedRequest(principal=principal, credential=credential or None)


@dataclass(frozen=True, kw_only=True)
class Served:
    """A gateway on a socket."""

    gateway: Gateway
    url: str
    env: Mapping[str, str] = field(repr=False)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    options: GatewayOptions | None = None,
    config: Mapping[str, Any] | None = None,
    seconds: float = 60.0,
    approval: str | None = "allow",
    **servers: McpServer | dict[str, Any],
) -> AsyncGenerator[Served]:
    """Run a gateway that sees nothing of the machine, for at most `seconds`.

    `approval` is its `gateway.approval`, so that tests about other things are not asked; None for none.
    """
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True, exist_ok=True)
    project.mkdir(exist_ok=True)
    env = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "FAIRLEAD_BUILTINS": "off",
    }
    entries = {name: server for name, server in servers.items() if not isinstance(server, McpServer)}
    own = {name: server for name, server in servers.items() if isinstance(server, McpServer)}
    settings = {**({"approval": approval} if approval else {}), **(config or {}).get("gateway", {})}
    document = {"servers": entries, **(config or {}), "gateway": settings}
    loaded = load_config(None, document, env, project)
    with anyio.fail_after(seconds):
        async with open_gateway(loaded, options, env=env, servers=own) as gateway:
            with bind("127.0.0.1", 0) as listener:
                async with listening(gateway.app(ByName()), listener):
                    yield Served(gateway=gateway, url=url_of(listener), env=env)


MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
MODES = ("legacy", "auto")
"""How the SDK's client speaks: as it did before, or in the modern way."""

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


class Raw:
    """A client that says exactly what a test wants it to say, under a name of its own."""

    def __init__(self, http: aiohttp.ClientSession, url: str, name: str = "local") -> None:
        self.http = http
        self.url = url
        self.headers = {
            "Authorization": f"Bearer {name}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

    async def post(
        self, message: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], Any]:
        """Send a message; the status, the headers, and what is in the answer: JSON, or events' data."""
        sent = {**self.headers, **(headers or {})}
        async with self.http.post(self.url, json=message, headers=sent) as response:
            text = await response.text()
            if response.content_type == "text/event-stream":
                data = [line.removeprefix("data:").strip() for line in text.splitlines() if "data:" in line]
                return response.status, response.headers, [json.loads(line) for line in data if line]
            is_json = response.content_type == "application/json" and text
            return response.status, response.headers, json.loads(text) if is_json else None

    async def modern(
        self, method: str, request_id: int | str = 1, *, meta: Mapping[str, Any] | None = None, **params: Any
    ) -> Any:
        """Make a request in the modern way; its answer."""
        message = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": {**params, "_meta": {**_META, **(meta or {})}},
        }
        headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if named := params.get("name", params.get("uri")):
            headers["Mcp-Name"] = _header_value(named)
        return _answer((await self.post(message, headers))[2], request_id)

    async def modern_text(self, method: str, **params: Any) -> str:
        """Make a request in the modern way; the body of its answer, unread."""
        return (await self.modern_bytes(method, **params)).decode()

    async def modern_bytes(self, method: str, **params: Any) -> bytes:
        """Make a request in the modern way; the body of its answer, not even decoded, which may take long."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
        headers = {**self.headers, "Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        async with self.http.post(self.url, json=message, headers=headers) as response:
            return await response.read()

    async def begin(self, capabilities: Mapping[str, Any] | None = None, *, version: str = HANDSHAKE) -> None:
        """Begin a session of the older protocol."""
        params = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        status, headers, _ = await self.post(message)
        assert status == 200
        self.headers["Mcp-Session-Id"] = headers["Mcp-Session-Id"]
        self.headers["Mcp-Protocol-Version"] = version
        status, _, _ = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert status == 202

    async def older(self, method: str, request_id: int | str = 1, **params: Any) -> Any:
        """Make a request in the session; its answer."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return _answer((await self.post(message))[2], request_id)

    async def end(self) -> None:
        """End the session."""
        async with self.http.delete(self.url, headers=self.headers) as response:
            assert response.status == 200


def _header_value(text: str) -> str:
    """A value as the protocol has it in headers, which cannot carry every text as it is."""
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _answer(came: Any, request_id: int | str) -> Any:
    """The answer to a request, be it all that came or one of several events."""
    if is_object(came):
        return came
    return next(found for found in came if found.get("id") == request_id)


def text_of(answer: Any) -> str:
    """The text of a tool's result, as it came over the wire."""
    return answer["result"]["content"][0]["text"]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that only another process, or the kernel, makes true."""
    while True:
        if holds():
            return
        await anyio.sleep(0.01)
