"""Proofs of possession: PKCE (RFC 7636), signed assertions (RFC 7523) and DPoP (RFC 9449)."""

import base64
import functools
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm
from yarl import URL

from fairlead.auth.tokens import Login


@dataclass(frozen=True, kw_only=True, slots=True)
class Pkce:
    """PKCE verifier and its S256 challenge."""

    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        """The parameters for the authorization request."""
        return base64url(hashlib.sha256(self.verifier.encode()).digest())


def new_pkce() -> Pkce:
    """Create the PKCE verifier of one authorization request."""
    return Pkce(verifier=secrets.token_urlsafe(64))


def new_state() -> str:
    """Make a state for one authorization request. It is good for one answer."""
    return secrets.token_urlsafe(32)


def base64url(data: bytes) -> str:
    """Base64url without padding, as JOSE and PKCE encode."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def read_key(pem: str) -> PrivateKey:
    """Parse a private key. Raises `ValueError`, which shows none of it, for one that cannot be used."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as exc:
        raise ValueError("it is not an unencrypted PEM key") from exc
    if isinstance(key, rsa.RSAPrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError("it is neither an RSA key nor one on P-256")


def new_key() -> str:
    """Make a key for ES256, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def algorithm_of(key: PrivateKey) -> str:
    """The default algorithm of a key."""
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"


def sign_claims(
    claims: dict[str, Any], key: PrivateKey, algorithm: str, headers: dict[str, Any] | None = None
) -> str:
    """Sign claims, with a unique id and times added."""
    dated = {"iat": int(time.time()), "jti": secrets.token_urlsafe(16), **claims}
    return jwt.encode(dated, key, algorithm=algorithm, headers=headers)


ALGORITHM = "ES256"


@functools.lru_cache(maxsize=64)
def _key(pem: str) -> tuple[PrivateKey, dict[str, Any]]:
    key = read_key(pem)
    assert isinstance(key, EllipticCurvePrivateKey), "we made it"
    return key, ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


def proof(
    pem: str, method: str, url: URL | str, *, access_token: str | None = None, nonce: str | None = None
) -> str:
    """Make the DPoP proof (RFC 9449) for one request.

    Args:
        pem: The private key, as PEM.
        method: The HTTP method of the request.
        url: Its URL.
        access_token: The token that goes with it, to whose digest the proof is bound.
        nonce: The nonce that the server requires.

    Returns:
        The proof as a compact JWT.
    """
    key, public = _key(pem)
    claims: dict[str, Any] = {"htm": method, "htu": str(URL(url).with_query(None).with_fragment(None))}
    if access_token is not None:
        claims["ath"] = base64url(hashlib.sha256(access_token.encode()).digest())
    if nonce is not None:
        claims["nonce"] = nonce
    return sign_claims(claims, key, ALGORITHM, {"typ": "dpop+jwt", "jwk": public})


def request_headers(login: Login, method: str, url: URL | str, nonce: str | None = None) -> dict[str, str]:
    """Authorization headers of a request to the MCP server: bearer token, or DPoP token with its proof."""
    token = login.token.access_token
    if login.dpop_key is None or login.token.token_type != "DPoP":  # noqa: S105 - a kind of token
        return {"Authorization": f"Bearer {token}"}
    made = proof(login.dpop_key, method, url, access_token=token, nonce=nonce)
    return {"Authorization": f"DPoP {token}", "DPoP": made}
