"""Keys that all replicas of one gateway have, and how replicas authenticate themselves to each other.

A request that one replica sends to another has a signature in the header `Fairlead-Replica`. It says which
replica it is for, which it is from, when it was made and which address its client has, and is bound to the
request's method, target, token and session. The client's own token goes along: a signature lets no one in.
Each is accepted once: what was recorded on the way between replicas cannot be sent again.
"""

import hmac
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fairlead.store.cluster_key import ClusterKeys

REPLICA_HEADER: Final = b"fairlead-replica"
"""The header that only replicas send."""
PAGE_HOST: Final = b"fairlead-page-host"
PAGE_ORIGIN: Final = b"fairlead-page-origin"
"""The `Host` and `Origin` of a browser's request that one replica forwards to another."""
SIGNATURE_SECONDS: Final = 30.0
"""How old a signature may be, and how far the clocks of two machines may differ."""

_FORMAT: Final = b"2"
_PURPOSE: Final = "replicas"
_MAX_HEADER_BYTES: Final = 512
_WINDOW: Final = 65_536
"""How many requests of a replica may overtake one that it signed before them."""
_FORGOTTEN_SECONDS: Final = 3 * SIGNATURE_SECONDS
"""When the numbers of a replica that sends nothing are forgotten: its signatures are too old by then."""
_SIGNED_HEADERS: Final = (
    b"authorization",
    b"mcp-session-id",
    b"content-length",
    PAGE_HOST,
    PAGE_ORIGIN,
)
"""The headers that would make another request of a signed one."""


@dataclass(frozen=True, slots=True)
class ReplicaKeys:
    """Keys derived from each secret that the replicas share: the first is used, all are accepted."""

    session_ids: tuple[bytes, ...]
    """For sealing session ids: 32 bytes each."""
    peers: tuple[bytes, ...]
    """For authentication between replicas: 32 bytes each."""
    names: tuple[bytes, ...] = ()
    """For names in the store that are made from a secret, such as a cookie: 32 bytes each."""

    @classmethod
    def derive(cls, secrets: Sequence[bytes]) -> "ReplicaKeys":
        """Derive the keys from secrets of at least 32 random bytes, the current one first."""
        assert secrets, "replicas share a secret"
        return cls(
            session_ids=tuple(_derive(secret, b"session ids") for secret in secrets),
            peers=tuple(_derive(secret, b"peers") for secret in secrets),
            names=tuple(_derive(secret, b"names") for secret in secrets),
        )

    @classmethod
    def of_cluster(cls, keys: ClusterKeys) -> "ReplicaKeys":
        """Derive the keys from the cluster keys of a shared store."""
        return cls.derive(keys.derive(_PURPOSE))


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fairlead replica " + purpose).derive(secret)


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerRequest:
    """A request that a replica sent, whose signature was checked."""

    sender: str
    """The id of the replica that sent it."""
    client: tuple[str, int] | None
    """The address of the client that the request came from, where it came from one over TCP."""
    answer: bytes
    """What proves to the sender that this replica has the key, too."""
    is_repeated: bool = False
    """Whether a request with this signature came before: it may have been carried out then."""


class _SeenNumbers:
    """The numbers of one sender's requests that came, as a window below the highest."""

    __slots__ = ("_bits", "_highest", "used_at")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0
        self.used_at = 0.0

    def take(self, number: int) -> bool:
        """Take note of a number. False where it came before, or may have."""
        ahead = number - self._highest
        if ahead > 0:
            self._bits = (self._bits << ahead | 1) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 1
            self._highest = number
            return True
        if -ahead >= _WINDOW or self._bits >> -ahead & 1:
            return False
        self._bits |= 1 << -ahead
        return True


class PeerSignatures:
    """Signs the requests of one replica to others, and checks theirs.

    Args:
        keys: The keys for authentication between replicas; the first signs, all are accepted.
        replica_id: The id of this replica.
        clock: The time in seconds since 1970.
    """

    def __init__(
        self, keys: Sequence[bytes], replica_id: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = tuple(keys)
        self._id = replica_id.encode()
        self._clock = clock
        self._numbers = itertools.count()
        self._seen: dict[bytes, _SeenNumbers] = {}
        """Of each sender that sent anything lately: an id is new with each start of a process."""

    def sign(
        self,
        receiver: str,
        method: bytes,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        client: tuple[str, int] | None = None,
    ) -> tuple[bytes, bytes]:
        """Return the value of the header for a request to a replica, and the answer that it must come with.

        Args:
            receiver: The id of the replica that the request is for.
            method: Its method.
            target: Its path and query, as sent.
            headers: Its headers, names in lower case.
            client: The address of the client that the request came from.
        """
        address = f"{client[0]}/{client[1]}".encode() if client else b"-"
        stamp, number = b"%d" % int(self._clock() * 1000), b"%d" % next(self._numbers)
        said = b" ".join((_FORMAT, receiver.encode(), self._id, stamp, number, address))
        key = self._keys[0]
        signature = _signature(key, said, method, target, headers)
        return said + b" " + signature, _answer(key, signature)

    def seconds_from(self, date: bytes) -> float:
        """Return by how much the clock of who sent a `Date` header differs; 0 where it is none."""
        try:
            sent = parsedate_to_datetime(date.decode("latin-1")).timestamp()
        except (ValueError, OverflowError):
            return 0.0
        return abs(sent - self._clock())

    def check(
        self, value: bytes, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> PeerRequest | None:
        """Return what a signature says; None for one that is forged, too old, or for another replica."""
        if len(value) > _MAX_HEADER_BYTES:
            return None
        said, _, signature = value.rpartition(b" ")
        parts = said.split(b" ")
        if len(parts) != 6 or parts[0] != _FORMAT or parts[1] != self._id:
            return None
        for key in self._keys:
            # Compared in constant time, before anything that it says is believed.
            if hmac.compare_digest(signature, _signature(key, said, method, target, headers)):
                break
        else:
            return None
        # Before its age, and only once it is known to be genuine: one that came before is no new request.
        is_repeated = not self._take_number(parts[2], int(parts[4]))
        if not is_repeated and abs(self._clock() - int(parts[3]) / 1000) > SIGNATURE_SECONDS:
            return None
        host, slash, port = parts[5].decode().rpartition("/")
        return PeerRequest(
            sender=parts[2].decode(),
            client=(host, int(port)) if slash else None,
            answer=_answer(key, signature),
            is_repeated=is_repeated,
        )

    def _take_number(self, sender: bytes, number: int) -> bool:
        now, seen = time.monotonic(), self._seen.get(sender)
        if seen is None:
            kept = self._seen.items()
            self._seen = {name: each for name, each in kept if now - each.used_at < _FORGOTTEN_SECONDS}
            seen = self._seen[sender] = _SeenNumbers()
        seen.used_at = now
        return seen.take(number)


def _signature(
    key: bytes, said: bytes, method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    # Every header of a name counts, with its length, so that no two requests have the same bytes.
    framed = b"%d:%b%d:%b%d:%b" % (len(said), said, len(method), method, len(target), target)
    for name, value in headers:
        if name in _SIGNED_HEADERS:
            framed += b"%d:%b%d:%b" % (len(name), name, len(value), value)
    return hmac.digest(key, framed, "sha256").hex().encode()


def _answer(key: bytes, signature: bytes) -> bytes:
    return hmac.digest(key, b"answer " + signature, "sha256").hex().encode()
