"""What tests of logins share: a target, a way to the network, and a client that uses what a login gives."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from fairlead.auth.discovery import AuthChallenge, login_challenge
from fairlead.auth.flow import log_in
from fairlead.auth.http import HttpContext
from fairlead.auth.proofs import request_headers
from fairlead.auth.tokens import Login, LoginTarget
from fairlead.config.oauth_models import OAuthSettings
from tests.auth.authorization_server import AuthorizationServer, Clicking

WEB = HttpContext(seconds=5)


def target_of(server: AuthorizationServer, **oauth: Any) -> LoginTarget:
    return LoginTarget(server_id="notes", url=server.mcp_url, oauth=OAuthSettings(**oauth))


async def logged_in(server: AuthorizationServer, person: Clicking | None = None, **oauth: Any) -> Login:
    """Log in as people do: ask, be refused, follow the challenge."""
    reply = await call_tool(server, "whoami", None)
    return await log_in(target_of(server, **oauth), person or Clicking(), WEB, challenge=reply.challenge)


@dataclass(frozen=True)
class Reply:
    status: int
    challenge: AuthChallenge | None
    headers: Mapping[str, str]
    text: str = ""


async def call_tool(
    server: AuthorizationServer, tool: str, login: Login | None, nonce: str | None = None
) -> Reply:
    """Call a tool of the protected server with what a login gives, if anything."""
    headers = request_headers(login, "POST", server.mcp_url, nonce) if login is not None else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.mcp_url, json=message, headers=headers) as response,
    ):
        text = ""
        if response.status == 200:
            text = (await response.json())["result"]["content"][0]["text"]
        challenge = login_challenge(response.headers.getall("WWW-Authenticate", []))
        return Reply(response.status, challenge, response.headers, text)


class Lookups(AbstractResolver):
    """Knows the addresses it was told, and remembers who was looked up."""

    def __init__(self, **hosts: str) -> None:
        self.hosts = {name.replace("_", "."): address for name, address in hosts.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.hosts:
            raise OSError(None, "unknown host")
        return [
            ResolveResult(
                hostname=host,
                host=self.hosts[host],
                port=port,
                family=socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        pass
