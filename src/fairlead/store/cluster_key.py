"""Cluster key: encrypts all that is kept in a shared store, and derives further keys for its replicas.

A sealed value is AES-256-GCM, bound to its place in the store, so that one moved elsewhere does not open.
Each process encrypts under a key of its own, derived with a random salt that stands in front of the value:
its nonces are a counter and never repeat, however many values there are. There may be several cluster keys:
the first seals, all of them open, which is what rotation needs.
"""

import base64
import binascii
import hashlib
import hmac
import itertools
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fairlead.config.store_location import KEY_HINT
from fairlead.errors import StoreError

PREFIX: Final = "flkey_"
_KEY_BYTES: Final = 32
_FORMAT: Final = b"\x01"
_ID_BYTES: Final = 4
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_COUNTER_BYTES: Final = 8
_HEAD_BYTES: Final = 1 + _ID_BYTES + _SALT_BYTES + _COUNTER_BYTES


def new_cluster_key() -> str:
    """Make a cluster key: 256 random bits as text."""
    return PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode().rstrip("=")


def _decode_key(text: str) -> bytes:
    try:
        key = base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "==")
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(PREFIX) or len(key) != _KEY_BYTES:
        # A passphrase could be guessed by those who have a copy of the store.
        raise StoreError("the cluster key is not one that Fairlead made", hint=KEY_HINT)
    return key


class ClusterKeys:
    """The cluster keys of a store: seals and opens values, and derives keys for other purposes.

    Args:
        texts: The keys as text; the first is the current one.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        keys = [_decode_key(text) for text in texts]
        self._current = keys[0]
        self._by_id = {_id_of(key): key for key in keys}
        salt = secrets.token_bytes(_SALT_BYTES)
        self._head = _FORMAT + _id_of(self._current) + salt
        self._cipher = AESGCM(_derive(self._current, b"values", salt))
        self._counter = itertools.count()
        self._opener = lru_cache(maxsize=1024)(self._make_opener)

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Encrypt a value for a place in the store."""
        # Counted: the key is derived with a salt of this process, so that no other one uses a nonce with it.
        # The place is authenticated, so that no value can be moved or copied to another one.
        nonce = next(self._counter).to_bytes(_NONCE_BYTES, "big")
        return self._head + nonce[-_COUNTER_BYTES:] + self._cipher.encrypt(nonce, value, place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Decrypt a value from a place. Raises `StoreError` where it was not sealed for that place."""
        salt_end = 1 + _ID_BYTES + _SALT_BYTES
        opener = self._opener(sealed[:salt_end]) if len(sealed) >= _HEAD_BYTES else None
        if opener is None:
            raise StoreError("a value of the store was encrypted with another cluster key", hint=KEY_HINT)
        nonce = sealed[salt_end:_HEAD_BYTES].rjust(_NONCE_BYTES, b"\0")
        try:
            return opener.decrypt(nonce, sealed[_HEAD_BYTES:], place)
        except InvalidTag:
            raise StoreError(
                "a value of the store was changed by another program than Fairlead",
                hint="find out who else writes to this Redis; then restore a backup",
            ) from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether a value is sealed with the first of the keys."""
        return sealed[1 : 1 + _ID_BYTES] == _id_of(self._current)

    def derive(self, purpose: str) -> list[bytes]:
        """Keys for a purpose, one of each cluster key in their order: for what is not kept in the store."""
        return [_derive(key, purpose.encode(), None) for key in self._by_id.values()]

    def _make_opener(self, head: bytes) -> AESGCM | None:
        key = self._by_id.get(head[1 : 1 + _ID_BYTES])
        if key is None or head[:1] != _FORMAT:
            return None
        return AESGCM(_derive(key, b"values", head[1 + _ID_BYTES :]))


def _derive(key: bytes, purpose: bytes, salt: bytes | None) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=salt, info=b"fairlead " + purpose).derive(key)


def _id_of(key: bytes) -> bytes:
    return hmac.digest(key, b"fairlead key id", hashlib.sha256)[:_ID_BYTES]
