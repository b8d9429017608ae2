"""What the other processes do in these tests. Run as a program: a verb, the store's path, arguments."""

import contextlib
import itertools
import sys
import time
from pathlib import Path

import anyio

from fairlead.config.store_location import KEY_VARIABLE, RedisLocation, StoreLocation
from fairlead.errors import FairleadError, LockLost, StoreError
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY, update


def command(verb: str, path: StoreLocation, *arguments: str) -> list[str]:
    """The command line that has another process do something."""
    return [sys.executable, __file__, verb, _name(path), *arguments]


def _name(location: StoreLocation) -> str:
    """A location as one argument; a Redis of the tests has its key there, too."""
    if isinstance(location, RedisLocation):
        return f"{location.template} {location.env[KEY_VARIABLE]}"
    return str(location)


def _location(name: str) -> StoreLocation:
    url, _, key = name.partition(" ")
    return RedisLocation(template=url, env={KEY_VARIABLE: key}) if key else Path(name)


def say(*words: object) -> None:
    """One line for the parent, at once."""
    print(*words, flush=True)  # noqa: T201 - this is how children answer


def put(path: StoreLocation, key: str) -> None:
    with open_database(path) as database:
        database.put("children", key, b"", expect=ANY)


def put_when_told(path: StoreLocation, key: str) -> None:
    say("ready")
    sys.stdin.read()
    put(path, key)


def keys(path: StoreLocation) -> None:
    with open_database(path) as database:
        for stored in database.scan("children"):
            say(stored.key)


def explain(path: StoreLocation) -> None:
    try:
        put(path, "explain")
    except FairleadError as exc:
        say(f"error: {exc}\nhint: {exc.hint}")


def fill(path: StoreLocation) -> None:
    """Put values until the disk is full, then see whether all of them can be read."""
    stored: list[str] = []
    with open_database(path) as database:
        try:
            for number in range(1000):
                database.put("children", f"{number:04}", bytes(10_000), expect=None)
                stored.append(f"{number:04}")
        except StoreError as exc:
            say(exc)
    with open_database(path) as database:
        if stored and [value.key for value in database.scan("children")] == stored:
            say("all there")


def put_forever(path: StoreLocation) -> None:
    """Put one value after the other, and say the number of each once it is stored."""
    with open_database(path) as database:
        for number in itertools.count():
            database.put("children", f"{number:06}", str(number).encode() * 100, expect=None)
            say(number)


async def increment(path: StoreLocation, times: str) -> None:
    """Count up one shared value without a lock."""
    async with AsyncStore.open(path) as store:
        for _ in range(int(times)):
            await update(store, "children", "count", lambda value: str(int(value or b"0") + 1).encode())


async def increment_locked(path: StoreLocation, times: str) -> None:
    """Count up one shared value that only the lock protects."""
    async with AsyncStore.open(path) as store:
        for _ in range(int(times)):
            async with store.lock("count", wait_seconds=60):
                found = await store.get("children", "count")
                value = int(found.value) if found else 0
                await store.put("children", "count", str(value + 1).encode(), expect=ANY)


async def hold(path: StoreLocation, lease_seconds: str) -> None:
    """Hold a lock until the parent says something, then write under it."""
    async with AsyncStore.open(path) as store:
        try:
            async with store.lock("shared", lease_seconds=float(lease_seconds)) as lease:
                say("held", lease.token)
                # Shielded, to reach the write although the lock was lost: this one does not listen.
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(sys.stdin.readline)
                    with contextlib.suppress(LockLost):
                        await store.put("children", "held", b"", expect=ANY, fence=lease)
                        say("written")
        except LockLost:
            say("lost")
        else:
            say("kept")


async def append_forever(path: StoreLocation) -> None:
    """Append records, and say when each was."""
    async with AsyncStore.open(path) as store:
        for number in itertools.count():
            store.append("children", str(number).encode())
            say(time.monotonic())
            await anyio.sleep(0.001)


async def echo(path: StoreLocation) -> None:
    """Publish to `answers`, in capitals, what is published to `questions`."""
    async with AsyncStore.open(path) as store, store.subscribe("questions") as messages:
        say("ready")
        async for payload in messages:
            assert payload is not None
            await store.publish("answers", payload.upper())


if __name__ == "__main__":
    verb, path, *arguments = sys.argv[1:]
    if verb in ("put", "put_when_told", "keys", "explain", "fill", "put_forever"):
        globals()[verb](_location(path), *arguments)
    else:
        anyio.run(globals()[verb], _location(path), *arguments)
