"""Many processes on one store: nothing is lost, whoever dies or sleeps."""

import contextlib
import signal
import time
from collections.abc import AsyncGenerator

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.store import children

from fairlead.config.store_location import StoreLocation
from fairlead.errors import LockBusy
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database

PATIENCE = 60.0
"""Far more than anything here takes, even on a busy machine."""


class Child:
    """A process of ours that says things line by line."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def hear(self) -> str:
        return (await self._lines.receive_until(b"\n", 1000)).decode()

    async def hear_the_rest(self) -> list[str]:
        text = b""
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                text += await self._lines.receive()
        return text.decode().split("\n")[:-1]  # the last line may be torn

    async def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(text.encode() + b"\n")

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def child(verb: str, path: StoreLocation, *arguments: str) -> AsyncGenerator[Child]:
    process = await anyio.open_process(children.command(verb, path, *arguments), stderr=None)
    async with process:
        try:
            with anyio.fail_after(PATIENCE):
                yield Child(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def run_ten(verb: str, path: StoreLocation, times: int) -> None:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(anyio.run_process, children.command(verb, path, str(times)))


async def count_of(path: StoreLocation) -> int:
    async with AsyncStore.open(path) as store:
        stored = await store.get("children", "count")
    return int(stored.value) if stored else 0


async def test_no_increment_of_ten_racing_processes_is_lost(location: StoreLocation) -> None:
    await run_ten("increment", location, 20)
    assert await count_of(location) == 200


async def test_only_one_of_ten_processes_is_ever_inside_a_lock(location: StoreLocation) -> None:
    await run_ten("increment_locked", location, 5)
    assert await count_of(location) == 50


async def test_the_lock_of_a_killed_holder_is_free_when_its_lease_ends(location: StoreLocation) -> None:
    async with AsyncStore.open(location) as store, child("hold", location, "1") as holder:
        _, token = (await holder.hear()).split()
        with pytest.raises(LockBusy, match="shared"):
            async with store.lock("shared", wait_seconds=0):
                pass
        await holder.kill()
        async with store.lock("shared", wait_seconds=PATIENCE) as lease:
            assert lease.token > int(token)


async def test_a_living_holder_keeps_its_lock_past_the_lease(location: StoreLocation) -> None:
    async with AsyncStore.open(location) as store, child("hold", location, "2") as holder:
        assert (await holder.hear()).startswith("held")
        with pytest.raises(LockBusy):
            async with store.lock("shared", wait_seconds=2.5):
                pass
        await holder.tell("go on")
        assert [await holder.hear(), await holder.hear()] == ["written", "kept"]
        async with store.lock("shared", wait_seconds=PATIENCE):
            pass


async def test_a_paused_holder_loses_its_lock_and_cannot_write_under_it(location: StoreLocation) -> None:
    async with AsyncStore.open(location) as store, child("hold", location, "1") as holder:
        assert (await holder.hear()).startswith("held")
        holder.send_signal(signal.SIGSTOP)
        async with store.lock("shared", wait_seconds=PATIENCE):
            holder.send_signal(signal.SIGCONT)
            await holder.tell("go on")
            assert await holder.hear() == "lost"
        assert await store.get("children", "held") is None


async def test_a_holder_paused_while_nobody_wants_the_lock_keeps_it(location: StoreLocation) -> None:
    async with AsyncStore.open(location) as store, child("hold", location, "0.1") as holder:
        assert (await holder.hear()).startswith("held")
        holder.send_signal(signal.SIGSTOP)
        await anyio.sleep(0.2)  # the lease, not a rendezvous
        holder.send_signal(signal.SIGCONT)
        await holder.tell("go on")
        assert [await holder.hear(), await holder.hear()] == ["written", "kept"]
        assert await store.get("children", "held") is not None


@pytest.mark.requirement("HARD-8")
async def test_everything_acknowledged_survives_a_kill_in_the_middle(location: StoreLocation) -> None:
    acknowledged = -1
    for _ in range(4):
        async with child("put_forever", location) as writer:
            for _ in range(25):
                await writer.hear()
            await writer.kill()
            acknowledged = int((await writer.hear_the_rest() or ["24"])[-1])
        with open_database(location) as database:
            stored = database.scan("children")
            assert len(stored) >= acknowledged + 1
            assert [value.value for value in stored] == [str(n).encode() * 100 for n in range(len(stored))]
            for value in stored:
                database.delete("children", value.key, expect=value.version)


async def test_records_appended_before_a_kill_are_on_disk_but_for_the_last_moment(
    location: StoreLocation,
) -> None:
    moment = 1.0  # of which the store needs a twentieth; the rest is for a busy machine
    async with child("append_forever", location) as writer:
        appended = [float(await writer.hear())]
        while appended[-1] < appended[0] + 1.5 * moment:
            appended.append(float(await writer.hear()))
        killed = time.monotonic()
        await writer.kill()
    with open_database(location) as database:
        records = database.read_log("children", limit=1_000_000)
    assert [int(record.value) for record in records] == list(range(len(records)))
    assert len(records) >= sum(when < killed - moment for when in appended)


async def test_messages_reach_other_processes_and_come_back(location: StoreLocation) -> None:
    async with (
        AsyncStore.open(location) as store,
        store.subscribe("answers") as answers,
        child("echo", location) as peer,
    ):
        assert await peer.hear() == "ready"
        for number in range(5):
            await store.publish("questions", f"question {number}".encode())
            assert await anext(answers) == f"QUESTION {number}".encode()
