"""Tokens without a person."""

import pytest

from fairlead.auth.flow import machine_login, renew
from fairlead.errors import LoginFailed
from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.auth.logging_in import WEB, call_tool, target_of

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def machine(server: AuthorizationServer) -> None:
    server.add_client("robot", auth="client_secret_basic", client_secret="beep")


@pytest.mark.requirement("NEED-17")
async def test_a_client_logs_in_for_itself() -> None:
    with authorization_server(scope="work") as server:
        machine(server)
        refused = await call_tool(server, "whoami", None)
        target = target_of(server, grant="client_credentials", client_id="robot", client_secret="beep")
        login = await machine_login(target, WEB, challenge=refused.challenge)
        assert (await call_tool(server, "whoami", login)).text == "robot work"
        assert server.count("/authorize") == server.count("/register") == 0
        assert server.asked("/token")[0].form["resource"] == server.mcp_url


@pytest.mark.requirement("NEED-17")
async def test_a_machines_login_is_renewed_by_asking_again() -> None:
    with authorization_server(scope="work") as server:
        machine(server)
        target = target_of(
            server, grant="client_credentials", client_id="robot", client_secret="beep", scope="work"
        )
        login = await machine_login(target, WEB)
        server.seen.clear()
        token = await renew(target, login, WEB)
        assert token.access_token != login.token.access_token
        (request,) = server.seen
    assert (request.form["grant_type"], request.form["scope"]) == ("client_credentials", "work")


async def test_an_issuer_for_machines_needs_no_login_page_and_no_pkce() -> None:
    with authorization_server(pkce=None, metadata={"authorization_endpoint": None}) as server:
        machine(server)
        target = target_of(server, grant="client_credentials", client_id="robot", client_secret="beep")
        assert (await machine_login(target, WEB)).token.access_token


async def test_a_token_url_is_enough_for_a_machine() -> None:
    with authorization_server(metadata_paths=()) as server:
        machine(server)
        target = target_of(
            server,
            grant="client_credentials",
            client_id="robot",
            client_secret="beep",
            token_url=f"{server.url}/token",
        )
        login = await machine_login(target, WEB)
        assert (await call_tool(server, "whoami", login)).status == 200


async def test_a_workload_is_let_in_by_its_own_token() -> None:
    with authorization_server() as server:
        server.add_client("workload")
        target = target_of(server, grant="jwt_bearer", client_id="workload", assertion="eyJ.mine.x")
        login = await machine_login(target, WEB)
        assert (await call_tool(server, "whoami", login)).text == "workload"
        (request,) = server.asked("/token")
    assert (request.form["grant_type"], request.form["assertion"]) == (JWT_BEARER, "eyJ.mine.x")


async def test_a_refused_workload_is_told_so_and_tries_nothing_else() -> None:
    with authorization_server(token_error="invalid_grant") as server:
        server.add_client("workload")
        target = target_of(server, grant="jwt_bearer", client_id="workload", assertion="eyJ.old.x")
        with pytest.raises(LoginFailed, match="invalid_grant"):
            await machine_login(target, WEB)
        assert server.count("/token") == 1


async def test_a_company_may_know_us_without_a_name() -> None:
    with authorization_server() as server, authorization_server() as provider:
        machine(server)
        provider.behaviour.token_body = '{"access_token": "eyJ.vouched.x"}'
        target = target_of(
            server,
            grant="jwt_bearer",
            client_id="robot",
            client_secret="beep",
            identity={"token_url": f"{provider.url}/token", "token": "eyJ.person.x"},
        )
        await machine_login(target, WEB)
        (exchange,) = provider.asked("/token")
    assert not {"client_id", "scope"} & set(exchange.form)


async def test_a_company_vouches_for_its_people() -> None:
    with authorization_server() as server, authorization_server() as provider:
        machine(server)
        provider.add_client("us")
        provider.behaviour.token_overlay = {"access_token": "eyJ.vouched.x", "token_type": "N_A"}
        target = target_of(
            server,
            grant="jwt_bearer",
            client_id="robot",
            client_secret="beep",
            identity={"token_url": f"{provider.url}/token", "token": "eyJ.person.x", "client_id": "us"},
            scope="a",
        )
        login = await machine_login(target, WEB)
        assert (await call_tool(server, "whoami", login)).status == 200
        (exchange,), (bearer,) = provider.asked("/token"), server.asked("/token")
    assert exchange.form == {
        "grant_type": EXCHANGE,
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token": "eyJ.person.x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": server.url,
        "resource": server.mcp_url,
        "client_id": "us",
        "scope": "a",
    }
    assert bearer.form["assertion"] == "eyJ.vouched.x"


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"grant": "client_credentials"}, "needs a client"),
        ({"grant": "jwt_bearer", "client_id": "robot"}, "no assertion is configured"),
    ],
)
async def test_what_a_machine_lacks_is_named(oauth: dict[str, str], words: str) -> None:
    with authorization_server() as server, pytest.raises(LoginFailed, match=words):
        await machine_login(target_of(server, **oauth), WEB)
