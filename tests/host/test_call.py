"""Calling tools: what comes back, what cannot be sent, what policy refuses, and how a call ends early."""

import json
import math
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import (
    ArgumentsInvalid,
    CallDenied,
    CallFailed,
    CallRejected,
    CallTimedOut,
    ConnectFailed,
    ConnectionLost,
    UnknownServer,
)
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting, running


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record")


async def test_a_call_starts_the_server_and_returns_its_result(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        result = await host.call("x", "echo", {"text": "grüße"})
        assert json.loads(result.text) == {"text": "grüße"}
        assert json.loads(result.raw) == {"content": result.content}
        assert result.to_sdk().content[0].type == "text"
        assert not result.is_error
        assert result.structured is None


async def test_an_unknown_server_is_an_error_that_suggests_one(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, github=server.entry()) as host:
        with pytest.raises(UnknownServer) as raised:
            await host.call("githb", "echo")
        assert "github" in str(raised.value.hint)


async def test_a_protocol_error_says_that_the_server_answered(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(CallRejected) as raised:
            await host.call("x", "refuse")
        assert (raised.value.rpc_code, raised.value.delivery) == (-32602, "done")


async def test_a_result_of_another_shape_is_read_as_what_it_means(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        result = await host.call("x", "no_result")
        assert json.loads(result.raw) == {"content": "a text is no list"}
        assert result.content == [{"type": "text", "text": "a text is no list"}]


async def test_a_result_nobody_can_read_is_an_error_at_once(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(CallFailed, match="cannot be read") as raised:
            await host.call("x", "unreadable")
        assert raised.value.delivery == "done"
        assert (await host.call("x", "echo")).text == "{}"
    assert server.calls("unreadable") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}.__iter__()])
async def test_arguments_that_are_not_json_are_not_sent(
    machine: Machine, server: ScriptedServer, value: object
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(ArgumentsInvalid) as raised:
            await host.call("x", "echo", {"value": [value]})
        assert raised.value.delivery == "not_sent"
        assert json.loads((await host.call("x", "echo", {"value": None})).text) == {"value": None}
    assert server.calls("echo") == 1


# Policy.


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ({"trust": "trusted"}, False),
        ({"trust": "untrusted"}, True),
        ({"trust": "untrusted", "allow_tools": ["echo"]}, False),
        ({"trust": "untrusted", "allow_tools": ["e*"]}, False),
        ({"trust": "trusted", "allow_tools": ["other"]}, True),
        ({"trust": "trusted", "allow_tools": ["echo"], "deny_tools": ["echo"]}, True),
        ({"trust": "trusted", "deny_tools": ["e*"]}, True),
    ],
)
async def test_policy_decides_before_anything_is_started(
    machine: Machine, server: ScriptedServer, rules: dict[str, Any], refused: bool
) -> None:
    async with hosting(machine, x=server.entry(**rules)) as host:
        if refused:
            with pytest.raises(CallDenied):
                await host.call("x", "echo")
            assert server.starts == 0
        else:
            assert (await host.call("x", "echo")).text == "{}"


async def test_a_call_a_person_looked_at_is_not_refused(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, x=server.entry(trust="untrusted")) as host:
        assert (await host.call("x", "echo", confirmed=True)).text == "{}"


# Ends before the answer.


@pytest.mark.requirement("HARD-15")
async def test_progress_for_ever_meets_the_absolute_cap(machine: Machine, server: ScriptedServer) -> None:
    entry = server.entry(request_timeout_ms=20_000, max_request_ms=500)
    async with hosting(machine, x=entry) as host:
        with pytest.raises(CallTimedOut, match=r"0\.5 s") as raised:
            await host.call("x", "tick")
        assert raised.value.delivery == "unknown"
        assert "notifications/cancelled" in (await host.call("x", "received")).text


@pytest.mark.requirement("NEED-20")
async def test_progress_keeps_a_call_alive_past_its_idle_time(
    machine: Machine, server: ScriptedServer
) -> None:
    reports: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with hosting(machine, x=server.entry(request_timeout_ms=1000)) as host:
        await host.call("x", "echo")
        started = anyio.current_time()
        result = await host.call("x", "tick", {"times": 26}, on_progress=on_progress)
        assert result.text == "done"
        assert anyio.current_time() - started > 1.2
    assert len(reports) == 26
    assert reports == sorted(reports)


@pytest.mark.requirement("NEED-20")
async def test_silence_ends_a_call_after_its_idle_time_and_the_server_is_told(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(CallTimedOut) as raised:
            await host.call("x", "wait", request_timeout_ms=100)
        assert raised.value.delivery == "unknown"
        received = json.loads((await host.call("x", "received")).text)
        assert received.count("notifications/cancelled") == 1


@pytest.mark.requirement("NEED-20")
async def test_a_callers_cancel_returns_at_once_and_the_server_is_told(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        async with running(host, "x", "wait") as call:
            before = anyio.current_time()
            call.scope.cancel()
        assert anyio.current_time() - before < 1
        received = json.loads((await host.call("x", "received")).text)
        assert received.count("notifications/cancelled") == 1


@pytest.mark.requirement("NEED-20")
async def test_an_answer_that_comes_too_late_is_ignored(machine: Machine, server: ScriptedServer) -> None:
    async with hosting(machine, x=server.entry()) as host:
        async with running(host, "x", "wait", late=True) as call:
            call.scope.cancel()
        assert (await host.call("x", "echo", {"n": 1})).text == '{"n": 1}'
        assert (await host.call("x", "echo", {"n": 2})).text == '{"n": 2}'
        assert host.status()[0].state == "ready"


@pytest.mark.requirement("HARD-17", "NEED-6", "NEED-21")
async def test_a_crash_in_a_call_is_an_error_at_once_and_the_call_is_not_repeated(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        before = anyio.current_time()
        with pytest.raises(ConnectionLost) as raised:
            await host.call("x", "crash")
        assert anyio.current_time() - before < 1
        assert raised.value.delivery == "unknown"
        assert "exited with code 7" in str(raised.value)
        assert "Traceback: the sky fell" in str(raised.value)
        assert raised.value.hint is not None
        assert (await host.call("x", "echo")).text == "{}"
    assert server.calls("crash") == 1
    assert server.starts == 2


@pytest.mark.requirement("HARD-17", "NEED-21")
async def test_calls_beside_a_crash_all_fail_and_none_is_carried_out_twice(
    machine: Machine, server: ScriptedServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        async with running(host, "x", "wait") as first, running(host, "x", "wait") as second:
            with pytest.raises(ConnectionLost):
                await host.call("x", "crash")
        for call in (first, second):
            assert isinstance(call.error, ConnectionLost)
            assert call.error.delivery == "unknown"
    assert server.calls("wait") == 2


def test_an_error_made_from_another_of_the_same_server_names_it_once() -> None:
    inner = ConnectFailed("x", "it is not there")
    assert str(ConnectFailed("x", str(inner))) == "server `x`: it is not there"
