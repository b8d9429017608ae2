"""Proof that who redeems a code is who asked for it (RFC 7636), and states that tell answers apart."""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Pkce:
    """A secret, and what may be shown of it beforehand. The method is always S256."""

    verifier: str = field(repr=False)

    @property
    def challenge(self) -> str:
        """What goes into the authorization request."""
        return base64url(hashlib.sha256(self.verifier.encode()).digest())


def new_pkce() -> Pkce:
    """Make a secret for one authorization request."""
    return Pkce(verifier=secrets.token_urlsafe(64))


def new_state() -> str:
    """Make a state for one authorization request. It is good for one answer."""
    return secrets.token_urlsafe(32)


def base64url(data: bytes) -> str:
    """Encode as JOSE and PKCE want it: without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
