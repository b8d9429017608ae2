import pytest
from yarl import URL

from fairlead.auth.discovery import AuthChallenge, Issuer, ProtectedResource
from fairlead.auth.flow import merge_scopes, scope_to_ask, with_offline_access
from fairlead.auth.tokens import LoginTarget
from fairlead.config.oauth_models import OAuthSettings


def target(scope: str | None = None) -> LoginTarget:
    return LoginTarget(server_id="x", url="https://mcp.test/mcp", oauth=OAuthSettings(scope=scope))


def resource(*scopes: str) -> ProtectedResource:
    return ProtectedResource(audience="https://mcp.test/mcp", scopes=scopes or None)


def demanding(scope: str, error: str = "") -> AuthChallenge:
    return AuthChallenge(scheme="bearer", parameters={"scope": scope, "error": error})


@pytest.mark.requirement("NEED-16")
def test_what_the_challenge_demands_goes_before_what_the_metadata_lists() -> None:
    assert scope_to_ask(target(), resource("a", "b"), demanding("c"), None, None) == "c"
    assert scope_to_ask(target(), resource("a", "b"), None, None, None) == "a b"
    assert scope_to_ask(target(), resource(), None, None, None) is None


@pytest.mark.requirement("NEED-16")
def test_what_the_user_says_counts_as_it_is() -> None:
    assert scope_to_ask(target("mine"), resource("a"), demanding("c"), "old", None) == "mine"
    assert scope_to_ask(target("mine"), resource("a"), demanding("c"), "old", "now") == "now"


@pytest.mark.requirement("NEED-16")
def test_stepping_up_keeps_what_is_granted_and_adds_what_is_demanded() -> None:
    more = demanding("write", "insufficient_scope")
    assert scope_to_ask(target(), resource("a"), more, "read", None) == "read write"
    assert scope_to_ask(target("mine"), resource("a"), more, "mine read", None) == "mine read write"


def test_logging_in_again_does_not_lose_what_was_granted() -> None:
    assert scope_to_ask(target(), resource("a"), demanding("read"), "read write", None) == "read write"


def test_offline_access_is_asked_for_where_the_issuer_knows_it() -> None:
    knows = Issuer(name="i", token_endpoint=URL("https://as.test/token"), scopes=("offline_access",))
    does_not = Issuer(name="i", token_endpoint=URL("https://as.test/token"), scopes=("a",))
    assert with_offline_access("a", knows) == "a offline_access"
    assert with_offline_access("a", does_not) == "a"
    assert with_offline_access(None, knows) is None


def test_scopes_are_united_in_order_and_once() -> None:
    assert merge_scopes("b a", None, "a c") == "b a c"
    assert merge_scopes(None, "") is None
