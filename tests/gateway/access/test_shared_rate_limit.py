"""A rate limit of all replicas: each takes grants from one bucket in their store."""

from pathlib import Path

import anyio
import anyio.lowlevel

from fairlead.gateway.access.rate_limit import SharedRateLimit
from fairlead.store.async_store import AsyncStore


async def test_requests_at_once_share_the_grant_that_the_first_of_them_takes(tmp_path: Path) -> None:
    async with AsyncStore.open(tmp_path / "store.db") as store:
        limit = SharedRateLimit(500, store)
        waits: list[int | None] = []

        async def take() -> None:
            waits.append(await limit.take("hasty"))

        with anyio.fail_after(60):
            for _ in range(2):
                async with anyio.create_task_group() as tasks:
                    for _ in range(100):
                        tasks.start_soon(take)
        assert waits == [None] * 200
        # The rest is for other replicas.
        assert (await store.take_tokens("hasty", per_minute=500, wanted=1)).left >= 250


async def test_requests_that_wait_for_a_grant_outlive_the_one_that_takes_it(tmp_path: Path) -> None:
    async with AsyncStore.open(tmp_path / "store.db") as store:
        limit = SharedRateLimit(500, store)
        waits: list[int | None] = []

        async def take() -> None:
            waits.append(await limit.take("hasty"))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as others, anyio.create_task_group() as first:
                first.start_soon(take)
                await anyio.lowlevel.checkpoint()
                others.start_soon(take)
                await anyio.lowlevel.checkpoint()
                first.cancel_scope.cancel()
        assert waits == [None]
