"""Tokens of a team's own issuer, checked with keys from a real one."""

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fairlead.auth.http import HttpContext
from fairlead.config.models import GatewayOAuth, GatewaySettings
from fairlead.gateway.access.jwt import (
    FRESH_SECONDS,
    PATIENCE_SECONDS,
    STALE_SECONDS,
    TRUST_SECONDS,
    IssuerKeys,
    JwtAccess,
    TokenUnverifiable,
    VerifiedToken,
)
from fairlead.gateway.access.middleware import authenticator_for
from fairlead.gateway.access.tokens import TokenFile
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing.fixtures import FakeClock
from tests.conftest import Machine
from tests.gateway.guarded_support import guarded

AUDIENCE = "https://gateway.example.org/mcp"

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass
class Signer:
    """An issuer with metadata and keys, which can be exchanged and taken down."""

    url: str
    keys: dict[str, Key]
    requests: list[str] = field(default_factory=list[str])
    down: bool = False
    issuer: str = ""

    def token(self, kid: str | None = "one", *, key: Key | None = None, **claims: Any) -> str:
        signing = key or self.keys[kid or "one"]
        algorithm = "RS256" if isinstance(signing, rsa.RSAPrivateKey) else "ES256"
        now = int(time.time())
        said = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": now + 300, "scope": "tools"} | claims
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, signing, algorithm, headers={"kid": kid} if kid else {})

    def published(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        for kid, key in self.keys.items():
            public = key.public_key()
            if isinstance(public, rsa.RSAPublicKey):
                described = RSAAlgorithm.to_jwk(public, as_dict=True)
            else:
                described = ECAlgorithm.to_jwk(public, as_dict=True)
            found.append({**described, "kid": kid, "use": "sig"})
        return {"keys": [*found, {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}]}


RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


@asynccontextmanager
async def signing() -> AsyncGenerator[Signer]:
    with bind("127.0.0.1", 0) as listener:
        url = url_of(listener)
        signer = Signer(url, {"one": RSA_KEY, "two": EC_KEY}, issuer=url)

        async def answer(request: Request) -> Response:
            signer.requests.append(request.url.path)
            if signer.down:
                return Response(status_code=503)
            if request.url.path == "/keys":
                return JSONResponse(signer.published())
            return JSONResponse({"issuer": signer.issuer, "jwks_uri": f"{url}/keys"})

        places = ["/.well-known/openid-configuration", "/keys"]
        async with listening(Starlette(routes=[Route(place, answer) for place in places]), listener):
            yield signer


@pytest.fixture
async def signer() -> AsyncGenerator[Signer]:
    async with signing() as running:
        yield running


def access(
    signer: Signer,
    clock: FakeClock | None = None,
    names_groups: Callable[[], bool] = lambda: False,
    **rest: Any,
) -> JwtAccess:
    oauth = GatewayOAuth(issuer=signer.url, audience=AUDIENCE, **rest)
    keys = IssuerKeys(oauth, HttpContext(), clock=clock or time.monotonic)
    return JwtAccess(oauth, keys, names_groups=names_groups, clock=clock or time.time)


async def reason(checked: JwtAccess, token: str) -> str:
    found = await checked.verify(token)
    assert not isinstance(found, VerifiedToken)
    return found.reason


@pytest.mark.parametrize("kid", ["one", "two"])
async def test_a_token_made_out_to_the_gateway_says_who_somebody_is(signer: Signer, kid: str) -> None:
    found = await access(signer).verify(signer.token(kid, scope="tools fairlead:admin"))
    assert found == VerifiedToken(
        principal=f"oauth:{signer.url} ada", scopes=frozenset({"mcp"}), says_groups=False
    )


async def test_nobody_at_the_issuer_can_be_the_local_user(signer: Signer) -> None:
    found = await access(signer).verify(signer.token(sub="local"))
    assert isinstance(found, VerifiedToken)
    assert found.principal == f"oauth:{signer.url} local"


async def test_another_claim_can_say_who_it_is(signer: Signer) -> None:
    checked = access(signer, principal_claim="email")
    found = await checked.verify(signer.token(email="ada@example.org"))
    assert isinstance(found, VerifiedToken)
    assert found.principal == f"oauth:{signer.url} ada@example.org"
    assert "lacks `email`" in await reason(checked, signer.token())
    assert "is not a non-empty string" in await reason(checked, signer.token(email=["ada"]))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "https://other.example.org/mcp"}, "its audience"),
        ({"aud": AUDIENCE + "/"}, "its audience"),
        ({"aud": None}, "lacks `aud`"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "lacks `iss`"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"exp": None}, "lacks `exp`"),
        ({"nbf": int(time.time()) + 86_400}, "not valid yet"),
        ({"sub": None}, "lacks `sub`"),
    ],
)
async def test_a_token_for_anything_else_opens_nothing(
    signer: Signer, claims: dict[str, Any], why: str
) -> None:
    assert why in await reason(access(signer), signer.token(**claims))


