"""What a program and its servers agree on beyond the protocol."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import CallFailed, CallRejected
from fairlead.host.host import Host
from fairlead.host.server_peer import CustomCapabilities
from tests.conftest import Machine
from tests.host.asking import BOTH_ERAS, MODERN, AskingServer
from tests.host.support import SECONDS, unasked

OURS = CustomCapabilities(
    experimental={"agent/sandbox-state": {"version": 1}}, extensions={"org.example/extra": {}}
)


@pytest.mark.parametrize("era", BOTH_ERAS)
async def test_capabilities_of_the_programs_own_are_declared_and_used(
    machine: Machine, tmp_path: Path, era: str
) -> None:
    capabilities: dict[str, Any] = {"tools": {}, "experimental": {"agent/sandbox-state": {}}}
    server = AskingServer(tmp_path / "record", version=era, capabilities=capabilities)
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=unasked({"x": server.entry()}),
            env=machine.env,
            cwd=machine.project,
            capabilities=OURS,
        ) as host:
            assert await host.custom.declares("x", "agent/sandbox-state")
            await host.custom.notify("x", "agent/sandbox-state", "agent/update", {"mode": "read-only"})
            with pytest.raises(CallRejected):  # it declares more than it knows
                await host.custom.request("x", "agent/sandbox-state", "agent/ask", {"what": 1})
            with pytest.raises(CallFailed, match="does not declare") as raised:
                await host.custom.request("x", "org.example/extra", "extra/ask")
            assert raised.value.delivery == "not_sent"

    assert [message["params"]["mode"] for message in server.heard("agent/update")] == ["read-only"]
    assert server.heard("extra/ask") == []
    declared = server.declared()[-1]
    assert declared["experimental"] == {"agent/sandbox-state": {"version": 1}}
    assert ("org.example/extra" in declared.get("extensions", {})) == (era == MODERN)
