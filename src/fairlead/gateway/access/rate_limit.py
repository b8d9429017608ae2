"""Token-bucket rate limit per principal."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

_MAX_KEPT = 10_000


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

    def take(self, principal: str) -> int | None:
        """Count a request. Returns the seconds to wait where there were too many, else None."""
        if self._per_minute is None:
            return None
        now = self._clock()
        bucket = self._buckets.get(principal)
        if bucket is None:
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
