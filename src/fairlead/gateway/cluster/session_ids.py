"""Sealed session ids: an `Mcp-Session-Id` that says which replica owns the session, to replicas alone.

An id is AES-256-GCM over the owner, a digest of principal and bundle, and a random part. Every replica that
has the key knows whose it is without a look-up; one that was made up, changed or made with another key does
not open. The owner still looks the session up, and compares principal, groups and token.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.replicas import REPLICA_ID_BYTES

RANDOM_BYTES: Final = 16
UNKNOWN_SESSION: Final = RequestRefused(
    status=404,
    headers={"Content-Type": "application/json"},
    body=b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,'
    b'"message":"unknown session: send `initialize` again"}}',
)
"""The answer to a request whose session is not there, or not its sender's."""

_PREFIX: Final = "fl1_"
"""Says what it is, and in which format."""
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HOLDER_BYTES: Final = 16
_SEALED_BYTES: Final = _NONCE_BYTES + REPLICA_ID_BYTES + _HOLDER_BYTES + RANDOM_BYTES + _TAG_BYTES
_MAX_OPENED: Final = 4096
_TEXT: Final = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{{_SEALED_BYTES * 4 // 3}}}[AEIMQUYcgkosw048]", re.ASCII)
"""An id has one spelling: the last character stands for four bits, and its other two are zero."""


@dataclass(frozen=True, slots=True)
class SealedSession:
    """Content of a sealed session id."""

    owner: str
    """The id of the replica that has the session."""
    random: bytes
    """What tells it from the other sessions of its owner."""


class SessionIds:
    """Seals session ids of one replica, and opens those of all.

    Args:
        keys: The keys for session ids; the first seals, all open.
        replica_id: The id of this replica, which owns the sessions that it seals ids of.
    """

    def __init__(self, keys: Sequence[bytes], replica_id: str) -> None:
        self._ciphers = [AESGCM(key) for key in keys]
        self._owner = bytes.fromhex(replica_id)
        self._opened: dict[tuple[str, str, str | None], SealedSession] = {}
        """Ids that opened, by all that decides about that: each request of a session names the same one."""

    def seal(self, principal: str, bundle: str | None, random: bytes | None = None) -> str:
        """Return an id for a session of a principal at the endpoint of a bundle.

        Args:
            principal: Whose session it is.
            bundle: The bundle of the endpoint; None for the one of all servers.
            random: What tells it from others, where there is such a thing: `RANDOM_BYTES`.
        """
        # A random nonce: all replicas seal with the same key, and have no counter in common.
        nonce = secrets.token_bytes(_NONCE_BYTES)
        said = self._owner + _holder(principal, bundle) + (random or secrets.token_bytes(RANDOM_BYTES))
        sealed = nonce + self._ciphers[0].encrypt(nonce, said, _PREFIX.encode())
        return _PREFIX + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, session_id: str, principal: str, bundle: str | None) -> SealedSession | None:
        """Return what an id says; None where it was not made by a replica for this principal and bundle."""
        key = session_id, principal, bundle
        if (known := self._opened.get(key)) is not None:
            return known
        said = self._decrypt(session_id)
        if said is None:
            return None
        holder = said[REPLICA_ID_BYTES : REPLICA_ID_BYTES + _HOLDER_BYTES]
        if not hmac.compare_digest(holder, _holder(principal, bundle)):
            return None
        opened = SealedSession(said[:REPLICA_ID_BYTES].hex(), said[REPLICA_ID_BYTES + _HOLDER_BYTES :])
        # Only what opened is remembered, so that ids which were made up take no memory.
        if len(self._opened) >= _MAX_OPENED:
            self._opened.clear()
        self._opened[key] = opened
        return opened

    def _decrypt(self, session_id: str) -> bytes | None:
        if not _TEXT.fullmatch(session_id):
            return None
        try:
            sealed = base64.urlsafe_b64decode(session_id.removeprefix(_PREFIX) + "==")
        except binascii.Error:
            return None
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _PREFIX.encode())
            except InvalidTag:
                continue
        return None


def _holder(principal: str, bundle: str | None) -> bytes:
    # With its length in front, no principal and bundle together spell another principal.
    place = "" if bundle is None else f"/{bundle}"
    return hashlib.sha256(f"{len(principal)}:{principal}{place}".encode()).digest()[:_HOLDER_BYTES]
