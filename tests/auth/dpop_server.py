"""The server's side of tokens that are bound to a key (RFC 9449): is this proof good, and whose is it?"""

import base64
import hashlib
import json
from typing import Any

import jwt


class DpopRefused(Exception):
    """The proof is missing or wrong; the text is the error code."""


def thumbprint_of_proof(proof: str, *, method: str, url: str, nonce: str, access_token: str = "") -> str:
    """Return the thumbprint of the key that made a good proof."""
    try:
        header: dict[str, Any] = jwt.get_unverified_header(proof)
        key = jwt.PyJWK(header["jwk"])
        claims: dict[str, Any] = jwt.decode(
            proof, key, algorithms=["ES256"], options={"require": ["jti", "htm", "htu", "iat"]}
        )
    except (jwt.InvalidTokenError, jwt.PyJWKError, KeyError) as exc:
        raise DpopRefused("invalid_dpop_proof") from exc
    if nonce and claims.get("nonce") != nonce:
        raise DpopRefused("use_dpop_nonce")
    hashed = _base64(hashlib.sha256(access_token.encode()).digest()) if access_token else None
    right = header.get("typ") == "dpop+jwt" and "d" not in header["jwk"] and claims.get("ath") == hashed
    if not right or (claims["htm"], claims["htu"]) != (method, url):
        raise DpopRefused("invalid_dpop_proof")
    members = {name: header["jwk"][name] for name in ("crv", "kty", "x", "y")}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return _base64(hashlib.sha256(text.encode()).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
