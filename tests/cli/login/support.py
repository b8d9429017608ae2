"""What tests of the login commands share: a configuration, and what a person does at a login page."""

import json
from collections.abc import Callable
from typing import Any

import aiohttp
import anyio

from tests.auth.authorization_server import AuthorizationServer, Clicking
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]
Browser = Callable[..., None]

# A browser with somebody at it who picks an account and is sent back.
BROWSER = """
import sys, urllib.parse, urllib.request
account, url = sys.argv[1:]
page = urllib.parse.urlsplit(url)
form = dict(urllib.parse.parse_qsl(page.query)) | {"account": account}
urllib.request.urlopen(page._replace(query="").geturl(), urllib.parse.urlencode(form).encode()).read()
"""


def configure(machine: Machine, **servers: dict[str, Any]) -> None:
    entries = {name: {"trust": "trusted", **entry} for name, entry in servers.items()}
    machine.write_user(json.dumps({"servers": entries}))


def entry_of(machine: Machine, server_id: str = "x") -> dict[str, Any]:
    return json.loads(machine.user_file.read_text())["servers"][server_id]


def who(fairlead: Fairlead, server_id: str = "x") -> str:
    """Who the server says we are."""
    outcome = fairlead("call", server_id, "whoami", "--yes")
    assert outcome.status == 0, outcome.err
    return outcome.out.strip()


def tokens(server: AuthorizationServer) -> set[str]:
    found = {*server.access_tokens, *server.refresh_tokens, *server.spent}
    assert found
    return found


def clicked(url: str, account: str = "ada") -> str:
    """The address that a browser ends up at."""
    return anyio.run(Clicking(account).visit, url)


def come_back(url: str) -> None:
    """Go there, as a browser on this machine does."""

    async def visit() -> None:
        async with aiohttp.ClientSession() as browser, browser.get(url) as page:
            assert page.status == 200

    anyio.run(visit)
