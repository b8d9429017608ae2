"""Tokens that are of use only to who holds a key (RFC 9449): a fresh proof for every request."""

import functools
import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from jwt.algorithms import ECAlgorithm
from yarl import URL

from fairlead.auth.pkce import base64url
from fairlead.auth.signing import PrivateKey, read_key, signed
from fairlead.auth.tokens import Login

ALGORITHM = "ES256"


@functools.lru_cache(maxsize=64)
def _key(pem: str) -> tuple[PrivateKey, dict[str, Any]]:
    key = read_key(pem)
    assert isinstance(key, EllipticCurvePrivateKey), "we made it"
    return key, ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


def proof(
    pem: str, method: str, url: URL | str, *, access_token: str | None = None, nonce: str | None = None
) -> str:
    """Return the proof for one request. `nonce` is what the server asked to have in it, if it did."""
    key, public = _key(pem)
    claims: dict[str, Any] = {"htm": method, "htu": str(URL(url).with_query(None).with_fragment(None))}
    if access_token is not None:
        claims["ath"] = base64url(hashlib.sha256(access_token.encode()).digest())
    if nonce is not None:
        claims["nonce"] = nonce
    return signed(claims, key, ALGORITHM, {"typ": "dpop+jwt", "jwk": public})


def request_headers(login: Login, method: str, url: URL | str, nonce: str | None = None) -> dict[str, str]:
    """Return the headers that let a request to the MCP server in: a bearer token, or one with its proof."""
    token = login.token.access_token
    if login.dpop_key is None or login.token.token_type != "DPoP":  # noqa: S105 - a kind of token
        return {"Authorization": f"Bearer {token}"}
    made = proof(login.dpop_key, method, url, access_token=token, nonce=nonce)
    return {"Authorization": f"DPoP {token}", "DPoP": made}
