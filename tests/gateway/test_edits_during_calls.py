"""Edits of the configuration while principals and clients come and call: no old answer decides afterwards."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.actions.live_configuration import LiveConfiguration
from fairlead.config.load import LoadedConfig
from fairlead.gateway.gateway import GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.gateway.support import ByName, Raw

SECONDS = 90.0
ROUNDS = 4
TOOL = {"name": "echo", "description": "Say it.", "inputSchema": {"type": "object"}}
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "review": ({"approval": {"tools": {"echo": "allow"}}}, {"deny_tools": ["echo"]}),
    "rule": ({"approval": "allow"}, {"approval": "allow"}),
}
"""For each way to change an answer, the fields of the entry that allow the tool and those that deny it."""


class Answers:
    """Two configurations of one server, under which its tool is allowed and denied in turn."""

    def __init__(self, machine: Machine, server: ScriptedServer, edit: str, sharing: str) -> None:
        self._machine, self._server, self._edit, self._sharing = machine, server, edit, sharing

    def load(self, *, allowed: bool) -> LoadedConfig:
        fields = EDITS[self._edit][0 if allowed else 1]
        rule = {"action": "deny", "tool": "echo"}
        rules = [rule] if self._edit == "rule" and not allowed else []
        entry = self._server.entry(trust="untrusted", allow_tools=["echo"], sharing=self._sharing, **fields)
        document = {"servers": {"s": entry}, "policy": {"rules": rules}, "gateway": {"mode": "direct"}}
        self._machine.write_user(json.dumps(document))
        return self._machine.load()


class Caller:
    """A client of one principal that calls the tool."""

    def __init__(self, http: aiohttp.ClientSession, url: str, principal: str, era: str) -> None:
        self._raw, self._era = Raw(http, url, principal), era

    async def begin(self) -> None:
        if self._era == "session":
            await self._raw.begin()
        await self.is_called()

    async def is_called(self) -> bool:
        request = self._raw.older if self._era == "session" else self._raw.modern
        answer = await request("tools/call", name="s_echo", arguments={})
        return "error" not in answer and not answer["result"].get("isError")


@pytest.mark.parametrize("sharing", ["shared", "session"])
@pytest.mark.parametrize("edit", EDITS)
async def test_after_an_edit_no_call_of_any_principal_is_decided_by_the_old_answer(
    machine: Machine, tmp_path: Path, edit: str, sharing: str
) -> None:
    answers = Answers(machine, ScriptedServer(tmp_path / "record", tools=[TOOL]), edit, sharing)
    options = GatewayOptions(approval_seconds=0.02)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(answers.load(allowed=True), options, env=machine.env) as gateway,
            listening(gateway.app(ByName()), listener),
            aiohttp.ClientSession() as http,
        ):
            url = f"{url_of(listener)}/mcp"
            everyone = [
                Caller(http, url, who, era) for who in ("ada", "bo") for era in ("stateless", "session")
            ]
            for caller in everyone:
                await caller.begin()
            for number in range(ROUNDS):
                is_allowed = bool(number % 2)
                loaded = answers.load(allowed=is_allowed)
                new = [
                    Caller(http, url, f"p{number}-{step}", era)
                    for step in range(2)
                    for era in ("stateless", "session")
                ]
                async with anyio.create_task_group() as tasks:
                    for caller in (*everyone, *new):  # who is there calls, others arrive
                        tasks.start_soon(caller.begin if caller in new else caller.is_called)
                    for _ in range(number):
                        await anyio.lowlevel.checkpoint()
                    await gateway.reload(loaded)
                    there = [await caller.is_called() for caller in everyone]
                    assert there == [is_allowed] * len(there), "as soon as the edit returned"
                outcomes = [await caller.is_called() for caller in new]
                assert outcomes == [is_allowed] * len(outcomes), f"who came during edit {number}"


async def test_the_newer_of_two_configurations_read_at_once_is_in_force(machine: Machine) -> None:
    machine.write_user("{}")
    in_force: list[LoadedConfig] = []
    slow = anyio.Event()
    read: list[LoadedConfig] = []

    def load() -> LoadedConfig:
        read.append(machine.load())
        return read[-1]

    async def take(loaded: LoadedConfig) -> None:
        if loaded is read[0]:
            slow.set()
            for _ in range(20):  # the older one takes longer
                await anyio.lowlevel.checkpoint()
        in_force.append(loaded)

    live = LiveConfiguration(machine.load(), load, take)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.reload_here)
            await slow.wait()
            await live.reload_here()
            assert in_force[-1] is read[-1], "when a reload returns, what it read is in force"
    assert live.loaded is in_force[-1] is read[-1]
