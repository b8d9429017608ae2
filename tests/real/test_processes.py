"""Servers behind package runners: trees of processes that leave nothing, and output that is no MCP."""

import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from tests.conftest import Machine
from tests.real.processes import leader, marked, programs, until
from tests.real.servers import NPM, NPM_BIN, everything, mark_of, open_host, stdio_entry
from tests.real.servers import time as time_server

pytestmark = pytest.mark.slow

# npm looks for newer versions of itself on the network, where no test has anything to do.
QUIET = {"npm_config_offline": "true", "npm_config_update_notifier": "false"}
ORPHANS_GONE_SECONDS = 5
REPOSITORY = Path(__file__).parents[2]
SECONDS = {"duration": 1, "steps": 2}


def npx(machine: Machine) -> dict[str, object]:
    argv = ["npx", "--no", "mcp-server-everything"]
    return stdio_entry(machine, "npx", argv, QUIET, cwd=str(NPM))


@pytest.mark.requirement("NEED-1", "NEED-5", "HARD-18")
async def test_a_server_behind_npx_leaves_nothing_whether_killed_or_closed(machine: Machine) -> None:
    with anyio.fail_after(60):
        async with open_host(machine, {"npx": npx(machine)}) as host:
            assert await host.connect("npx") == {}
            first = marked(mark_of(machine, "npx"))
            assert programs(first).count("node") == 2
            assert len(first) == 3

            os.kill(leader(first), signal.SIGKILL)
            await until(lambda: not marked(mark_of(machine, "npx")), 20)
            # They may be gone before the host has read that they are.
            await until(lambda: all(status.state != "ready" for status in host.status()), 20)

            assert "42" in (await host.call("npx", "get-sum", {"a": 17, "b": 25})).text
            second = marked(mark_of(machine, "npx"))
            assert len(second) == 3
            assert not first & second

    assert not marked(mark_of(machine, "npx"))


@pytest.mark.requirement("NEED-1", "HARD-19")
async def test_no_server_outlives_a_killed_host(machine: Machine) -> None:
    servers = {"npx": npx(machine), "time": time_server(machine).entry}
    argv = [sys.executable, "-m", "tests.real.doomed_host", json.dumps(servers)]
    with anyio.fail_after(60):
        # It takes its home from our environment, where the fixture has set it.
        async with await anyio.open_process(argv, cwd=REPOSITORY, stderr=None) as host:
            assert host.stdout is not None
            assert await host.stdout.receive() == b"ready\n"
            assert len(marked(mark_of(machine, "npx"))) == 3
            assert len(marked(mark_of(machine, "time"))) == 1
            host.kill()

        def gone() -> bool:
            return not any(marked(mark_of(machine, server_id)) for server_id in servers)

        await until(gone, ORPHANS_GONE_SECONDS)


@pytest.mark.requirement("NEED-34", "HARD-11")
async def test_what_npm_prints_before_the_server_speaks_does_no_harm(machine: Machine) -> None:
    manifest = {"scripts": {"start": str(NPM_BIN / "mcp-server-everything")}}
    (machine.project / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    entry = stdio_entry(machine, "npm", ["npm", "start"], QUIET, cwd=str(machine.project))
    with anyio.fail_after(60):
        alone = await anyio.run_process(["npm", "start"], cwd=machine.project, env=machine.env | QUIET)
        assert alone.stdout.strip().startswith(b">")

        async with open_host(machine, {"npm": entry}) as host:
            assert await host.connect("npm") == {}
            assert "42" in (await host.call("npm", "get-sum", {"a": 17, "b": 25})).text

    assert not marked(mark_of(machine, "npm"))


@pytest.mark.requirement("NEED-9")
async def test_a_server_that_dies_costs_its_own_tools_only(machine: Machine) -> None:
    well, ill = everything(machine), time_server(machine)
    servers = {well.server_id: well.entry, ill.server_id: ill.entry}
    with anyio.fail_after(60):
        async with open_host(machine, servers) as host:
            assert await host.connect_all() == {}
            (pid,) = marked(mark_of(machine, ill.server_id))

            async with anyio.create_task_group() as callers:
                callers.start_soon(host.call, well.server_id, "trigger-long-running-operation", SECONDS)
                os.kill(pid, signal.SIGKILL)

            assert {status.server_id: status.state for status in host.status()} == {
                well.server_id: "ready",
                ill.server_id: "error",
            }
            await well.check_answer(host)
            assert next(iter(host.status())).connects == 1
