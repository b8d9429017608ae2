import pytest

from fairlead.auth.discovery import (
    AuthChallenge,
    Issuer,
    ProtectedResource,
    covers,
    find_issuer,
    find_resource,
)
from fairlead.auth.http import HttpContext
from fairlead.auth.tokens import LoginTarget, canonical
from fairlead.errors import IssuerUnavailable, LoginFailed
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.auth.logging_in import WEB, Lookups, call_tool, logged_in, target_of

OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE = "/.well-known/oauth-protected-resource"


async def discovered(
    target: LoginTarget, web: HttpContext = WEB, challenge: AuthChallenge | None = None
) -> tuple[ProtectedResource, Issuer]:
    http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
    resource = await find_resource(http, target, challenge)
    return resource, await find_issuer(http, target, resource, None)


def asked(server: AuthorizationServer) -> list[str]:
    return [seen.path for seen in server.seen]


async def test_without_a_challenge_the_well_known_places_are_tried_in_order() -> None:
    with authorization_server(resource_metadata=False) as server:
        await discovered(target_of(server))
        assert asked(server)[:2] == [f"{RESOURCE}/mcp", RESOURCE]


async def test_the_challenge_says_where_the_metadata_is() -> None:
    with authorization_server() as server:
        refused = await call_tool(server, "whoami", None)
        server.seen.clear()
        resource, _ = await discovered(target_of(server), challenge=refused.challenge)
        assert asked(server) == [f"{RESOURCE}/mcp", OAUTH]
    assert resource.audience == server.mcp_url


@pytest.mark.parametrize(
    ("issuer_path", "places"),
    [
        ("", [OAUTH, OPENID]),
        ("/tenant", [f"{OAUTH}/tenant", f"{OPENID}/tenant", f"/tenant{OPENID}"]),
    ],
)
async def test_metadata_of_an_issuer_is_tried_in_the_order_of_the_specification(
    issuer_path: str, places: list[str]
) -> None:
    for number, place in enumerate(places, start=1):
        with authorization_server(issuer_path=issuer_path, metadata_paths=(place,)) as server:
            _, issuer = await discovered(target_of(server))
            assert [path for path in asked(server) if "protected" not in path] == places[:number]
            assert issuer.name == server.issuer


async def test_a_server_of_2025_03_with_metadata_is_its_own_issuer() -> None:
    with authorization_server(resource_metadata=False, challenge_metadata=False) as server:
        login = await logged_in(server)
        assert (await call_tool(server, "whoami", login)).status == 200
    assert login.issuer == server.url


async def test_a_server_of_2025_03_without_metadata_has_the_usual_endpoints() -> None:
    with authorization_server(resource_metadata=False, challenge_metadata=False, metadata_paths=()) as server:
        login = await logged_in(server)
        assert (await call_tool(server, "whoami", login)).status == 200
        assert server.count("/register") == 1
    assert login.token_endpoint == f"{server.url}/token"


async def test_where_there_is_no_login_at_all_the_user_is_told_what_to_set() -> None:
    with (
        authorization_server(metadata_paths=()) as server,
        pytest.raises(LoginFailed, match="no metadata") as caught,
    ):
        await logged_in(server)
    assert "headers.Authorization" in str(caught.value.hint)


async def test_where_nothing_is_found_no_browser_opens() -> None:
    person = Clicking()
    with (
        authorization_server(resource_metadata=False, metadata_paths=(), registration=False) as server,
        pytest.raises(LoginFailed, match="status 404") as caught,
    ):
        await logged_in(server, person)
    assert person.visited == []
    assert "headers.Authorization" in str(caught.value.hint)


@pytest.mark.parametrize("resource", ["https://evil.test/mcp", "http://127.0.0.1:1/mcp", "nonsense"])
async def test_metadata_about_another_server_is_refused(resource: str) -> None:
    person = Clicking()
    with (
        authorization_server(resource_overlay={"resource": resource}) as server,
        pytest.raises(LoginFailed, match="is about"),
    ):
        await logged_in(server, person)
    assert person.visited == []


async def test_a_resource_may_stand_for_the_whole_site() -> None:
    with authorization_server() as server:
        server.behaviour.resource_overlay = {"resource": server.url}
        login = await logged_in(server)
        (request,) = server.asked("/token")
    assert request.form["resource"] == server.url
    assert (login.resource, login.audience) == (server.mcp_url, server.url)


