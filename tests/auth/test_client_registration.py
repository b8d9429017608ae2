import time
from typing import Any

import msgspec
import pytest
from yarl import URL

from fairlead.auth.flow import log_in, renew
from fairlead.errors import IssuerUnavailable, LoginFailed
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.auth.logging_in import WEB, call_tool, logged_in, target_of

CLIENT_URL = "https://fairlead.test/client.json"


def registered(server: AuthorizationServer) -> int:
    return server.count("/register")


@pytest.mark.requirement("NEED-13")
async def test_a_configured_client_is_used_and_none_registered() -> None:
    with authorization_server() as server:
        server.add_client("mine")
        login = await logged_in(server, client_id="mine")
        assert (await call_tool(server, "whoami", login)).status == 200
        assert registered(server) == 0
    assert (login.client.client_id, login.client.origin) == ("mine", "configured")


@pytest.mark.requirement("NEED-13")
async def test_without_registration_the_user_is_told_where_a_client_comes_from() -> None:
    person = Clicking()
    with authorization_server(registration=False) as server:
        with pytest.raises(LoginFailed, match="does not let clients register") as caught:
            await logged_in(server, person)
        assert registered(server) == 0
    hint = str(caught.value.hint)
    assert "fairlead login notes --client-id ID --callback-port" in hint
    assert person.redirect_uri in hint
    assert person.visited == []


async def test_a_client_described_at_a_url_goes_before_registration() -> None:
    person = Clicking()
    with authorization_server(client_metadata=True) as server:
        login = await logged_in(server, person, client_metadata_url=CLIENT_URL)
        assert registered(server) == 0
        assert (await call_tool(server, "whoami", login)).status == 200
    assert URL(person.visited[0]).query["client_id"] == CLIENT_URL
    assert login.client.origin == "metadata_url"


async def test_an_issuer_that_knows_no_such_urls_gets_a_registration() -> None:
    with authorization_server() as server:
        login = await logged_in(server, client_metadata_url=CLIENT_URL)
        assert registered(server) == 1
    assert login.client.origin == "registered"


@pytest.mark.parametrize("url", ["http://fairlead.test/client.json", "https://fairlead.test/"])
async def test_a_client_url_is_https_and_has_a_path(url: str) -> None:
    with (
        authorization_server(client_metadata=True) as server,
        pytest.raises(LoginFailed, match="https URL with a path"),
    ):
        await logged_in(server, client_metadata_url=url)


async def test_a_registration_says_what_kind_of_client_we_are() -> None:
    with authorization_server(scope="a") as server:
        await logged_in(server)
        (client,) = server.clients.values()
        document = server.registrations[0]
    assert client.redirect_uris == (Clicking().redirect_uri,)
    assert document == {
        "client_name": "Fairlead",
        "application_type": "native",
        "redirect_uris": [Clicking().redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "a",
    }


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        (("client_secret_post",), "client_secret_post"),
        (("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (("client_secret_basic", "none"), "none"),
        (None, "client_secret_basic"),
    ],
)
async def test_a_client_authenticates_as_the_issuer_likes(
    supported: tuple[str, ...] | None, expected: str
) -> None:
    with authorization_server(auth_methods=supported) as server:
        login = await logged_in(server)
        assert (await call_tool(server, "whoami", login)).status == 200
        await renew(target_of(server), login, WEB)
    assert login.client.auth == expected


async def test_what_the_issuer_registered_counts_and_not_what_was_asked_for() -> None:
    with authorization_server(register_as="client_secret_post") as server:
        login = await logged_in(server)
        assert (await call_tool(server, "whoami", login)).status == 200
    assert login.client.auth == "client_secret_post"


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ({"token_endpoint_auth_method": None, "client_secret": None}, "none"),
        ({"token_endpoint_auth_method": "client_secret_post", "client_secret": None}, "none"),
    ],
)
async def test_a_client_without_a_secret_needs_none(overlay: dict[str, Any], expected: str) -> None:
    with authorization_server(registration_overlay=overlay) as server:
        login = await logged_in(server)
    assert login.client.auth == expected


async def test_a_secret_that_comes_without_a_word_is_sent_as_basic() -> None:
    with authorization_server(
        auth_methods=None,
        register_as="client_secret_basic",
        registration_overlay={"token_endpoint_auth_method": None},
    ) as server:
        login = await logged_in(server)
    assert login.client.auth == "client_secret_basic"


async def test_a_way_to_authenticate_that_is_unknown_here_is_refused() -> None:
    with authorization_server(auth_methods=("tls_client_auth",)) as server:
        with pytest.raises(LoginFailed, match="tls_client_auth"):
            await logged_in(server)
        assert registered(server) == 0
    overlay = {"token_endpoint_auth_method": "client_secret_jwt"}
    with (
        authorization_server(registration_overlay=overlay) as server,
        pytest.raises(LoginFailed, match="client_secret_jwt"),
    ):
        await logged_in(server)


async def test_a_registered_client_is_used_again_while_it_fits() -> None:
    with authorization_server(register_as="client_secret_basic") as server:
        login = await logged_in(server)
        again = await log_in(target_of(server), Clicking(), WEB, previous=login)
        assert again.client == login.client
        assert registered(server) == 1
        elsewhere = Clicking(redirect_uri="http://127.0.0.1:1/callback")
        moved = await log_in(target_of(server), elsewhere, WEB, previous=login)
        assert moved.client != login.client
        past = int(time.time() * 1000) - 1
        old = msgspec.structs.replace(
            login, client=msgspec.structs.replace(login.client, secret_expires_at=past)
        )
        await log_in(target_of(server), Clicking(), WEB, previous=old)
        assert registered(server) == 3


async def test_when_a_secret_runs_out_is_remembered() -> None:
    soon = int(time.time()) + 3600
    with authorization_server(
        register_as="client_secret_post", registration_overlay={"client_secret_expires_at": soon}
    ) as server:
        login = await logged_in(server)
    assert login.client.secret_expires_at == soon * 1000


@pytest.mark.parametrize(
    ("overlay", "status", "error", "words"),
    [
        (
            {"error": "invalid_redirect_uri", "error_description": "no\x1bloopback"},
            400,
            LoginFailed,
            "no.x1b",
        ),
        ({"error": "invalid_client_metadata"}, 400, LoginFailed, r"metadata`\)"),
        ({}, 401, LoginFailed, "status 401"),
        ({}, 503, IssuerUnavailable, "status 503"),
        ({"client_id": None}, 201, LoginFailed, "status 201"),
        ({"client_id": 7}, 201, LoginFailed, "status 201"),
    ],
)
async def test_a_failed_registration_says_why(
    overlay: dict[str, Any], status: int, error: type[Exception], words: str
) -> None:
    person = Clicking()
    with (
        authorization_server(registration_overlay=overlay, registration_status=status) as server,
        pytest.raises(error, match=words),
    ):
        await logged_in(server, person)
    assert person.visited == []
