import base64
from typing import Any
from urllib.parse import unquote_plus

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from yarl import URL

from fairlead.auth.clients import choose_configured_auth, credentials
from fairlead.auth.discovery import Issuer
from fairlead.auth.flow import renew
from fairlead.auth.tokens import LoginTarget, OAuthClient
from fairlead.config.oauth_models import OAuthSettings
from fairlead.errors import LoginFailed
from tests.auth.authorization_server import authorization_server
from tests.auth.logging_in import WEB, call_tool, logged_in, target_of

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def pem(key: Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_pem(key: Key) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


KEYS: dict[str, Key] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}


def target(**oauth: Any) -> LoginTarget:
    return LoginTarget(server_id="notes", url="https://mcp.test/mcp", oauth=OAuthSettings(**oauth))


def issuer(*methods: str) -> Issuer:
    return Issuer(
        name="https://as.test", token_endpoint=URL("https://as.test/token"), auth_methods=methods or None
    )


def test_a_secret_in_a_header_survives_any_character() -> None:
    known = credentials(
        target(client_id="a:b", client_secret="p+%:/ ü"),
        OAuthClient(client_id="a:b", auth="client_secret_basic"),
        "https://as.test",
    )
    encoded = known.headers["Authorization"].removeprefix("Basic ")
    name, _, secret = base64.b64decode(encoded).decode().partition(":")
    assert (unquote_plus(name), unquote_plus(secret)) == ("a:b", "p+%:/ ü")
    assert known.form == {}
    assert "ü" not in repr(known)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_configured_secret_is_sent_as_the_issuer_likes(method: str) -> None:
    with authorization_server(auth_methods=(method,)) as server:
        server.add_client("mine", auth=method, client_secret="s3cret:/+")
        login = await logged_in(server, client_id="mine", client_secret="s3cret:/+")
        assert (await call_tool(server, "whoami", login)).status == 200
        assert "s3cret" not in str(login.client.client_secret)
        await renew(target_of(server, client_id="mine", client_secret="s3cret:/+"), login, WEB)


@pytest.mark.requirement("NEED-17")
@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_key_proves_who_the_client_is(algorithm: str) -> None:
    key = KEYS[algorithm]
    with authorization_server() as server:
        server.add_client("mine", auth="private_key_jwt", public_key=public_pem(key))
        login = await logged_in(server, client_id="mine", private_key=pem(key))
        assert login.client.auth == "private_key_jwt"
        target = target_of(server, client_id="mine", private_key=pem(key), key_algorithm=algorithm)
        await renew(target, login, WEB)
        assert server.count("/token") == 2


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"private_key": "nonsense"}, "not an unencrypted PEM key"),
        ({"private_key": pem(ed25519.Ed25519PrivateKey.generate())}, "neither"),
        ({"private_key": pem(ec.generate_private_key(ec.SECP384R1()))}, "neither"),
        ({"private_key": pem(KEYS["ES256"]), "key_algorithm": "RS256"}, "no key for RS256"),
        ({"auth_method": "private_key_jwt"}, "has no key"),
        ({"auth_method": "client_secret_post"}, "has none"),
        ({"auth_method": "client_secret_basic"}, "has none"),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_never_shown(oauth: dict[str, Any], words: str) -> None:
    where = target(client_id="mine", **oauth)
    client = OAuthClient(client_id="mine", auth=choose_configured_auth(where, issuer()))
    with pytest.raises(LoginFailed, match=words) as caught:
        credentials(where, client, "https://as.test")
    assert "BEGIN" not in str(caught.value)


@pytest.mark.parametrize(
    ("oauth", "supported", "expected"),
    [
        ({}, (), "none"),
        ({"client_secret": "s"}, (), "client_secret_basic"),
        ({"client_secret": "s"}, ("client_secret_post", "none"), "client_secret_post"),
        ({"client_secret": "s", "auth_method": "none"}, ("client_secret_post",), "none"),
        ({"private_key": "k", "client_secret": "s"}, (), "private_key_jwt"),
    ],
)
def test_the_user_chooses_and_else_the_issuer(
    oauth: dict[str, Any], supported: tuple[str, ...], expected: str
) -> None:
    assert choose_configured_auth(target(client_id="mine", **oauth), issuer(*supported)) == expected


def test_a_secret_that_the_issuer_will_not_take_is_not_sent() -> None:
    with pytest.raises(LoginFailed, match="private_key_jwt"):
        choose_configured_auth(target(client_id="mine", client_secret="s"), issuer("private_key_jwt"))