async def test_clocks_may_differ_a_little(signer: Signer) -> None:
    now = int(time.time())
    assert isinstance(await access(signer).verify(signer.token(exp=now - 5, nbf=now + 5)), VerifiedToken)


async def test_of_several_audiences_one_may_be_the_gateway(signer: Signer) -> None:
    token = signer.token(aud=["https://x.example", AUDIENCE])
    assert isinstance(await access(signer).verify(token), VerifiedToken)


async def test_only_signatures_with_a_key_pair_count(signer: Signer) -> None:
    claims = jwt.decode(signer.token(), options={"verify_signature": False})
    checked = access(signer)
    unsigned = jwt.encode(claims, "", algorithm="none")
    shared = jwt.encode(claims, "secret" * 8, algorithm="HS256", headers={"kid": "shared"})
    assert "must be signed" in await reason(checked, unsigned)
    assert "must be signed" in await reason(checked, shared)
    assert signer.requests == []
    stranger = signer.token(key=rsa.generate_private_key(65537, 2048))
    assert "signature" in await reason(checked, stranger)
    confused = signer.token("one", key=EC_KEY)  # an RSA key's name, signed with another kind of key
    assert "no matching key" in await reason(checked, confused)
    assert "no matching key" in await reason(checked, signer.token("nobody", key=RSA_KEY))


@pytest.mark.parametrize("token", ["x", "a.b.c", "é", "." * 30, "x" * 20_000])
async def test_what_is_no_token_asks_nobody(signer: Signer, token: str) -> None:
    assert await reason(access(signer), token)
    assert signer.requests == []


async def test_scopes_that_are_missing_are_named(signer: Signer) -> None:
    checked = access(signer, required_scopes=("tools", "team"))
    assert "`team`" in await reason(checked, signer.token())
    assert isinstance(await checked.verify(signer.token(scope=None, scp=["tools", "team"])), VerifiedToken)
    assert "`tools`" in await reason(checked, signer.token(scope=7))


async def test_a_token_that_names_no_key_is_checked_with_the_only_one_of_its_kind(signer: Signer) -> None:
    assert isinstance(await access(signer).verify(signer.token(None)), VerifiedToken)
    signer.keys["three"] = rsa.generate_private_key(65537, 2048)
    assert "no matching key" in await reason(access(signer), signer.token(None))


async def test_keys_are_fetched_once_and_again_for_a_new_one(signer: Signer) -> None:
    clock = FakeClock()
    checked = access(signer, clock)
    for number in range(3):
        assert isinstance(await checked.verify(signer.token(jti=str(number))), VerifiedToken)
    assert signer.requests.count("/keys") == 1
    signer.keys = {"new": ec.generate_private_key(ec.SECP256R1())}
    assert "no matching key" in await reason(checked, signer.token("new"))  # it was asked a moment ago
    clock.advance(PATIENCE_SECONDS)
    assert isinstance(await checked.verify(signer.token("new")), VerifiedToken)
    assert signer.requests.count("/keys") == 2
    assert "no matching key" in await reason(checked, signer.token("one", key=RSA_KEY))


async def test_an_issuer_that_is_down_leaves_known_keys_as_they_are(signer: Signer) -> None:
    clock = FakeClock()
    checked = access(signer, clock)
    signer.down = True
    assert isinstance(await checked.verify(signer.token()), TokenUnverifiable)
    asked = len(signer.requests)
    assert isinstance(await checked.verify(signer.token()), TokenUnverifiable)
    assert len(signer.requests) == asked  # not for every stranger
    signer.down = False
    clock.advance(PATIENCE_SECONDS)
    assert isinstance(await checked.verify(signer.token()), VerifiedToken)
    signer.down = True
    clock.advance(FRESH_SECONDS)
    assert isinstance(await checked.verify(signer.token(jti="later")), VerifiedToken)


async def test_metadata_of_another_issuer_is_not_believed(signer: Signer) -> None:
    signer.issuer = "https://other.example"
    assert "is that of https://other.example" in await reason(access(signer), signer.token())


async def test_keys_can_be_where_the_user_says(signer: Signer) -> None:
    checked = access(signer, jwks_url=f"{signer.url}/keys")
    assert isinstance(await checked.verify(signer.token()), VerifiedToken)
    assert signer.requests == ["/keys"]


async def test_a_gateway_for_teams_says_where_to_log_in(signer: Signer) -> None:
    async with guarded(jwt=access(signer, required_scopes=("tools",))) as served:
        who = json.loads((await served.ask(token=signer.token())).body)["principal"]
        assert who == f"oauth:{signer.url} ada"
        assert (await served.ask()).status == 200  # the local token still is one
        expired = await served.ask(token=signer.token(exp=1))
        assert expired.status == 401
        assert 'error="invalid_token"' in expired.headers["WWW-Authenticate"]
        narrow = await served.ask(token=signer.token(scope="other"))
        assert narrow.status == 403
        assert 'error="insufficient_scope"' in narrow.headers["WWW-Authenticate"]
        assert (await served.ask("/", method="GET", token=signer.token())).status == 403
        admin = signer.token(scope="tools fairlead:admin fairlead:decide decide admin")
        assert (await served.ask("/", method="GET", token=admin)).status == 403


