"""Signatures of ours: keys, and the tokens they sign."""

import secrets
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def read_key(pem: str) -> PrivateKey:
    """Read a private key. `ValueError` says, without showing any of it, that it is none we can use."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as exc:
        raise ValueError("it is no unencrypted PEM key") from exc
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
    """The algorithm a key is for, where nobody says."""
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"


def signed(
    claims: dict[str, Any], key: PrivateKey, algorithm: str, headers: dict[str, Any] | None = None
) -> str:
    """Sign claims, with what makes them unique and dates them."""
    dated = {"iat": int(time.time()), "jti": secrets.token_urlsafe(16), **claims}
    return jwt.encode(dated, key, algorithm=algorithm, headers=headers)
