"""What a host tells of servers that it starts together."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import get_args

import anyio
import pytest

from fairlead.errors import ConnectFailed
from fairlead.events import Event, McpStartupComplete, McpStartupUpdate
from fairlead.host.events import Subscriber
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures.hostile_http import serving
from tests.host.support import SECONDS, hosting, unasked


async def start_of(
    events: AsyncIterator[Event],
) -> tuple[dict[str, list[McpStartupUpdate]], McpStartupComplete]:
    """The next start, to its end: what was told of each server, and in the end."""
    told: dict[str, list[McpStartupUpdate]] = {}
    async for event in events:
        if isinstance(event, McpStartupUpdate):
            told.setdefault(event.server_id, []).append(event)
        if isinstance(event, McpStartupComplete):
            return told, event
    raise AssertionError("the host was closed")


def statuses(told: dict[str, list[McpStartupUpdate]]) -> dict[str, list[str]]:
    return {server_id: [update.status for update in updates] for server_id, updates in told.items()}


async def test_every_server_is_told_of_and_then_how_it_went(machine: Machine, tmp_path: Path) -> None:
    good, bad = ScriptedServer(tmp_path / "good"), ScriptedServer(tmp_path / "bad", exit=3)
    async with serving("token") as guarded:
        locked = {"url": guarded.url, "headers": {"Authorization": "Bearer wrong"}}
        servers = {"good": good.entry(), "bad": bad.entry(), "guarded": locked}
        async with hosting(machine, **servers) as host, host.events() as events:
            failures = await host.connect_all()
            told, complete = await start_of(events)
    assert statuses(told) == {
        "good": ["starting", "ready"],
        "bad": ["starting", "failed"],
        "guarded": ["starting", "auth_required"],
    }
    assert complete.ready == ("good",)
    assert complete.failed == {"bad": str(failures["bad"])}
    assert complete.auth_required == ("guarded",)
    assert complete.cancelled == ()
    assert told["bad"][-1].error == complete.failed["bad"]
    assert "code 3" in complete.failed["bad"]
    assert told["good"][-1].error is None


async def test_servers_that_are_not_lazy_start_as_one(machine: Machine, tmp_path: Path) -> None:
    entries = {name: ScriptedServer(tmp_path / name).entry(lazy=False) for name in ("a", "b")}
    entries["lazy"] = ScriptedServer(tmp_path / "lazy").entry()
    hearing = Subscriber()
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=unasked(entries), env=machine.env, cwd=machine.project, subscriber=hearing
        ):
            told, complete = await start_of(hearing)
    assert statuses(told) == {"a": ["starting", "ready"], "b": ["starting", "ready"]}
    assert complete == McpStartupComplete(ready=("a", "b"), failed={})


async def test_who_listens_from_the_start_hears_what_keeps_the_host_from_opening(
    machine: Machine, tmp_path: Path
) -> None:
    bad = ScriptedServer(tmp_path / "bad", exit=3)
    hearing = Subscriber()
    with anyio.fail_after(SECONDS):
        async with AsyncExitStack() as stack:
            with pytest.raises(ConnectFailed):
                await stack.enter_async_context(
                    Host.open(
                        overrides=unasked({"bad": bad.entry(required=True)}),
                        env=machine.env,
                        cwd=machine.project,
                        subscriber=hearing,
                    )
                )
        _, complete = await start_of(hearing)
    assert complete.failed.keys() == {"bad"}


async def test_a_start_that_is_not_waited_for_is_told_of_to_its_end(machine: Machine, tmp_path: Path) -> None:
    slow = ScriptedServer(tmp_path / "slow", silent_after=0)
    good = ScriptedServer(tmp_path / "good")
    entries = {"slow": slow.entry(startup_timeout_ms=2_000), "good": good.entry()}
    async with hosting(machine, **entries) as host, host.events() as events:
        with pytest.raises(ConnectFailed, match="not ready after"):
            await host.require(["slow"], seconds=0.1)
        # It is still in that start, so that this one is about the other.
        with anyio.move_on_after(0.1):
            await host.connect_all()
        ends = dict([await _end(events), await _end(events)])
        assert ends == {"good": "ready", "slow": "failed"}


async def _end(events: AsyncIterator[Event]) -> tuple[str, str]:
    """The one server of the next start, and what became of it."""
    _, complete = await start_of(events)
    ended = [(name, "ready") for name in complete.ready] + [(name, "failed") for name in complete.failed]
    (only,) = ended
    return only


async def test_a_server_that_is_closed_while_it_starts_was_cancelled(
    machine: Machine, tmp_path: Path
) -> None:
    slow = ScriptedServer(tmp_path / "slow", silent_after=0)
    async with hosting(machine, slow=slow.entry()) as host, host.events() as events:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.connect, "slow")
            while host.status()[0].state != "connecting":
                await anext(events)
            await host.close("slow")
        _, complete = await start_of(events)
        assert complete == McpStartupComplete(cancelled=("slow",), failed={})


async def test_a_server_that_cannot_start_at_all_is_told_of_too(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, broken=server.entry(lazyy=True)) as host, host.events() as events:
        failures = await host.connect("broken", "nobody")
        told, complete = await start_of(events)
        assert failures.keys() == {"broken", "nobody"}
        assert statuses(told) == {"broken": ["starting", "failed"]}
        assert "lazyy" in complete.failed["broken"]


# What the documentation says.

DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")


def test_the_documented_way_to_listen_works(machine: Machine, tmp_path: Path) -> None:
    good, bad = ScriptedServer(tmp_path / "good"), ScriptedServer(tmp_path / "bad", exit=3)
    machine.write_user(json.dumps({"servers": {"good": good.entry(), "bad": bad.entry()}}))
    program = DOCUMENTATION.partition("```python\n")[2].partition("```")[0]
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=machine.env)
    lines = done.stdout.splitlines()
    assert lines[-1] == "1 ready, 1 failed"
    assert {"good: starting ", "bad: starting ", "good: ready "} <= set(lines)
    assert any(line.startswith("bad: failed ") and "code 3" in line for line in lines)


@pytest.mark.parametrize("event", get_args(Event), ids=lambda event: event.__name__)
def test_every_event_is_documented(event: type[Event]) -> None:
    assert f"| `{event.__name__}` |" in DOCUMENTATION