async def test_at_the_door_an_issuer_that_is_down_is_a_reason_to_come_back(signer: Signer) -> None:
    signer.down = True
    async with guarded(jwt=access(signer)) as served:
        reply = await served.ask(token=signer.token())
        assert (reply.status, reply.headers["Retry-After"]) == (503, "10")


def test_whom_tokens_are_made_out_to_is_a_name_it_goes_by(machine: Machine) -> None:
    oauth = GatewayOAuth(issuer="https://issuer.example.org", audience=AUDIENCE)
    keeper = authenticator_for(GatewaySettings(oauth=oauth), "127.0.0.1", 8130, machine.env)

    def status(host: str) -> int | None:
        scope = {"method": "GET", "path": "/mcp", "headers": [(b"host", host.encode())]}
        refused = keeper.screen(scope)
        return refused.status if refused else None

    assert status("gateway.example.org") is None
    assert status("127.0.0.1:8130") is None
    assert status("issuer.example.org") == 421
    assert keeper.resource_metadata is not None


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize(
    "subject",
    [
        "local",
        "token:x",
        "token:ada",
        "/",
        "../local",
        "a/b",
        "local/",
        "oauth:local",
        "x local",
        "l\u043ecal",
    ],
)
async def test_a_subject_is_a_principal_of_its_issuer_whatever_it_is_called(
    signer: Signer, subject: str, tmp_path: Path
) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    named.add("x")
    async with guarded(named=named, jwt=access(signer)) as served:
        reply = await served.ask(token=signer.token(sub=subject))
        assert reply.status == 200
        assert served.seen == [f"oauth:{signer.url} {subject}"]


@pytest.mark.requirement("HARD-80")
@pytest.mark.parametrize(
    "subject",
    ["", " ", " local", "local ", "local\n", "\u200blocal", "a\0b", "\u202elacol", "x" * 256, 7, ["local"]],
)
async def test_a_subject_that_does_not_show_as_it_is_opens_nothing(signer: Signer, subject: Any) -> None:
    async with guarded(jwt=access(signer)) as served:
        assert (await served.ask(token=signer.token(sub=subject))).status == 401
        assert served.seen == []


@pytest.mark.requirement("HARD-80")
async def test_one_subject_of_two_issuers_is_two_principals(signer: Signer) -> None:
    async with signing() as other:
        found = [await access(one).verify(one.token(sub="ada")) for one in (signer, other)]
        assert len({each.principal for each in found if isinstance(each, VerifiedToken)}) == 2
        assert "another issuer" in await reason(access(signer), signer.token(iss=other.url))


@pytest.mark.requirement("HARD-81")
@pytest.mark.parametrize("scope", ["decide", "fairlead:decide", "admin", "Approve", "approve2"])
async def test_a_scope_decides_only_where_the_configuration_names_it(signer: Signer, scope: str) -> None:
    for wanted in (None, "approve"):
        found = await access(signer, decide_scope=wanted).verify(signer.token(scope=f"tools {scope}"))
        assert isinstance(found, VerifiedToken)
        assert found.scopes == {"mcp"}
    granting: tuple[dict[str, Any], ...] = ({"scope": "tools approve"}, {"scope": None, "scp": ["approve"]})
    for said in granting:
        found = await access(signer, decide_scope="approve").verify(signer.token(**said))
        assert isinstance(found, VerifiedToken)
        assert found.scopes == {"mcp", "decide"}  # and never `admin`
    async with guarded(jwt=access(signer, decide_scope="approve")) as served:
        token = signer.token(scope="tools approve")
        assert (await served.ask("/api/approvals", method="GET", token=token)).status == 200
        for path in ("/", "/api/control", "/api/dashboard-links"):
            assert (await served.ask(path, token=token)).status == 403


@pytest.mark.requirement("HARD-81")
async def test_a_retired_key_is_refused_within_five_minutes(signer: Signer) -> None:
    for is_down in (False, True):
        clock = FakeClock()
        checked = access(signer, clock)
        signer.keys, signer.down = {"one": RSA_KEY}, False
        token = signer.token()
        assert isinstance(await checked.verify(token), VerifiedToken)
        signer.keys, signer.down = {"two": EC_KEY}, is_down
        for _ in range(10):  # used all the while
            clock.advance(30)
            await checked.verify(token)
        assert not isinstance(await checked.verify(token), VerifiedToken)
    assert TRUST_SECONDS + STALE_SECONDS + PATIENCE_SECONDS <= 300
