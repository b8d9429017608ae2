"""What is asked of other replicas: one that does not answer holds up neither the others nor its own twice."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import anyio
import pytest

from fairlead.errors import StoreUnavailable
from fairlead.gateway.cluster.forwarding import Forwarder
from fairlead.gateway.cluster.peer_client import PeerClient, PeerUnreachable
from fairlead.gateway.cluster.replica_keys import PeerSignatures
from fairlead.gateway.cluster.replicas import Replica, ReplicaDirectory
from tests.gateway.cluster.cluster_support import KEYS, replicas
from tests.gateway.support import Raw, until
from tests.host.asking import AskingServer

OWN, HUNG, HEALTHY, UNKNOWN = ("0" * 16, "1" * 16, "2" * 16, "3" * 16)


class _Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class _Directory(ReplicaDirectory):
    """Replicas whose leases ended while the store is away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.alive: list[str] = []

    def known(self, replica_id: str) -> Replica | None:
        return self.last_known(replica_id) if replica_id in self.alive else None

    def last_known(self, replica_id: str) -> Replica | None:
        if replica_id == UNKNOWN:
            return None
        return Replica(id=replica_id, address="http://127.0.0.1:9", version="1", started=0.0)

    async def find(self, replica_id: str) -> Replica | None:
        self.asked.append(replica_id)
        raise StoreUnavailable("it is away")

    def note_alive(self, replica_id: str) -> None:
        self.alive.append(replica_id)


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def forwarder_of(directory: ReplicaDirectory, clock: Callable[[], float]) -> Forwarder:
    return Forwarder(directory, PeerSignatures(KEYS.peers, OWN), lambda: None, clock=clock)


async def test_a_replica_that_hangs_holds_up_no_other_and_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, clock: _Clock
) -> None:
    directory = _Directory()
    forwarder = forwarder_of(directory, clock)
    greeted: list[str] = []
    gave_up = anyio.Event()

    async def greet(self: PeerClient, replica: Replica) -> None:
        greeted.append(replica.id)
        if replica.id == HUNG:
            await gave_up.wait()
            raise PeerUnreachable("it does not answer")

    monkeypatch.setattr(PeerClient, "greet", greet)
    failed: list[str] = []

    async def find(replica_id: str) -> None:
        try:
            await forwarder.find(replica_id)
        except (PeerUnreachable, StoreUnavailable) as exc:
            failed.append(str(exc))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(find, HUNG)
            while not greeted:
                await anyio.lowlevel.checkpoint()
            found = await forwarder.find(HEALTHY)  # while the other one is waited for
            assert found is not None
            gave_up.set()
    assert failed == ["it does not answer"] * 20
    assert greeted == [HUNG, HEALTHY]
    # It is tried again a little later.
    clock.now += 1.5
    await find(HUNG)
    assert greeted == [HUNG, HEALTHY, HUNG]
    # Nor is the store asked for each request of an owner that it alone could know.
    for _ in range(5):
        await find(UNKNOWN)
    assert directory.asked.count(UNKNOWN) == 1
    assert failed[-5:] == ["the store does not answer"] * 5


@pytest.mark.parametrize("seconds", [-3600.0, -45.0, 45.0, 3600.0])
async def test_a_session_of_a_replica_whose_clock_is_wrong_is_not_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    server = AskingServer(tmp_path / "record", tools=["echo"])
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        owner, other = served
        for each in served:
            await until(lambda each=each: len(each.cluster.directory.living()) == 2)
        client = Raw(http, f"{owner.url}/mcp")
        await client.begin()
        client.url = f"{other.url}/mcp"
        signatures = other.cluster._signatures  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(signatures, "_clock", lambda: time.time() + seconds)
        other.cluster.forwarder.peers.close()
        refused = json.dumps(await client.older("tools/list"))
        assert "its clock and this one differ by" in refused
        assert "not_sent" in refused
        monkeypatch.undo()
        listed = await client.older("tools/list")
        assert "a_echo" in {tool["name"] for tool in listed["result"]["tools"]}


def test_a_date_that_is_none_says_nothing_of_a_clock() -> None:
    signatures = PeerSignatures(KEYS.peers, OWN, clock=lambda: 1_000_000.0)
    assert signatures.seconds_from(b"Mon, 12 Jan 1970 13:46:50 GMT") == 10
    for text in (b"", b"now", b"\xff" * 100, b"Mon, 99 Foo 99999 99:99:99 GMT", b"1" * 5000):
        assert signatures.seconds_from(text) == 0
