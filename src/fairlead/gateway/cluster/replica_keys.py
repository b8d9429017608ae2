"""Keys that all replicas of one gateway have: they seal session ids, and authenticate replicas to each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fairlead.store.cluster_key import ClusterKeys

_PURPOSE: Final = "replicas"


@dataclass(frozen=True, slots=True)
class ReplicaKeys:
    """Keys derived from each secret that the replicas share: the first is used, all are accepted."""

    session_ids: tuple[bytes, ...]
    """For sealing session ids: 32 bytes each."""
    peers: tuple[bytes, ...]
    """For authentication between replicas: 32 bytes each."""

    @classmethod
    def derive(cls, secrets: Sequence[bytes]) -> "ReplicaKeys":
        """Derive the keys from secrets of at least 32 random bytes, the current one first."""
        assert secrets, "replicas share a secret"
        return cls(
            session_ids=tuple(_derive(secret, b"session ids") for secret in secrets),
            peers=tuple(_derive(secret, b"peers") for secret in secrets),
        )

    @classmethod
    def of_cluster(cls, keys: ClusterKeys) -> "ReplicaKeys":
        """Derive the keys from the cluster keys of a shared store."""
        return cls.derive(keys.derive(_PURPOSE))


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fairlead replica " + purpose).derive(secret)
