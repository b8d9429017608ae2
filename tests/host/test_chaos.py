"""Calls, crashes, closes and reloads all at once: whatever happens, it is one of our errors, and it ends."""

import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from fairlead.errors import FairleadError
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting, is_running, unasked

STEPS, TASKS = 12, 6
STUCK_SECONDS = 7


@pytest.mark.requirement("HARD-21", "NEED-6")
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_at_once_ends_well(
    machine: Machine, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.connection.deadlines.FIRST_SECONDS", 0.01)
    monkeypatch.setattr("fairlead.connection.deadlines.TRIES_BEFORE_OPEN", 1000)
    chance = random.Random(seed)
    server = ScriptedServer(tmp_path / "record")
    entries = [server.entry(), server.entry(env={"OTHER": "1"}), server.entry(idle_stop_ms=1)]
    configs = [machine.load(overrides=unasked({"x": entry})) for entry in entries]
    errors: set[type[FairleadError]] = set()

    def actions(host: Host) -> list[Callable[[], Awaitable[object]]]:
        return [
            lambda: host.call("x", "echo"),
            lambda: host.call("x", "echo"),
            lambda: host.call("x", "wait", request_timeout_ms=20),
            lambda: host.call("x", "announce", {"times": 3}),
            lambda: host.call("x", "crash"),
            lambda: host.connect("x"),
            lambda: host.tools_of("x"),
            lambda: host.close("x"),
            lambda: host.reload(chance.choice(configs)),
        ]

    async def act(host: Host) -> None:
        for _ in range(STEPS):
            try:
                with (
                    anyio.fail_after(STUCK_SECONDS),
                    anyio.move_on_after(chance.choice([0.01, 0.1, math.inf])),
                ):
                    await chance.choice(actions(host))()
            except FairleadError as exc:
                errors.add(type(exc))

    async with hosting(machine, x=entries[0]) as host:
        async with anyio.create_task_group() as tasks:
            for _ in range(TASKS):
                tasks.start_soon(act, host)
        await host.close("x")  # a crash that was called off may be on its way
        assert (await host.call("x", "echo")).text == "{}"
    assert errors
    assert not any(map(is_running, server.notes("started")))
