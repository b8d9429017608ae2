"""What a login is bound to: its issuer, letter by letter, and the origin that issues its tokens."""

import pytest
from yarl import URL

from fairlead.auth.flow import LoginTerms, log_in, renew
from fairlead.auth.token_endpoint import revoke
from fairlead.errors import LoginFailed
from tests.auth.authorization_server import Clicking, authorization_server
from tests.auth.logging_in import WEB, logged_in, target_of

OAUTH = "/.well-known/oauth-authorization-server"


@pytest.mark.requirement("HARD-38")
@pytest.mark.parametrize("field", ["token_endpoint", "issuer", "authorization_endpoint"])
async def test_a_login_is_renewed_where_it_was_made_whatever_the_metadata_says_now(field: str) -> None:
    with authorization_server() as evil, authorization_server() as server:
        login = await logged_in(server)
        server.behaviour.metadata = {field: f"{evil.url}/token"}
        server.behaviour.resource_overlay = {"authorization_servers": [evil.url]}
        assert login.token_endpoint == f"{server.url}/token"
        renewed = await renew(target_of(server), login, WEB)
        assert renewed.access_token in server.access_tokens
        assert server.count("/token", grant_type="refresh_token") == 1
        assert evil.seen == []


@pytest.mark.requirement("HARD-38")
@pytest.mark.parametrize("known", [True, False])
async def test_tokens_are_revoked_only_at_an_origin_that_had_part_in_the_login(known: bool) -> None:
    with (
        authorization_server(revocation_status=200) as evil,
        authorization_server(revocation_status=200) as server,
    ):
        login = await logged_in(server)
        if not known:
            server.behaviour.metadata = {"revocation_endpoint": f"{evil.url}/revoke"}
        found = await revoke(target_of(server), login, WEB)
        assert found.outcome == ("revoked" if known else "failed")
        assert evil.seen == []
        assert server.count("/revoke") == (2 if known else 0)
        assert str(login.token.refresh_token) not in (found.reason or "")


@pytest.mark.requirement("HARD-38")
async def test_who_issues_the_tokens_is_said_before_a_page_opens() -> None:
    with authorization_server() as other, authorization_server() as server:
        said: list[tuple[str, int]] = []
        person = Clicking()

        def announce(terms: LoginTerms) -> None:
            said.append((terms.words, len(person.visited)))

        server.behaviour.metadata = {"token_endpoint": f"{other.url}/token".replace("127.0.0.1", "localhost")}
        with pytest.raises(LoginFailed):  # the other one knows nothing of this login
            await log_in(target_of(server), person, WEB, announce=announce)
        ((words, visited),) = said
        assert visited == 0
        assert words == f"Its tokens are issued and renewed by localhost, for {server.url}."


def test_another_host_than_at_the_last_login_is_said_to_be_one() -> None:
    issuer, before = "https://login.example", "https://login.example/token"
    moved = LoginTerms(issuer=issuer, token_endpoint=URL("https://evil.example/token"), previous=before)
    assert "evil.example" in moved.words
    assert "at your last login that was login.example" in moved.words
    same = LoginTerms(issuer=issuer, token_endpoint=URL(before), previous=before)
    assert "last login" not in same.words


@pytest.mark.requirement("HARD-32")
@pytest.mark.parametrize(
    "named",
    [
        "{url}/t/",
        "{url}/T",
        "{url}/t?",
        "{url}/t#",
        "{url}//t",
        "{url}/%74",
        "{url}/x/../t",
        "{url}",
        "{url}/",
        "HTTP://{authority}/t",
        "http://localhost:{port}/t",
        "https://{authority}/t",
    ],
)
async def test_metadata_names_its_issuer_letter_by_letter(named: str) -> None:
    with authorization_server(issuer_path="/t", metadata_paths=(f"{OAUTH}/t",)) as server:
        person = Clicking()
        url = URL(server.url)
        issuer = named.format(url=server.url, authority=url.authority, port=url.port)
        server.behaviour.metadata = {"issuer": issuer}
        with pytest.raises(LoginFailed, match="is that of"):
            await logged_in(server, person)
        assert person.visited == []
        server.behaviour.metadata = {}
        assert (await logged_in(server)).issuer == f"{server.url}/t"


@pytest.mark.requirement("HARD-32")
@pytest.mark.parametrize("end", ["/", "//", "?", "#", "/t", "%2F", "."])
async def test_an_answer_names_its_issuer_letter_by_letter(end: str) -> None:
    with authorization_server(advertise_iss=True) as server:
        server.behaviour.iss = f"{server.issuer}{end}"
        with pytest.raises(LoginFailed, match="not from"):
            await logged_in(server)
        assert server.count("/token") == 0
