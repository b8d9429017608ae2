"""Metadata that means harm, from the data file: what comes of each is what the file says."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from yarl import URL

from fairlead.auth.flow import log_in, renew
from fairlead.auth.http import HttpContext
from fairlead.errors import IssuerUnavailable, LoginFailed
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.auth.logging_in import WEB, logged_in, target_of

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "hostile_oauth_metadata_cases.json").read_text(encoding="utf-8")
)
DOCUMENTS = [case for case in CASES if isinstance(case["metadata"], dict)]
STORIES = {case["name"] for case in CASES if isinstance(case["metadata"], str)}


def at(server: AuthorizationServer, metadata: dict[str, Any]) -> dict[str, Any]:
    """The document of a case, with the test's own server in place of the honest one."""
    return json.loads(json.dumps(metadata).replace("https://as.test", server.url))


@pytest.mark.requirement("HARD-28", "HARD-29", "HARD-31")
@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case["name"])
async def test_a_browser_opens_only_for_metadata_without_malice(case: dict[str, Any]) -> None:
    person = Clicking()
    with authorization_server(pkce=None) as server:
        server.behaviour.metadata = at(server, case["metadata"])
        if case["expect"] == "proceed":
            await logged_in(server, person)
            assert len(person.visited) == 1
            return
        with pytest.raises(LoginFailed):
            await logged_in(server, person)
        assert server.count("/register") == server.count("/token") == 0
    assert person.visited == []


def test_every_story_of_the_data_file_is_told_here() -> None:
    elsewhere = {"callback_other_path"}  # where the browser comes back to: test_callback
    told = {"slow", "redirect_307_token", "iss_missing_when_advertised", "iss_wrong", "prm_as_changes"}
    assert told | elsewhere == STORIES


async def test_slow() -> None:
    """1 byte per second: given up when the time for a request is over."""

    async def drip(reader: anyio.abc.SocketStream) -> None:
        async with reader:
            await reader.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
            await anyio.sleep_forever()

    person = Clicking()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, drip)
            with authorization_server() as server, anyio.fail_after(30):
                server.behaviour.resource_overlay = {"authorization_servers": [f"http://127.0.0.1:{port}"]}
                with pytest.raises(IssuerUnavailable, match="in time"):
                    await log_in(target_of(server), person, HttpContext(seconds=0.5))
            tasks.cancel_scope.cancel()
    assert person.visited == []


async def test_redirect_307_token() -> None:
    """Neither a code nor a refresh token goes where the token endpoint points."""
    with authorization_server() as evil, authorization_server() as server:
        login = await logged_in(server)
        server.behaviour.token_redirect = f"{evil.url}/token"
        with pytest.raises(IssuerUnavailable):
            await logged_in(server)
        with pytest.raises(IssuerUnavailable):
            await renew(target_of(server), login, WEB)
        assert evil.seen == []


@pytest.mark.requirement("HARD-32")
async def test_iss_missing_when_advertised() -> None:
    with authorization_server(advertise_iss=True, iss=None, answer={"error": "look_here"}) as server:
        with pytest.raises(LoginFailed) as caught:
            await logged_in(server)
        assert server.count("/token") == 0
    assert "look_here" not in str(caught.value)


@pytest.mark.requirement("HARD-32")
async def test_iss_wrong() -> None:
    with authorization_server(iss="https://evil") as server:
        with pytest.raises(LoginFailed):
            await logged_in(server)
        assert server.count("/token") == 0


@pytest.mark.requirement("HARD-38")
async def test_prm_as_changes() -> None:
    with authorization_server() as server, authorization_server() as new:
        login = await logged_in(server)
        server.behaviour.resource_overlay = {"authorization_servers": [new.url]}
        await renew(target_of(server), login, WEB)
        assert new.seen == []
        moved = await log_in(target_of(server), Clicking(), WEB, previous=login)
        assert moved.issuer == new.url
        assert all(str(login.token.refresh_token) not in str(seen.form) for seen in new.seen)


@pytest.mark.requirement("HARD-31")
async def test_what_an_issuer_hands_out_cannot_break_out_of_the_url() -> None:
    person = Clicking()
    with authorization_server() as server:
        server.add_client("$(id)`id`;'x'")
        server.behaviour.metadata = {"authorization_endpoint": f"{server.url}/authorize?state=1&a=%24(id)"}
        with pytest.raises(LoginFailed, match="characters"):
            await logged_in(server, person, client_id="$(id)`id`;'x'")
        server.behaviour.metadata = {"authorization_endpoint": f"{server.url}/authorize?state=1&a=%24%28"}
        await logged_in(server, person, client_id="$(id)`id`;'x'")
    (url,) = person.visited
    assert not set("$`;'()") & set(url)
    assert URL(url).query["state"] != "1"
    assert URL(url).query["a"] == "$("
