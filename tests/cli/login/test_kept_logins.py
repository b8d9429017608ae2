"""`fairlead whoami`, `logout` and `auth`: several accounts on one URL, and the end of logins."""

import json
import time

import pytest

from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.cli.logins import format_expiry
from tests.auth.authorization_server import AuthorizationServer
from tests.cli.login.support import Browser, Fairlead, configure, tokens, who
from tests.conftest import Machine


@pytest.mark.requirement("NEED-15")
def test_two_accounts_on_one_url_are_two_logins(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    configure(
        machine,
        x={"url": server.mcp_url},
        work={"url": server.mcp_url, "account": "work"},
    )
    browser("ada")
    assert fairlead("login", "x", "--yes").status == 0
    browser("grace")
    other = fairlead("login", "x", "--yes", "--account", "work")
    assert other.status == 0
    assert "logged in to `x` as `work`" in other.err
    assert 'an entry with `"account": "work"` uses this login' in other.err
    assert who(fairlead, "x") == "ada mcp:read"
    assert who(fairlead, "work") == "grace mcp:read"
    assert "as `work` already" in fairlead("login", "work", "--yes").err
    listed = json.loads(fairlead("auth", "list", "--json").out)["logins"]
    assert [(each["servers"], each["account"]) for each in listed] == [(["x"], None), (["work"], "work")]
    assert "logged out of x as `work`" in fairlead("logout", "x", "--account", "work").err
    assert who(fairlead, "x") == "ada mcp:read"
    assert fairlead("call", "work", "whoami", "--yes").status == 3
    fairlead("login", "work", "--yes")
    assert fairlead("logout", "x", "--all").err.count("logged out") == 2


def test_a_logout_ends_it_for_all(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    fairlead("login", "x", "--yes")
    outcome = fairlead("logout", "x")
    assert outcome.status == 0
    assert "logged out of x" in outcome.err
    kept = machine.home / ".local/state/fairlead/mcp-auth.json"
    assert [token for token in tokens(server) if token in kept.read_text()] == []
    assert fairlead("call", "x", "whoami", "--yes").status == 3
    gone = fairlead("whoami", "x")
    assert gone.status == 3
    assert "run `fairlead login x`" in gone.err
    assert "no login to `x`" in fairlead("logout", "x").err
    assert "logout" in fairlead("audit").out
    fairlead("login", "x", "--yes")
    configure(machine)
    (orphan,) = json.loads(fairlead("auth", "list", "--json").out)["logins"]
    assert orphan["servers"] == []
    assert orphan["url"] == server.mcp_url
    assert "no server is configured" in fairlead("whoami").err
    assert "logged out" in fairlead("logout", server.mcp_url).err
    assert "there are no logins" in fairlead("logout", "--all").err
    assert "there are no logins" in fairlead("auth", "list").err


@pytest.mark.parametrize("register_as", ["none", "client_secret_basic", "client_secret_post"])
def test_a_logout_ends_the_tokens_at_their_issuer(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser, register_as: str
) -> None:
    browser()
    server.behaviour.revocation_status, server.behaviour.register_as = 200, register_as
    configure(machine, x={"url": server.mcp_url})
    fairlead("login", "x", "--yes")
    assert server.access_tokens
    assert server.refresh_tokens
    outcome = fairlead("logout", "x")
    assert "logged out of x\n  its issuer has ended the tokens" in outcome.err
    assert (server.access_tokens, server.refresh_tokens) == ({}, {})


def test_a_configured_client_ends_its_tokens_with_its_own_secret(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    server.behaviour.revocation_status = 200
    server.add_client("mine", auth="client_secret_post", client_secret="hush")
    oauth = {"client_id": "mine", "client_secret": "hush", "auth_method": "client_secret_post"}
    configure(machine, other={"url": "https://${NO_SUCH_HOST}/"}, x={"url": server.mcp_url, "oauth": oauth})
    assert fairlead("login", "x", "--yes").status == 0
    assert "has ended the tokens" in fairlead("logout", "--all").err
    assert server.refresh_tokens == {}


def test_a_secret_that_is_gone_keeps_nobody_from_logging_out(
    fairlead: Fairlead,
    machine: Machine,
    server: AuthorizationServer,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser()
    server.behaviour.revocation_status = 200
    server.add_client("mine", auth="client_secret_post", client_secret="hush")
    oauth = {"client_id": "mine", "client_secret": "${HUSH}", "auth_method": "client_secret_post"}
    configure(machine, x={"url": server.mcp_url, "oauth": oauth})
    monkeypatch.setenv("HUSH", "hush")
    assert fairlead("login", "x", "--yes").status == 0
    monkeypatch.delenv("HUSH")
    outcome = fairlead("logout", "x")
    assert outcome.status == 0
    assert "not ended at their issuer" in outcome.err
    assert "HUSH" in outcome.err
    assert fairlead("auth", "list", "--json").out.strip().endswith('"logins": []\n}')


@pytest.mark.parametrize(
    ("status", "metadata", "said"),
    [
        (503, {}, "answers with status 503"),
        (200, {"revocation_endpoint": "http://example.com/revoke"}, "the revocation endpoint is refused"),
        (0, {}, "no way to end tokens"),
    ],
)
def test_a_login_is_forgotten_whatever_its_issuer_says(
    fairlead: Fairlead,
    machine: Machine,
    server: AuthorizationServer,
    browser: Browser,
    status: int,
    metadata: dict[str, str],
    said: str,
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    server.behaviour.revocation_status, server.behaviour.metadata = status, metadata
    assert fairlead("login", "x", "--yes").status == 0
    outcome = fairlead("logout", "x")
    assert outcome.status == 0
    assert said in outcome.err
    assert fairlead("whoami", "x").status == 3
    assert len(server.access_tokens) == 1


def test_a_logout_wants_to_know_what_of(fairlead: Fairlead) -> None:
    assert fairlead("logout").status == 2
    assert fairlead("logout", "--all", "--account", "a").status == 2


def test_a_server_whose_url_is_not_known_now_hides_no_other(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url}, lost={"url": "https://${NO_SUCH_HOST}/mcp"})
    fairlead("login", "x", "--yes")
    everybody = fairlead("whoami")
    assert "logged in" in everybody.out
    assert "NO_SUCH_HOST" in everybody.err
    assert fairlead("auth", "list").status == 0


def test_the_end_of_a_login_is_told_in_words() -> None:
    def expiry(seconds: float | None, renews: bool = False, access_token: str = "t") -> str:
        end = None if seconds is None else int((time.time() + seconds) * 1000)
        token = Token(access_token=access_token, expires_at=end)
        client = OAuthClient(client_id="c")
        login = Login(
            principal="local",
            account="",
            issuer="i",
            resource="r",
            token_endpoint="t",
            client=client,
            token=token,
        )
        return format_expiry(login, renews=renews)

    assert expiry(3120.5) == "in 52 min"
    assert expiry(3120.5, renews=True) == "in 52 min, then renews by itself"
    assert expiry(45.5) in ("in 45 s", "in 46 s")
    assert expiry(20 * 86_400) == "in 20 days"
    assert expiry(-1) == "expired; log in again"
    assert expiry(-1, renews=True) == "expired, renews by itself"
    assert expiry(None) == "not known"
    assert expiry(None, access_token="") == "expired; log in again"
