"""A call that waits for its server to start is decided again before it is sent."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fairlead.config.load import LoadedConfig
from fairlead.errors import CallDenied, FairleadError
from fairlead.events import McpToolCallBegin
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import Running, hosting, unasked

ALLOWED = {"trust": "trusted", "approval": "allow"}


class SlowServer:
    """A server whose second start waits until it is released."""

    def __init__(self, folder: Path) -> None:
        self.script = ScriptedServer(folder / "record")
        self._gate = folder / "gate"
        self._started = folder / "started"
        os.mkfifo(self._gate)

    def entry(self, **fields: Any) -> dict[str, Any]:
        waits = 'if [ -e "$1" ]; then : >"$1.again"; read line <"$2"; else : >"$1"; fi; shift 2; exec "$@"'
        args = ["-c", waits, "sh", str(self._started), str(self._gate), *self.script.argv]
        return {"command": "/bin/sh", "args": args, **ALLOWED, **fields}

    @property
    def is_starting_again(self) -> bool:
        return self._started.with_suffix(".again").exists()

    async def release(self) -> None:
        await to_thread.run_sync(self._gate.write_text, "go\n", abandon_on_cancel=True)


def loaded(machine: Machine, rules: list[dict[str, Any]], **servers: dict[str, Any]) -> LoadedConfig:
    document = unasked(servers)
    return machine.load(overrides={**document, "policy": {**document.get("policy", {}), "rules": rules}})


@asynccontextmanager
async def waiting(
    machine: Machine, slow: SlowServer, arguments: dict[str, Any]
) -> AsyncGenerator[tuple[Host, Any]]:
    """A host in which a call waits for the server, which has crashed once."""
    async with hosting(machine, x=slow.entry()) as host:
        await host.call("x", "echo", arguments)  # so that there is a plan for the next one
        with pytest.raises(FairleadError):
            await host.call("x", "crash")
        async with anyio.create_task_group() as tasks, host.events() as events:
            call = Running(host, "x", "echo", arguments)
            tasks.start_soon(call.run)
            async for event in events:
                if isinstance(event, McpToolCallBegin):
                    break
            while not slow.is_starting_again:  # noqa: ASYNC110 - another process says nothing
                await anyio.sleep(0.01)
            yield host, call


DENIED = [{"action": "deny", "tool": "echo"}]
DENIED_HERE = [{"action": "deny", "tool": "echo", "arguments": {"path": "/etc/**"}}]
ASKED = [{"action": "ask", "tool": "echo"}]


@pytest.mark.requirement("HARD-77")
@pytest.mark.parametrize("rules", [DENIED, DENIED_HERE, ASKED])
async def test_a_call_that_was_denied_while_its_server_started_is_not_sent(
    machine: Machine, tmp_path: Path, rules: list[dict[str, Any]]
) -> None:
    slow = SlowServer(tmp_path)
    async with waiting(machine, slow, {"path": "/etc/passwd"}) as (host, call):
        await host.reload(loaded(machine, rules, x=slow.entry()))
        await slow.release()
    assert isinstance(call.error, CallDenied)
    assert call.error.delivery == "not_sent"
    assert slow.script.calls("echo") == 1


async def test_a_call_whose_server_was_disabled_meanwhile_is_not_sent(
    machine: Machine, tmp_path: Path
) -> None:
    slow = SlowServer(tmp_path)
    async with waiting(machine, slow, {}) as (host, call):
        await host.reload(loaded(machine, [], x=slow.entry(enabled=False)))
        await slow.release()
    assert isinstance(call.error, FairleadError)
    assert slow.script.calls("echo") == 1


async def test_a_call_about_which_nothing_changed_is_sent(machine: Machine, tmp_path: Path) -> None:
    slow = SlowServer(tmp_path)
    async with waiting(machine, slow, {"path": "/srv/x"}) as (host, call):
        await host.reload(loaded(machine, DENIED_HERE, x=slow.entry()))
        await slow.release()
    assert call.error is None
    assert slow.script.calls("echo") == 2
