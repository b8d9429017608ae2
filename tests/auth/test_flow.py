import time

import msgspec
import pytest
from yarl import URL

from fairlead.auth.flow import log_in, renew
from fairlead.auth.http import HttpContext
from fairlead.auth.tokens import Login, LoginTarget
from fairlead.errors import IssuerUnavailable, LoginFailed, TokenRefused
from tests.auth.authorization_server import Clicking, authorization_server
from tests.auth.logging_in import WEB, call_tool, logged_in, target_of


async def test_a_login_opens_the_server() -> None:
    with authorization_server() as server:
        login = await logged_in(server)
        reply = await call_tool(server, "whoami", login)
    assert (reply.status, reply.text) == (200, "ada")
    assert login.issuer == server.url
    assert login.resource == server.mcp_url
    assert login.token_endpoint == f"{server.url}/token"
    assert login.client.origin == "registered"
    assert login.token.expires_at is not None
    assert abs(login.token.expires_at - (time.time() + 3600) * 1000) < 60_000


@pytest.mark.requirement("NEED-16")
async def test_the_resource_is_named_to_both_endpoints() -> None:
    person = Clicking()
    with authorization_server() as server:
        await logged_in(server, person)
        (request,) = server.asked("/token")
    assert URL(person.visited[0]).query["resource"] == server.mcp_url
    assert request.form["resource"] == server.mcp_url


async def test_each_account_has_a_login_of_its_own() -> None:
    with authorization_server() as server:
        ada, grace = await logged_in(server), await logged_in(server, Clicking("grace"))
        assert (await call_tool(server, "whoami", ada)).text == "ada"
        assert (await call_tool(server, "whoami", grace)).text == "grace"


async def test_a_person_may_say_no() -> None:
    with authorization_server() as server:
        with pytest.raises(LoginFailed, match="`access_denied`: the person said no"):
            await logged_in(server, Clicking(""))
        assert server.count("/token") == 0


@pytest.mark.requirement("HARD-28")
@pytest.mark.parametrize("methods", [None, (), ("plain",)])
async def test_without_pkce_no_browser_opens(methods: tuple[str, ...] | None) -> None:
    person = Clicking()
    with authorization_server(pkce=methods) as server:
        with pytest.raises(LoginFailed, match="PKCE"):
            await logged_in(server, person)
        assert server.count("/register") == 0
    assert person.visited == []


@pytest.mark.requirement("HARD-32")
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"answer": {"state": "forged"}}, "state"),
        ({"answer": {"state": ""}}, "state"),
        ({"iss": "https://evil.test"}, "not from"),
        ({"iss": None, "advertise_iss": True}, "has no `iss`"),
        ({"iss": "https://evil.test", "answer": {"error": "secret_words"}}, "not from"),
        ({"iss": None, "advertise_iss": True, "answer": {"error": "secret_words"}}, "has no `iss`"),
        ({"answer": {"code": ""}}, "without a code"),
    ],
)
async def test_an_answer_that_is_not_to_our_question_is_refused(
    behaviour: dict[str, object], words: str
) -> None:
    with authorization_server(**behaviour) as server:
        with pytest.raises(LoginFailed, match=words) as caught:
            await logged_in(server)
        assert server.count("/token") == 0
    assert "secret_words" not in str(caught.value)


@pytest.mark.requirement("HARD-32")
async def test_an_issuer_is_compared_letter_by_letter() -> None:
    with authorization_server() as server:
        server.behaviour.iss = f"{server.url}/"
        with pytest.raises(LoginFailed, match="not from"):
            await logged_in(server)


@pytest.mark.requirement("HARD-32")
async def test_words_of_the_issuer_are_escaped_and_bounded() -> None:
    answer = {"error": "no\x1b[31m", "error_description": "<b>\u202e" + "x" * 5000}
    with authorization_server(answer=answer) as server, pytest.raises(LoginFailed) as caught:
        await logged_in(server)
    message = str(caught.value)
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert len(message) < 500


