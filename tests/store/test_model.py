"""Any sequence of calls on two stores of one file does what a few dictionaries would do."""

import contextlib
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import anyio
import hypothesis.strategies as st
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.redis_server import RedisServer

from fairlead.config.store_location import StoreLocation
from fairlead.errors import LockBusy, LockLost, VersionConflict
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY, Expected, Lease, Store, StoredValue

T = TypeVar("T")

which = st.integers(0, 1)
namespaces = st.sampled_from(["pins", "tokens"])
keys = st.sampled_from(["a", "ab", "b", ""]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
values = st.binary(max_size=20)
beliefs = st.sampled_from(["anything", "nothing", "what is there", "something older"])
names = st.sampled_from(["refresh", "migrate"])
topics = st.sampled_from(["news", "weather"])
logs = st.sampled_from(["audit", "other"])


class StoreModel(RuleBasedStateMachine):
    """Two open stores, as two processes would have them, and what they should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        location = self.new_location()
        self.portal = self.stack.enter_context(start_blocking_portal())
        self.stores: list[Store] = [self.enter(AsyncStore.open(location)) for _ in range(2)]
        self.news = self.enter(self.stores[0].subscribe("news"))
        self.unread: deque[bytes] = deque()
        self.entries: dict[tuple[str, str], StoredValue] = {}
        self.highest_version = 0
        self.held: dict[str, tuple[contextlib.ExitStack, Lease]] = {}
        self.former: Lease | None = None
        self.highest_token = 0
        self.records: dict[str, list[bytes]] = {"audit": [], "other": []}

    def new_location(self) -> StoreLocation:
        """An empty store."""
        return Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "store.db"

    def teardown(self) -> None:
        for held, _ in self.held.values():
            held.close()
        self.stack.close()

    def enter(self, block: AbstractAsyncContextManager[T]) -> T:
        return self.stack.enter_context(self.portal.wrap_async_context_manager(block))

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        async def bounded() -> T:
            with anyio.fail_after(30):
                return await function()

        return self.portal.call(bounded)

    def version_for(self, belief: str, there: StoredValue | None) -> Expected:
        match belief:
            case "anything":
                return ANY
            case "nothing":
                return None
            case "what is there":
                return there.version if there else None
            case _:
                return there.version - 1 if there else self.highest_version

    @rule(store=which, namespace=namespaces, key=keys, value=values, belief=beliefs)
    def put(self, store: int, namespace: str, key: str, value: bytes, belief: str) -> None:
        there = self.entries.get((namespace, key))
        expect = self.version_for(belief, there)
        if expect is not ANY and expect != (there.version if there else None):
            with pytest.raises(VersionConflict):
                self.call(lambda: self.stores[store].put(namespace, key, value, expect=expect))
            return
        version = self.call(lambda: self.stores[store].put(namespace, key, value, expect=expect))
        assert version > self.highest_version
        self.highest_version = version
        self.entries[namespace, key] = StoredValue(key=key, value=value, version=version)

    @rule(store=which, namespace=namespaces, key=keys, belief=beliefs)
    def delete(self, store: int, namespace: str, key: str, belief: str) -> None:
        there = self.entries.get((namespace, key))
        expect = self.version_for(belief, there) or ANY
        if expect is not ANY and expect != (there.version if there else None):
            with pytest.raises(VersionConflict):
                self.call(lambda: self.stores[store].delete(namespace, key, expect=expect))
            return
        removed = self.call(lambda: self.stores[store].delete(namespace, key, expect=expect))
        assert removed == (there is not None)
        self.entries.pop((namespace, key), None)

    @rule(store=which, namespace=namespaces, key=keys)
    def read(self, store: int, namespace: str, key: str) -> None:
        found = self.call(lambda: self.stores[store].get(namespace, key))
        assert found == self.entries.get((namespace, key))
        scanned = self.call(lambda: self.stores[store].scan(namespace, key))
        matching = [place for place in self.entries if place[0] == namespace and place[1].startswith(key)]
        assert scanned == [self.entries[place] for place in sorted(matching)]

    @rule(store=which, name=names)
    def lock(self, store: int, name: str) -> None:
        lock = contextlib.ExitStack()
        block = self.portal.wrap_async_context_manager(self.stores[store].lock(name, wait_seconds=0))
        if name in self.held:
            with pytest.raises(LockBusy):
                lock.enter_context(block)
            return
        lease = lock.enter_context(block)
        assert lease.token > self.highest_token
        self.highest_token = lease.token
        self.held[name] = (lock, lease)

    @precondition(lambda self: self.held)
    @rule(store=which)
    def write_under_a_lock_and_release_it(self, store: int) -> None:
        _, (held, lease) = self.held.popitem()
        version = self.call(lambda: self.stores[store].put("pins", "a", b"held", expect=ANY, fence=lease))
        self.highest_version = version
        self.entries["pins", "a"] = StoredValue(key="a", value=b"held", version=version)
        held.close()
        self.former = lease

    @precondition(lambda self: self.former)
    @rule(store=which)
    def write_under_a_lock_that_was_released(self, store: int) -> None:
        with pytest.raises(LockLost):
            self.call(lambda: self.stores[store].put("pins", "a", b"", expect=ANY, fence=self.former))
        with pytest.raises(LockLost):
            self.call(lambda: self.stores[store].delete("pins", "a", expect=ANY, fence=self.former))

    @rule(store=which, topic=topics, payload=values)
    def publish(self, store: int, topic: str, payload: bytes) -> None:
        self.call(lambda: self.stores[store].publish(topic, payload))
        if topic == "news":
            self.unread.append(payload)

    @precondition(lambda self: self.unread)
    @rule()
    def hear(self) -> None:
        assert self.call(lambda: anext(self.news)) == self.unread.popleft()

    @rule(store=which, log=logs, values=st.lists(values, min_size=1, max_size=5))
    def append(self, store: int, log: str, values: list[bytes]) -> None:
        for value in values:
            self.portal.call(self.stores[store].append, log, value)
        self.call(self.stores[store].flush)
        self.records[log] += values

    @rule(store=which, log=logs, size=st.integers(1, 4))
    def read_log_in_pages(self, store: int, log: str, size: int) -> None:
        found: list[bytes] = []
        after = 0
        while page := self.call(partial(self.stores[store].read_log, log, after=after, limit=size)):
            sequences = [record.sequence for record in page]
            assert len(page) <= size
            assert [after, *sequences] == sorted({after, *sequences})
            found += [record.value for record in page]
            after = sequences[-1]
        assert found == self.records[log]

    @rule(store=which, log=logs, keep=st.integers(0, 4))
    def prune_log(self, store: int, log: str, keep: int) -> None:
        kept = self.records[log][max(0, len(self.records[log]) - keep) :]
        removed = self.call(lambda: self.stores[store].prune_log(log, keep=keep))
        assert removed == len(self.records[log]) - len(kept)
        self.records[log] = kept


class RedisStoreModel(StoreModel):
    """The same of a Redis, which is started once."""

    server: ClassVar[RedisServer | None] = None

    def new_location(self) -> StoreLocation:
        assert self.server is not None
        self.server.run("FLUSHALL")
        return self.server.location


class TestRedisStoreModel(RedisStoreModel.TestCase):
    """Runs the model where there is a Redis."""

    settings = settings(max_examples=25, stateful_step_count=30, deadline=None, database=None)

    @pytest.fixture(autouse=True)
    def _server(self, shared_redis: RedisServer) -> None:
        RedisStoreModel.server = shared_redis


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None, database=None)
