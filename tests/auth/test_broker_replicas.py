"""Replicas with one Redis and one login: one of them refreshes it, and none while Redis is away."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from fairlead.auth.broker import Broker
from fairlead.auth.store_vault import StoreVault
from fairlead.errors import StoreUnavailable
from fairlead.store.async_store import AsyncStore
from fairlead.testing.fixtures import FakeClock
from tests.auth.issuing import Issuer, adopted, fresh
from tests.redis_server import RedisServer, redis_server

PATIENCE = 60.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def brokers(redis: RedisServer, issuer: Issuer, count: int = 3) -> AsyncGenerator[list[Broker]]:
    """The brokers of replicas, each with a connection of its own to the store."""
    with anyio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            found: list[Broker] = []
            for _ in range(count):
                store = await stack.enter_async_context(AsyncStore.open(redis.location))
                tasks = await stack.enter_async_context(anyio.create_task_group())
                vault = StoreVault(store)
                found.append(Broker(vault, store, issuer.renew, tasks, clock=issuer.clock))
            yield found


@pytest.mark.requirement("HARD-36")
async def test_an_expired_token_is_refreshed_once_over_all_replicas(redis: RedisServer) -> None:
    issuer = Issuer(FakeClock())
    async with brokers(redis, issuer) as replicas:
        login = await adopted(replicas[0], issuer, seconds=-1)
        issuer.gate = anyio.Event()
        tokens: list[str] = []

        async def use(broker: Broker) -> None:
            tokens.append(await fresh(broker, login.key))

        async with anyio.create_task_group() as tasks:
            for broker in replicas * 10:
                tasks.start_soon(use, broker)
            await issuer.reached.wait()
            issuer.gate.set()
        assert tokens == ["access 1"] * 30
        # A refusal of the old token at one of them is no reason to refresh the new one.
        for broker in replicas:
            assert await fresh(broker, login.key, refused="old access") == "access 1"
        assert len(issuer.asked) == 1


async def test_no_replica_refreshes_while_the_store_is_away(redis: RedisServer) -> None:
    issuer = Issuer(FakeClock())
    async with brokers(redis, issuer, 2) as replicas:
        login = await adopted(replicas[0], issuer, seconds=-1)
        redis.kill()
        for broker in replicas:
            with pytest.raises(StoreUnavailable):
                await fresh(broker, login.key)
        assert not issuer.asked
        redis.start()
        for broker in replicas:
            while True:
                try:
                    assert await fresh(broker, login.key) == "access 1"
                except StoreUnavailable:
                    issuer.clock.advance(1)  # it is tried again after a while
                    await anyio.sleep(0.02)
                else:
                    break
        assert len(issuer.asked) == 1