class Replaying(Clicking):
    """Comes back with the answer of another login."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    async def visit(self, url: str) -> str:
        await super().visit(url)
        return self.answer


class Remembering(Clicking):
    answer = ""

    async def visit(self, url: str) -> str:
        self.answer = await super().visit(url)
        return self.answer


@pytest.mark.requirement("HARD-32")
async def test_an_answer_is_good_once() -> None:
    person = Remembering()
    with authorization_server() as server:
        await logged_in(server, person)
        with pytest.raises(LoginFailed, match="state"):
            await logged_in(server, Replaying(person.answer))
        assert server.count("/token") == 1


@pytest.mark.requirement("HARD-32")
@pytest.mark.parametrize("added", ["&code=another", "&state=another", "&x=1" * 60])
async def test_an_answer_that_says_things_twice_is_refused(added: str) -> None:
    class Adding(Clicking):
        async def visit(self, url: str) -> str:
            return await super().visit(url) + added

    with authorization_server() as server, pytest.raises(LoginFailed, match="the redirect"):
        await logged_in(server, Adding())


@pytest.mark.requirement("HARD-33", "HARD-34")
async def test_a_login_is_renewed_without_a_person_and_without_discovery() -> None:
    with authorization_server() as server:
        login = await logged_in(server)
        server.expire_access_tokens()
        server.seen.clear()
        kept = msgspec.json.decode(msgspec.json.encode(login), type=Login)
        token = await renew(target_of(server), kept, WEB)
        assert [seen.path for seen in server.seen] == ["/token"]
        renewed = msgspec.structs.replace(kept, token=token)
        assert (await call_tool(server, "whoami", renewed)).text == "ada"
        assert server.asked("/token")[0].form["resource"] == server.mcp_url


@pytest.mark.requirement("HARD-35")
@pytest.mark.parametrize(
    "behaviour",
    [
        {"token_status": 503},
        {"token_status": 429},
        {"token_status": 403},
        {"token_hangs": True},
        {"token_body": "<html>"},
        {"token_body": "{}"},
        {"token_body": "[]"},
        {"token_body": '{"access_token": 7}'},
        {"token_error": "temporarily_unavailable"},
        {"token_redirect": "https://evil.test/token"},
    ],
)
async def test_trouble_at_the_token_endpoint_says_nothing_about_a_login(
    behaviour: dict[str, object],
) -> None:
    with authorization_server() as server:
        login = await logged_in(server)
        for name, value in behaviour.items():
            setattr(server.behaviour, name, value)
        with pytest.raises(IssuerUnavailable):
            await renew(target_of(server), login, HttpContext(seconds=1))


@pytest.mark.requirement("HARD-35")
async def test_only_invalid_grant_ends_a_login() -> None:
    with authorization_server() as server:
        login = await logged_in(server)
        server.behaviour.token_error = "invalid_grant"
        with pytest.raises(TokenRefused, match="invalid_grant") as caught:
            await renew(target_of(server), login, WEB)
        assert caught.value.hint == "run `fairlead login notes`"
        server.behaviour.token_error = "invalid_client"
        with pytest.raises(LoginFailed) as other:
            await renew(target_of(server), login, WEB)
        assert not isinstance(other.value, TokenRefused)


async def test_a_login_without_a_refresh_token_cannot_be_renewed() -> None:
    with authorization_server(refresh_tokens=False) as server:
        login = await logged_in(server)
        with pytest.raises(TokenRefused, match="has expired"):
            await renew(target_of(server), login, WEB)


@pytest.mark.requirement("NEED-16")
async def test_more_scope_is_asked_for_when_a_tool_needs_it() -> None:
    with authorization_server(scope="mcp:basic") as server:
        login = await logged_in(server)
        assert login.token.scope == "mcp:basic"
        refused = await call_tool(server, "administer", login)
        assert refused.status == 403
        person = Clicking()
        more = await log_in(target_of(server), person, WEB, challenge=refused.challenge, previous=login)
        assert (await call_tool(server, "administer", more)).text == "ada mcp:basic mcp:admin"
    assert URL(person.visited[0]).query["scope"] == "mcp:basic mcp:admin"


async def test_a_refresh_token_is_asked_for_where_the_issuer_wants_to_be_asked() -> None:
    person = Clicking()
    with authorization_server(scope="a", metadata={"scopes_supported": ["a", "offline_access"]}) as server:
        await logged_in(server, person)
    query = URL(person.visited[0]).query
    assert query["scope"] == "a offline_access"
    assert query["prompt"] == "consent"


@pytest.mark.requirement("HARD-38")
async def test_credentials_of_one_issuer_are_never_shown_to_another() -> None:
    with authorization_server() as old, authorization_server() as new:
        login = await logged_in(old)
        old.behaviour.resource_overlay = {"authorization_servers": [new.url]}
        old.trusted = [new]
        moved = await log_in(target_of(old), Clicking(), WEB, previous=login)
        assert moved.issuer == new.url
        assert (await call_tool(old, "whoami", moved)).status == 200
        shown = " ".join(f"{seen.form} {seen.headers}" for seen in new.seen)
        assert login.client.client_id not in shown
        assert str(login.token.refresh_token) not in shown
        old.seen.clear()
        old.behaviour.token_error = "invalid_grant"
        with pytest.raises(TokenRefused):
            await renew(target_of(old), login, WEB)
        assert old.count("/token") == 1


@pytest.mark.requirement("HARD-38")
async def test_a_configured_client_is_not_shown_to_another_issuer() -> None:
    with authorization_server() as old, authorization_server() as new:
        old.add_client("mine")
        login = await logged_in(old, client_id="mine")
        old.behaviour.resource_overlay = {"authorization_servers": [new.url]}
        with pytest.raises(LoginFailed, match="is now"):
            await log_in(target_of(old, client_id="mine"), Clicking(), WEB, previous=login)
        assert all("mine" not in str(seen) for seen in new.seen)


async def test_of_several_issuers_the_known_one_is_kept() -> None:
    with authorization_server() as first, authorization_server() as second:
        known = await logged_in(second)
        second.behaviour.resource_overlay = {"authorization_servers": [first.url, second.url]}
        other = await logged_in(second)
        assert other.issuer == first.url
        again = await log_in(target_of(second), Clicking(), WEB, previous=known)
        assert again.issuer == second.url


@pytest.mark.requirement("HARD-10")
async def test_no_secret_is_in_what_a_login_shows_of_itself() -> None:
    with authorization_server(auth_methods=("client_secret_post",)) as server:
        login = await logged_in(server)
    shown = repr(login) + repr(login.token) + repr(login.client)
    for secret in (login.token.access_token, login.token.refresh_token, login.client.client_secret):
        assert secret is not None
        assert secret not in shown


@pytest.mark.requirement("HARD-10")
async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with authorization_server() as server:
        login = await logged_in(server)
        token = await renew(target_of(server), login, WEB)
    codes = [seen.form.get("code", "") for seen in server.asked("/token")]
    for secret in (login.token.access_token, str(login.token.refresh_token), token.access_token, codes[0]):
        assert secret
        assert secret not in caplog.text


async def test_an_issuer_need_not_name_itself_nor_explain() -> None:
    with authorization_server(iss=None) as server:
        await logged_in(server)
        server.behaviour.answer = {"error": "server_error"}
        with pytest.raises(LoginFailed, match=r"says `server_error`$"):
            await logged_in(server)


async def test_a_server_at_the_root_of_its_site_has_its_metadata_there() -> None:
    with authorization_server() as server:
        target = LoginTarget(server_id="notes", url=server.url)
        login = await log_in(target, Clicking(), WEB)
        assert server.seen[0].path == "/.well-known/oauth-protected-resource"
    assert login.resource == server.url


async def test_an_issuer_with_a_path_is_a_server_like_any_other() -> None:
    with authorization_server(
        issuer_path="/tenant", metadata_paths=("/tenant/.well-known/openid-configuration",)
    ) as server:
        login = await logged_in(server)
        assert (await call_tool(server, "whoami", login)).status == 200
    assert login.issuer == f"{server.url}/tenant"
