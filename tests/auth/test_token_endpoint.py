import time

import msgspec
import pytest

from fairlead.auth.flow import renew
from fairlead.auth.token_endpoint import expiry
from fairlead.errors import LoginFailed
from tests.auth.authorization_server import authorization_server
from tests.auth.logging_in import WEB, logged_in, target_of


@pytest.mark.parametrize("lifetime", [60, "60", 60.4])
def test_a_lifetime_is_a_number_however_it_is_written(lifetime: float | str) -> None:
    found = expiry(lifetime)
    assert found is not None
    assert abs(found - (time.time() + 60) * 1000) < 10_000


@pytest.mark.parametrize("lifetime", [None, "", "soon", "nan", float("nan")])
def test_a_lifetime_that_makes_no_sense_is_unknown(lifetime: float | str | None) -> None:
    assert expiry(lifetime) is None


@pytest.mark.parametrize("lifetime", [-5, "-1e9", 0])
def test_a_lifetime_below_nothing_is_over(lifetime: float | str) -> None:
    found = expiry(lifetime)
    assert found is not None
    assert found <= time.time() * 1000


@pytest.mark.parametrize("lifetime", ["inf", 1e300, 10**400, "9" * 400])
def test_no_lifetime_is_endless(lifetime: float | str) -> None:
    found = expiry(lifetime)
    assert found is None or found < (time.time() + 11 * 365 * 86_400) * 1000


async def test_a_token_without_a_lifetime_has_none() -> None:
    with authorization_server(expires_in=None) as server:
        login = await logged_in(server)
    assert login.token.expires_at is None


@pytest.mark.parametrize(
    "overlay",
    [
        {"access_token": "two words"},
        {"access_token": "a\r\nX-Evil: 1"},
        {"access_token": "é"},
        {"token_type": "mac"},
        {"token_type": "DPoP"},
    ],
)
async def test_a_token_that_no_header_can_hold_is_refused(overlay: dict[str, str]) -> None:
    with authorization_server(token_overlay=overlay) as server, pytest.raises(LoginFailed):
        await logged_in(server)


@pytest.mark.parametrize(
    "overlay", [{"token_type": "bearer"}, {"token_type": None}, {"scope": ["a"], "refresh_token": ""}]
)
async def test_small_faults_of_an_answer_are_forgiven(overlay: dict[str, object]) -> None:
    with authorization_server(token_overlay=overlay, scope="a b") as server:
        login = await logged_in(server)
    assert login.token.token_type == "Bearer"
    assert login.token.scope == "a b"


async def test_what_a_renewal_leaves_out_is_left_to_the_caller() -> None:
    with authorization_server(rotate=False) as server:
        login = await logged_in(server)
        server.behaviour.token_overlay = {"refresh_token": None, "scope": None}
        token = await renew(target_of(server), login, WEB)
    assert (token.refresh_token, token.scope) == (None, None)


@pytest.mark.parametrize("error", ["invalid_scope", "unauthorized_client", "invalid_target"])
async def test_other_refusals_are_told_and_change_nothing(error: str) -> None:
    with authorization_server() as server:
        login = await logged_in(server)
        server.behaviour.token_error = error
        with pytest.raises(LoginFailed, match=f"says `{error}`: the test says {error}"):
            await renew(target_of(server), login, WEB)


async def test_an_error_needs_no_description() -> None:
    body = '{"error": "invalid_scope", "error_description": 7}'
    refused = pytest.raises(LoginFailed, match=r"says `invalid_scope`$")
    with authorization_server(token_body=body) as server, refused:
        await logged_in(server)


async def test_an_error_is_an_error_even_with_status_200() -> None:
    body = msgspec.json.encode({"error": "invalid_scope", "error_description": "x" * 9000}).decode()
    refused = pytest.raises(LoginFailed, match="invalid_scope")
    with authorization_server(token_body=body) as server, refused as caught:
        await logged_in(server)
    assert len(str(caught.value)) < 500


async def test_a_spent_refresh_token_ends_the_whole_family() -> None:
    """What the test server is for: whoever renews twice with one token loses the login."""
    with authorization_server() as server:
        login = await logged_in(server)
        token = await renew(target_of(server), login, WEB)
        with pytest.raises(LoginFailed, match="invalid_grant"):
            await renew(target_of(server), login, WEB)
        with pytest.raises(LoginFailed, match="invalid_grant"):
            await renew(target_of(server), msgspec.structs.replace(login, token=token), WEB)
        assert server.reused == 1