@pytest.mark.parametrize(
    ("resource", "url", "expected"),
    [
        ("https://x.test/mcp", "https://x.test/mcp", True),
        ("https://x.test/mcp/", "https://x.test/mcp", True),
        ("https://X.test", "https://x.test/mcp", True),
        ("https://x.test:443/a", "https://x.test/a/b", True),
        ("https://x.test/m", "https://x.test/mcp", False),
        ("https://x.test/mcp/deeper", "https://x.test/mcp", False),
        ("http://x.test/mcp", "https://x.test/mcp", False),
        ("https://y.test/mcp", "https://x.test/mcp", False),
        ("https://x.test:8443/mcp", "https://x.test/mcp", False),
        ("https://x.test/mcp#f", "https://x.test/mcp", False),
        ("", "https://x.test/mcp", False),
    ],
)
def test_a_resource_covers_what_lies_below_it(resource: str, url: str, expected: bool) -> None:
    assert covers(resource, url) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://MCP.Test/Mcp?x=1#y", "https://mcp.test/Mcp"),
        ("https://mcp.test/", "https://mcp.test"),
        ("https://mcp.test:8443", "https://mcp.test:8443"),
        ("https://mcp.test/a/", "https://mcp.test/a/"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_servers_url_has_one_spelling(url: str, expected: str) -> None:
    assert canonical(url) == expected


async def test_metadata_of_another_issuer_is_not_used() -> None:
    with (
        authorization_server(metadata={"issuer": "https://honest.example"}) as server,
        pytest.raises(LoginFailed, match=r"is that of https://honest\.example"),
    ):
        await discovered(target_of(server))


async def test_an_origin_is_the_same_issuer_with_and_without_its_slash() -> None:
    with authorization_server() as server:
        server.behaviour.metadata = {"issuer": f"{server.url}/"}
        server.behaviour.iss = f"{server.url}/"
        login = await logged_in(server)
        assert login.issuer == f"{server.url}/"
    with authorization_server(issuer_path="/t", metadata_paths=(f"{OAUTH}/t",)) as server:
        server.behaviour.metadata = {"issuer": f"{server.url}/t/"}
        with pytest.raises(LoginFailed, match="is that of"):
            await discovered(target_of(server))


@pytest.mark.parametrize(
    "behaviour",
    [
        {"metadata": {"token_endpoint": None}},
        {"metadata": {"authorization_endpoint": None}},
        {"metadata": {"token_endpoint": 7}},
        {"metadata": {"issuer": ["x"]}},
        {"metadata_status": 500},
    ],
)
async def test_metadata_that_is_no_use_is_refused(behaviour: dict[str, object]) -> None:
    with authorization_server(**behaviour) as server, pytest.raises(LoginFailed):
        await logged_in(server)


async def test_what_the_user_wrote_goes_before_what_servers_say() -> None:
    with authorization_server() as server, authorization_server() as other:
        other.add_client("mine")
        server.trusted = [other]
        login = await logged_in(
            server,
            client_id="mine",
            authorization_url=f"{other.url}/authorize",
            token_url=f"{other.url}/token",
        )
        assert (await call_tool(server, "whoami", login)).status == 200
        assert OAUTH not in asked(server)
        assert asked(other) == ["/authorize", "/authorize", "/token"]


async def test_one_endpoint_alone_can_be_corrected() -> None:
    with authorization_server(metadata={"token_endpoint": "http://127.0.0.1:1/token"}) as server:
        login = await logged_in(server, token_url=f"{server.url}/token")
        assert (await call_tool(server, "whoami", login)).status == 200


@pytest.mark.requirement("HARD-29")
@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_endpoints_that_others_can_listen_to_are_refused(endpoint: str) -> None:
    person = Clicking()
    with authorization_server(metadata={endpoint: "http://as.example/x"}) as server:
        with pytest.raises(LoginFailed, match="not https"):
            await logged_in(server, person)
        assert server.count("/register") == 0
    assert person.visited == []


@pytest.mark.requirement("HARD-30")
@pytest.mark.parametrize(
    "address", ["10.0.0.1", "169.254.169.254", "127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]"]
)
async def test_a_public_server_leads_nowhere_inside(address: str) -> None:
    lookups = Lookups(mcp_test="1.1.1.1")
    web = HttpContext(resolver=lambda: lookups, seconds=5)
    target = LoginTarget(server_id="notes", url="https://mcp.test/mcp")
    url = f"https://{address}/meta"
    challenge = AuthChallenge(scheme="bearer", parameters={"resource_metadata": url})
    with pytest.raises(LoginFailed, match="refused"):
        await discovered(target, web, challenge)
    http = await web.client_for("notes", target.url)
    with pytest.raises(LoginFailed, match="refused"):
        await find_issuer(http, target, ProtectedResource(audience="x", servers=(url,)), None)


@pytest.mark.requirement("HARD-30")
async def test_a_name_is_judged_by_the_address_that_would_be_dialled() -> None:
    with authorization_server() as server:
        lookups = Lookups(mcp_test="1.1.1.1", as_test="127.0.0.1")
        web = HttpContext(resolver=lambda: lookups, seconds=5)
        target = LoginTarget(server_id="notes", url="https://mcp.test/mcp")
        issuer = server.url.replace("http://127.0.0.1", "https://as.test")
        http = await web.client_for("notes", target.url)
        with pytest.raises(LoginFailed, match=r"as\.test is at 127\.0\.0\.1, a loopback address"):
            await find_issuer(http, target, ProtectedResource(audience="x", servers=(issuer,)), None)
        assert server.seen == []
    assert lookups.asked == ["mcp.test", "as.test"]


async def test_a_server_that_cannot_be_reached_is_not_one_without_metadata() -> None:
    with authorization_server() as server:
        target = target_of(server)
    with pytest.raises(IssuerUnavailable, match="cannot be reached"):
        await discovered(target)


async def test_a_long_list_of_issuers_is_not_tried_to_its_end() -> None:
    with authorization_server(metadata_paths=()) as server:
        servers = [f"{server.url}/{number}" for number in range(100)]
        server.behaviour.resource_overlay = {"authorization_servers": servers}
        with pytest.raises(LoginFailed, match="no metadata"):
            await discovered(target_of(server))
        assert len(server.seen) < 20
