"""Token-bucket rate limit per principal: of one gateway, or of all replicas that share a store."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from fairlead.errors import StoreError
from fairlead.store.protocol import Store

_MAX_KEPT = 10_000
GRANTS_PER_MINUTE = 50
"""A replica takes a fiftieth of a minute's requests at a time from the bucket that all share."""
GRANT_SECONDS = 5.0
"""How long a replica may use a grant: what an idle one has left over is lost to its principal."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimit:
    """Token bucket per principal: a number of requests a minute, and as many at once. None for no limit."""

    def __init__(self, per_minute: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    async def take(self, principal: str) -> int | None:
        """Count a request. Returns the seconds to wait where there were too many, else None."""
        if self._per_minute is None:
            return None
        now = self._clock()
        bucket = self._buckets.get(principal)
        if bucket is None:
            # Principals come with the tokens of an issuer, so that their number has no limit of its own.
            self._forget(now)
            bucket = self._buckets[principal] = _Bucket(float(self._per_minute), now)
        bucket.left = self._refill(bucket, now)
        bucket.at = now
        if bucket.left < 1:
            return max(1, math.ceil((1 - bucket.left) * 60 / self._per_minute))
        bucket.left -= 1
        return None

    def _refill(self, bucket: _Bucket, now: float) -> float:
        per_minute = self._per_minute or 0
        return min(per_minute, bucket.left + (now - bucket.at) * per_minute / 60)

    def _forget(self, now: float) -> None:
        """Drop buckets that are full again: they say nothing that a new one would not."""
        if len(self._buckets) >= _MAX_KEPT:
            full = float(self._per_minute or 0)
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if self._refill(bucket, now) < full
            }


@dataclass(slots=True)
class _LocalGrant:
    left: int
    ends: float


class SharedRateLimit(RateLimit):
    """The same over all replicas: each takes small grants from one bucket in their store.

    While the store does not answer, each replica goes by a bucket of its own.
    """

    def __init__(self, per_minute: int, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(per_minute, clock=clock)
        self._rate = per_minute
        self._store = store
        self._time = clock
        self._grants: dict[str, _LocalGrant] = {}
        self._taking: dict[str, anyio.Event] = {}
        """Set when the grant is there that one request of a principal takes for all that wait."""
        self._is_away = False

    async def take(self, principal: str) -> int | None:
        """Count a request. Returns the seconds to wait where there were too many, else None."""
        while True:
            if self._use_grant(principal):
                return None
            if (taking := self._taking.get(principal)) is None:
                break
            await taking.wait()
        # One at a time: a grant for each of many requests at once would soon be all that there is.
        taken = self._taking[principal] = anyio.Event()
        try:
            return await self._take_grant(principal)
        finally:
            del self._taking[principal]
            taken.set()

    def _use_grant(self, principal: str) -> bool:
        """Take a token of the grant that this replica has, if one is left."""
        grant = self._grants.get(principal)
        if grant is None or grant.left <= 0 or self._time() >= grant.ends:
            return False
        grant.left -= 1
        return True

    async def _take_grant(self, principal: str) -> int | None:
        """Take another grant, and a token of it."""
        wanted = max(1, self._rate // GRANTS_PER_MINUTE)
        try:
            taken = await self._store.take_tokens(principal, per_minute=self._rate, wanted=wanted)
        except StoreError:
            if not self._is_away:
                logger.warning("rate limits are counted by each replica alone", exc_info=True)
            self._is_away = True
            return await super().take(principal)
        self._is_away = False
        if not taken.granted:
            return max(1, math.ceil((1 - taken.left) * 60 / self._rate))
        if len(self._grants) >= _MAX_KEPT:
            self._grants.clear()
        self._grants[principal] = _LocalGrant(left=taken.granted - 1, ends=self._time() + GRANT_SECONDS)
        return None
