"""What was worked out about calls of a tool is not used any longer than it holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import (
    ApprovalRequired,
    ArgumentsInvalid,
    CallDenied,
    ConnectFailed,
    FairleadError,
    UnknownServer,
)
from fairlead.host.host import Host
from fairlead.policy.decision import BundleFilter
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting, unasked
from tests.host.test_quarantine import CHANGED, ECHO, ChangingServer, change

ARGUMENTS = {"what": "hello"}


@pytest.fixture
def server(tmp_path: Path) -> ChangingServer:
    return ChangingServer(tmp_path, ECHO, "change_tools")


async def call(host: Host, **options: Any) -> dict[str, Any]:
    return json.loads((await host.call("x", "echo", ARGUMENTS, **options)).text)


async def warm_up(host: Host) -> None:
    """Call often enough that a plan is made and used."""
    for _ in range(3):
        assert await call(host) == ARGUMENTS


def entry(server: ChangingServer, **fields: Any) -> dict[str, Any]:
    return server.entry(trust="trusted", **fields)


def rule(**said: Any) -> dict[str, Any]:
    return {"policy": {"approval": "allow", "rules": [{"server": "x", **said}]}}


@pytest.mark.parametrize(
    ("fields", "document", "error"),
    [
        ({"deny_tools": ["echo"]}, {}, CallDenied),
        ({"deny_tools": ["e*"]}, {}, CallDenied),
        ({"allow_tools": ["other"]}, {}, CallDenied),
        ({"approval": "ask"}, {}, ApprovalRequired),
        ({"approval": "deny"}, {}, CallDenied),
        ({"approval": {"tools": {"echo": "ask"}}}, {}, ApprovalRequired),
        ({"enabled": False}, {}, ConnectFailed),
        ({}, rule(tool="echo", action="deny"), CallDenied),
        ({}, rule(tool="echo", action="ask"), ApprovalRequired),
        ({}, rule(tool="e*", action="deny"), CallDenied),
        ({}, rule(action="deny"), CallDenied),
        ({}, rule(tool="echo", action="deny", arguments={"what": "hel*"}), CallDenied),
    ],
)
async def test_a_configuration_that_forbids_a_call_holds_from_the_next_call_on(
    machine: Machine,
    server: ChangingServer,
    fields: dict[str, Any],
    document: dict[str, Any],
    error: type[FairleadError],
) -> None:
    async with hosting(machine, x=entry(server)) as host:
        await warm_up(host)
        await host.reload(machine.load(overrides=unasked({"x": entry(server, **fields)}, **document)))
        for _ in range(2):
            with pytest.raises(error):
                await call(host)
        await host.reload(machine.load(overrides=unasked({"x": entry(server)})))
        await warm_up(host)


async def test_a_rule_on_arguments_is_asked_about_each_call(machine: Machine, server: ChangingServer) -> None:
    said = rule(tool="echo", action="deny", arguments={"what": "/etc/**"})
    async with Host.open(
        overrides=unasked({"x": entry(server)}, **said), env=machine.env, cwd=machine.project
    ) as host:
        await warm_up(host)
        with pytest.raises(CallDenied):
            await host.call("x", "echo", {"what": "/etc/passwd"})
        await warm_up(host)


async def test_a_server_that_is_removed_is_not_called(machine: Machine, server: ChangingServer) -> None:
    async with hosting(machine, x=entry(server)) as host:
        await warm_up(host)
        host.remove("x")
        with pytest.raises(UnknownServer):
            await call(host)


async def test_what_a_bundle_leaves_out_is_refused_beside_calls_without_one(
    machine: Machine, server: ChangingServer
) -> None:
    narrow = BundleFilter(bundle="b", allow_tools=("other",), deny_tools=(), grants=False)
    wide = BundleFilter(bundle="c", allow_tools=("echo",), deny_tools=(), grants=False)
    async with hosting(machine, x=entry(server)) as host:
        for _ in range(2):
            await warm_up(host)
            with pytest.raises(CallDenied):
                await call(host, bundle_filter=narrow)
            assert await call(host, bundle_filter=wide) == ARGUMENTS


async def test_what_holds_for_one_callers_default_does_not_hold_for_anothers(
    machine: Machine, server: ChangingServer
) -> None:
    unspoken = {key: value for key, value in entry(server).items() if key != "approval"}
    async with Host.open(
        overrides={"servers": {"x": unspoken}}, env=machine.env, cwd=machine.project
    ) as host:
        for _ in range(2):
            assert await call(host, default_mode="allow") == ARGUMENTS
            with pytest.raises(ApprovalRequired):
                await call(host)
            with pytest.raises(CallDenied):
                await call(host, default_mode="deny")


@pytest.mark.parametrize("name", ["guest", "group:interns"])
async def test_what_holds_for_one_principal_does_not_hold_for_another(
    machine: Machine, server: ChangingServer, name: str
) -> None:
    document = rule(tool="echo", principal=name, action="deny")
    overrides = {"servers": {"x": entry(server)}, **document}
    async with Host.open(overrides=overrides, env=machine.env, cwd=machine.project) as host:
        for _ in range(2):
            await warm_up(host)
            assert await call(host, principal="other", groups=frozenset({"staff"})) == ARGUMENTS
            with pytest.raises(CallDenied):
                await call(host, principal="guest", groups=frozenset({"interns"}))


async def test_arguments_are_checked_in_every_call(machine: Machine, server: ChangingServer) -> None:
    async with hosting(machine, x=entry(server)) as host:
        await host.tools_of("x")  # the schema is not waited for where a server is trusted
        for _ in range(2):
            await warm_up(host)
            with pytest.raises(ArgumentsInvalid):
                await host.call("x", "echo", {"what": {"not": "a text"}})


async def test_a_tool_that_changes_is_not_called_after_calls_before_the_change(
    machine: Machine, server: ChangingServer
) -> None:
    async with hosting(machine, x=server.entry()) as host:
        await warm_up(host)
        await change(host, CHANGED, "change_tools")
        with pytest.raises(CallDenied):
            await call(host)
        await change(host, ECHO, "change_tools")
        await warm_up(host)


@pytest.mark.parametrize("timeout_ms", [None, 20_000])
async def test_options_of_one_call_are_not_those_of_the_next(
    machine: Machine, tmp_path: Path, timeout_ms: int | None
) -> None:
    server = ScriptedServer(tmp_path / "record")
    long = "x" * 5_000
    async with hosting(machine, x=server.entry(max_result_bytes=1_024)) as host:
        for _ in range(2):
            cut = await host.call("x", "echo", {"text": long}, request_timeout_ms=timeout_ms)
            whole = await host.call(
                "x", "echo", {"text": long}, request_timeout_ms=timeout_ms, full_result=True
            )
            assert long not in cut.text
            assert long in whole.text
