"""Tokens that are of use only to who holds a key."""

import msgspec
import pytest

from fairlead.auth.flow import renew
from fairlead.auth.proofs import request_headers
from fairlead.auth.tokens import Login
from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.auth.logging_in import WEB, call_tool, logged_in, target_of


def demanding(server: AuthorizationServer) -> AuthorizationServer:
    server.behaviour.resource_overlay = {"dpop_bound_access_tokens_required": True}
    return server


async def test_a_token_is_bound_to_a_key_where_the_server_wants_it() -> None:
    with authorization_server(dpop=True) as server:
        login = await logged_in(demanding(server))
        assert login.dpop_key is not None
        assert login.token.token_type == "DPoP"
        assert (await call_tool(server, "whoami", login)).text == "ada"
        stolen = msgspec.structs.replace(login, dpop_key=None)
        assert (await call_tool(server, "whoami", stolen)).status == 401
    assert login.dpop_key not in repr(login)


async def test_a_bound_login_is_renewed_with_its_key() -> None:
    with authorization_server(dpop=True) as server:
        login = await logged_in(demanding(server))
        kept = msgspec.json.decode(msgspec.json.encode(login), type=Login)
        token = await renew(target_of(server), kept, WEB)
        renewed = msgspec.structs.replace(kept, token=token)
        assert (await call_tool(server, "whoami", renewed)).status == 200


async def test_a_nonce_is_put_into_the_proof_that_is_sent_again() -> None:
    with authorization_server(dpop=True, dpop_nonce="n-1") as server:
        login = await logged_in(demanding(server))
        assert server.count("/token") == 2
        refused = await call_tool(server, "whoami", login)
        assert refused.challenge is not None
        assert refused.challenge.error == "use_dpop_nonce"
        assert (await call_tool(server, "whoami", login, nonce=refused.headers["DPoP-Nonce"])).status == 200


async def test_every_request_has_a_proof_of_its_own() -> None:
    with authorization_server(dpop=True) as server:
        login = await logged_in(demanding(server))
    first = request_headers(login, "POST", "https://mcp.test/mcp?x=1")
    second = request_headers(login, "POST", "https://mcp.test/mcp?x=1")
    assert first["Authorization"] == f"DPoP {login.token.access_token}"
    assert first["DPoP"] != second["DPoP"]


@pytest.mark.parametrize("wants", [True, False])
async def test_a_token_is_not_bound_unless_server_and_issuer_both_can(wants: bool) -> None:
    with authorization_server() as server:
        if wants:
            demanding(server)
        else:
            server.behaviour.metadata = {"dpop_signing_alg_values_supported": ["ES256"]}
        login = await logged_in(server)
    assert login.dpop_key is None
    assert request_headers(login, "POST", "https://mcp.test/") == {
        "Authorization": f"Bearer {login.token.access_token}"
    }
