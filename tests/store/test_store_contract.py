"""What every store does in an event loop: over SQLite and over Redis alike."""

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from fairlead.errors import LockBusy, VersionConflict
from fairlead.store.protocol import Store, lease_now, update

PATIENCE = 30.0


async def test_many_values_are_kept_in_one_write(any_store: Store) -> None:
    await any_store.put_all([("catalogs", str(number), b"") for number in range(3)])
    assert [found.key for found in await any_store.scan("catalogs")] == ["0", "1", "2"]


async def test_a_conflict_is_an_error_to_loop_on(any_store: Store) -> None:
    await any_store.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict):
        await any_store.put("pins", "github", b"two", expect=None)


async def test_concurrent_updates_of_one_value_all_count(any_store: Store) -> None:
    async def increment() -> None:
        await update(any_store, "counts", "calls", lambda value: str(int(value or b"0") + 1).encode())

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(increment)
    stored = await any_store.get("counts", "calls")
    assert stored is not None
    assert stored.value == b"20"


async def test_others_get_their_turn_while_a_long_log_is_pruned(any_store: Store) -> None:
    for number in range(5_000):
        any_store.append("audit", str(number).encode())
    await any_store.flush()
    removed: list[int] = []
    turns = 0

    async def prune() -> None:
        removed.append(await any_store.prune_log("audit", keep=7))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prune)
            while not removed:
                await any_store.get("pins", "github")  # as the renewal of a lease would
                turns += 1
    assert removed == [4_993]
    assert [int(record.value) for record in await any_store.read_log("audit")] == list(range(4_993, 5_000))
    assert turns > 5


async def test_a_lock_is_held_by_one_at_a_time(any_store: Store) -> None:
    inside = 0

    async def work() -> None:
        nonlocal inside
        async with any_store.lock("refresh", wait_seconds=PATIENCE):
            inside += 1
            assert inside == 1
            await anyio.lowlevel.checkpoint()
            inside -= 1

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(work)


async def test_waiting_for_a_lock_has_an_end(any_store: Store) -> None:
    async with any_store.lock("refresh"):
        with pytest.raises(LockBusy, match=r"held elsewhere for 0\.02 s"):
            async with any_store.lock("refresh", wait_seconds=0.02):
                pass
    async with any_store.lock("refresh", wait_seconds=0):
        pass


async def test_giving_up_the_wait_for_a_lock_leaves_nothing_behind(any_store: Store) -> None:
    async with any_store.lock("refresh"):
        with anyio.move_on_after(0.02) as scope:
            async with any_store.lock("refresh", wait_seconds=PATIENCE):
                pass
        assert scope.cancelled_caught
    async with any_store.lock("refresh", wait_seconds=0):
        pass


async def test_leaving_a_lock_by_cancellation_releases_it(any_store: Store) -> None:
    with anyio.move_on_after(0.02) as scope:
        async with any_store.lock("refresh"):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with any_store.lock("refresh", wait_seconds=0):
        pass


async def test_a_subscriber_waits_for_the_next_message(any_store: Store) -> None:
    heard: list[bytes | None] = []

    async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with any_store.subscribe("news") as news:
            task_status.started()
            heard.append(await anext(news))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(listen)
            await any_store.publish("news", b"one")
    assert heard == [b"one"]


async def test_a_subscription_ends_with_its_block(any_store: Store) -> None:
    async with any_store.subscribe("news") as news:
        pass
    await any_store.publish("news", b"late")
    with anyio.fail_after(PATIENCE):
        assert [payload async for payload in news] == []


async def test_the_holder_of_a_lock_learns_when_it_was_taken_and_renewed(any_store: Store) -> None:
    asked: list[float] = []
    began = lease_now()
    with anyio.fail_after(PATIENCE):
        async with any_store.lock("refresh", lease_seconds=1.0, wait_seconds=0, on_held=asked.append):
            assert len(asked) == 1
            while len(asked) < 3:  # noqa: ASYNC110 - the store calls back
                await anyio.sleep(0.01)
    assert began <= asked[0] < asked[1] < asked[2] <= lease_now()
