"""Servers that declare `codex/sandbox-state` are told the sandbox that they run in, before the first call."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fairlead.connection.process.sandbox import SandboxRequest
from fairlead.connection.process.sandbox_state import (
    SANDBOX_CAPABILITY,
    SANDBOX_METHOD,
    describe_sandbox,
)
from tests.conftest import Machine
from tests.host.asking import AskingServer
from tests.host.support import hosting

DECLARES: dict[str, Any] = {"tools": {}, "experimental": {SANDBOX_CAPABILITY: {"version": "1.0.0"}}}
HOME, CWD = Path("/home/ada"), Path("/home/ada/project")


def test_the_policy_is_in_the_words_of_codex() -> None:
    """Seed 004: the custom method `codex/sandbox-state` tells servers about the sandbox configuration."""
    assert describe_sandbox(None, CWD) == {
        "sandboxPolicy": {"type": "danger-full-access"},
        "codexLinuxSandboxExe": None,
        "sandboxCwd": str(CWD),
    }
    closed = describe_sandbox(SandboxRequest(home=HOME), CWD)
    assert closed["sandboxPolicy"] == {"type": "read-only", "network_access": False}
    open_ = describe_sandbox(SandboxRequest(home=HOME, write=(HOME / "project",), network=True), CWD)
    assert open_["sandboxPolicy"]["type"] == "workspace-write"
    assert open_["sandboxPolicy"]["writable_roots"] == [str(CWD)]
    assert open_["sandboxPolicy"]["network_access"] is True
    assert open_["sandboxCwd"] == str(CWD)


def test_the_folder_of_a_workspace_is_one_that_can_be_written() -> None:
    state = describe_sandbox(SandboxRequest(home=HOME, write=(HOME / "cache",)), CWD)
    assert state["sandboxCwd"] == str(HOME / "cache")


async def test_a_server_that_declares_it_is_told_at_each_start_before_its_first_call(
    machine: Machine, tmp_path: Path
) -> None:
    """Seed 004: a server must declare the capability, and is told when it connects."""
    server = AskingServer(tmp_path / "record", capabilities=DECLARES)
    async with hosting(machine, x=server.entry()) as host:
        await host.call("x", "echo", {})
        await host.close("x")
        await host.call("x", "echo", {})
    methods = [message.get("method") for message in server.heard()]
    told = [index for index, method in enumerate(methods) if method == SANDBOX_METHOD]
    called = [index for index, method in enumerate(methods) if method == "tools/call"]
    assert len(told) == len(called) == 2
    assert told[0] < called[0] < told[1] < called[1]
    assert server.heard(SANDBOX_METHOD)[0]["params"]["sandboxPolicy"] == {"type": "danger-full-access"}


async def test_a_server_that_does_not_declare_it_is_not_told(machine: Machine, tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", capabilities={"tools": {}})
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
    assert server.heard(SANDBOX_METHOD) == []


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
async def test_another_sandbox_is_told_when_the_entry_changes(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    server = AskingServer(tmp_path / "box" / "record", capabilities=DECLARES)
    written = str(tmp_path / "box")
    for network in (False, True):
        sandbox = {"write": [written], "read": [str(Path(__file__).parents[3])], "network": network}
        async with hosting(machine, x=server.entry(sandbox=sandbox)) as host:
            assert await host.connect("x") == {}
    told = [message["params"]["sandboxPolicy"] for message in server.heard(SANDBOX_METHOD)]
    assert [policy["network_access"] for policy in told] == [False, True]
    assert all(policy["writable_roots"] == [written] for policy in told)
