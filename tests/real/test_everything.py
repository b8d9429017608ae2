"""The reference server that does everything, over stdio, with its conversation written down."""

import json
import math
import os
import signal

import anyio
import pytest

from fairlead.errors import ArgumentsInvalid, CallTimedOut, ConnectionLost
from tests.conftest import Machine
from tests.real.processes import leader, marked, until
from tests.real.servers import (
    EVERYTHING_TOOLS,
    HANDSHAKE,
    LONG_OPERATION,
    everything,
    mark_of,
    open_host,
    seconds_to_give_up,
)
from tests.real.wiretap import Wiretap

pytestmark = pytest.mark.slow


@pytest.fixture
def wiretap(machine: Machine) -> Wiretap:
    return Wiretap(heard_file=machine.home / "heard", said_file=machine.home / "said")


@pytest.fixture
def servers(machine: Machine, wiretap: Wiretap) -> dict[str, dict[str, object]]:
    return {"everything": wiretap.around(everything(machine).entry)}


@pytest.mark.requirement("NEED-10")
async def test_a_server_that_refuses_the_modern_era_is_asked_for_it_only_once(
    machine: Machine, wiretap: Wiretap, servers: dict[str, dict[str, object]]
) -> None:
    with anyio.fail_after(60):
        for expected in (["server/discover", "initialize"], ["initialize"]):
            wiretap.heard_file.unlink(missing_ok=True)
            async with open_host(machine, servers) as host:
                assert await host.connect("everything") == {}
                assert host.status()[0].version == HANDSHAKE
            heard = [message["method"] for message in wiretap.heard()]
            assert heard[: heard.index("notifications/initialized")] == expected


@pytest.mark.requirement("NEED-20")
async def test_progress_arrives_and_keeps_a_call_alive_that_is_longer_than_its_timeout(
    machine: Machine, wiretap: Wiretap, servers: dict[str, dict[str, object]]
) -> None:
    reports: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))

    with anyio.fail_after(60):
        async with open_host(machine, servers) as host:
            await host.connect("everything")
            result = await host.call(
                "everything",
                LONG_OPERATION,
                {"duration": 2.4, "steps": 8},
                on_progress=on_progress,
                request_timeout_ms=1500,
            )

    assert "completed" in result.text
    assert reports == [(step, 8) for step in range(1, 9)]
    assert not wiretap.heard("notifications/cancelled")


@pytest.mark.requirement("NEED-6", "NEED-20")
async def test_a_caller_who_gives_up_is_free_at_once_and_the_server_is_told(
    machine: Machine, wiretap: Wiretap, servers: dict[str, dict[str, object]]
) -> None:
    with anyio.fail_after(60):
        async with open_host(machine, servers) as host:
            assert await seconds_to_give_up(host, "everything") < 1
            assert "still there" in (await host.call("everything", "echo", {"message": "still there"})).text
            assert host.status()[0].connects == 1

    (call, _) = wiretap.heard("tools/call")
    (cancelled,) = wiretap.heard("notifications/cancelled")
    assert cancelled["params"]["requestId"] == call["id"]


@pytest.mark.requirement("NEED-20")
async def test_a_silent_call_times_out_and_the_server_is_told(
    machine: Machine, wiretap: Wiretap, servers: dict[str, dict[str, object]]
) -> None:
    with anyio.fail_after(60):
        async with open_host(machine, servers) as host:
            await host.connect("everything")
            began = anyio.current_time()
            with pytest.raises(CallTimedOut) as timed_out:
                await host.call(
                    "everything", LONG_OPERATION, {"duration": 600, "steps": 1}, request_timeout_ms=300
                )
            assert anyio.current_time() - began < 5
            assert timed_out.value.delivery == "unknown"
            assert "echoes" in (await host.call("everything", "echo", {"message": "echoes"})).text

    assert len(wiretap.heard("notifications/cancelled")) == 1


@pytest.mark.requirement("NEED-6", "NEED-21", "HARD-17")
async def test_a_server_killed_during_a_call_fails_it_at_once_and_it_is_not_sent_again(
    machine: Machine,
) -> None:
    calls = 0

    async def kill(progress: float, total: float | None, message: str | None) -> None:
        nonlocal calls, killed_at
        calls += progress == 1
        if progress == 3:
            server = leader(marked(mark_of(machine, "everything")))
            killed_at = anyio.current_time()
            os.kill(server, signal.SIGKILL)

    killed_at = math.inf
    with anyio.fail_after(60):
        async with everything(machine).open_host(machine) as host:
            with pytest.raises(ConnectionLost) as lost:
                await host.call(
                    "everything", LONG_OPERATION, {"duration": 600, "steps": 6000}, on_progress=kill
                )
            assert anyio.current_time() - killed_at < 1
            assert lost.value.delivery == "unknown"
            assert "SIGKILL" in str(lost.value)
            await everything(machine).check_answer(host)

    assert calls == 1


@pytest.mark.requirement("HARD-46")
async def test_a_burst_of_changed_lists_is_listed_again_a_few_times_and_nothing_is_missed(
    machine: Machine, wiretap: Wiretap, servers: dict[str, dict[str, object]]
) -> None:
    files = [f"file-{number}.gz" for number in range(30)]
    with anyio.fail_after(60):
        async with open_host(machine, servers) as host:
            # It adds a tool right after the handshake, and says so while it is first listed.
            assert await host.connect("everything") == {}

            async def add(name: str) -> None:
                await host.call("everything", "gzip-file-as-resource", {"name": name, "data": "data:,hello"})

            async with anyio.create_task_group() as callers:
                for name in files:
                    callers.start_soon(add, name)

            def known() -> set[str]:
                listing = host.listing("everything")
                return {json.loads(resource)["name"] for resource in listing.resources} if listing else set()

            await until(lambda: known() >= set(files), 20)
            assert {entry.key.tool for entry in await host.tools_of("everything")} == EVERYTHING_TOOLS

    assert len(wiretap.said("notifications/resources/list_changed")) >= len(files)
    assert wiretap.said("notifications/tools/list_changed")
    assert len(wiretap.heard("tools/list")) < len(files) / 3


async def test_what_a_server_says_is_handed_on_whole(machine: Machine) -> None:
    with anyio.fail_after(60):
        async with everything(machine).open_host(machine) as host:
            assert await host.connect("everything") == {}
            weather = await host.call("everything", "get-structured-content", {"location": "New York"})
            image = await host.call("everything", "get-tiny-image")
            with pytest.raises(ArgumentsInvalid):
                await host.call("everything", "get-sum", {"a": "seventeen"})
            unknown = await host.call("everything", "no-such-tool")
            listing = host.listing("everything")

    assert weather.structured is not None
    assert weather.structured.keys() == {"temperature", "conditions", "humidity"}
    assert [block["type"] for block in image.content] == ["text", "image", "text"]
    assert unknown.is_error
    assert listing is not None
    assert listing.resources
    assert listing.templates
    assert listing.prompts
    assert listing.instructions


async def test_a_server_gets_what_is_declared_for_it_and_no_secret_of_the_host(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    entry = everything(machine).entry
    with anyio.fail_after(60):
        async with open_host(machine, {"everything": entry}) as host:
            env = json.loads((await host.call("everything", "get-env")).text)

    assert env.items() >= entry["env"].items()
    assert "OPENAI_API_KEY" not in env
