"""A review of a server without tools: models read its resources and prompts when the user says so."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from fairlead.host.host import Host
from tests.cli.permission_support import SECONDS, Fairlead, entry, follow, write
from tests.conftest import Machine
from tests.fixtures import asking_stdio


class ReadableServer:
    """A server with a resource, and the tools it says it has, whose command line stays the same."""

    def __init__(self, folder: Path) -> None:
        self._script = folder / "script.json"
        self.says()

    def says(self, *tools: str) -> None:
        script: dict[str, Any] = {"tools": tools, "templates": [], "prompts": []}
        self._script.write_text(json.dumps(script))

    def entry(self, **fields: Any) -> dict[str, Any]:
        begin = f"import runpy, sys; sys.argv[1:] = [open({str(self._script)!r}).read()]"
        run = f"runpy.run_path({asking_stdio.__file__!r}, run_name='__main__')"
        return {"command": sys.executable, "args": ["-I", "-S", "-c", f"{begin}; {run}"], **fields}


async def read_as_model(machine: Machine) -> str:
    with anyio.fail_after(SECONDS):
        async with Host.open(machine.load(), env=machine.env) as host:
            return (await host.tools.answer("mcp_resource_read", {"server": "s", "uri": "test://a"})).text


def test_a_model_reads_of_a_server_without_tools_once_the_hints_were_followed(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ReadableServer(tmp_path)
    write(machine, {"s": server.entry()})
    refused = anyio.run(read_as_model, machine)
    assert "it is untrusted and has not been reviewed" in refused
    shown = follow(fairlead, refused)
    assert shown.status == 3
    assert "`s` offers 1 resource: may models read them?" in shown.out
    notice = "agents read nothing of its 1 resource until it is reviewed: run `fairlead review s`"
    assert notice in fairlead("status").err
    assert fairlead("review", "s", "--yes").status == 0
    assert "allow_tools" not in entry(machine), "it is never preselected"
    assert follow(fairlead, shown.err.split("hint:")[1]).status == 0
    assert anyio.run(read_as_model, machine) == "test://a"
    assert notice not in fairlead("status").err


def test_a_tool_that_a_server_without_tools_gains_is_held_back(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ReadableServer(tmp_path)
    write(machine, {"s": server.entry()})
    assert fairlead("review", "--all", "--allow", "all").status == 0
    server.says("echo")
    refused = fairlead("call", "s", "echo")
    assert refused.status == 3
    assert "it is new and has not been reviewed" in refused.err
    assert fairlead("review", "s", "--allow", "all").status == 0
    assert fairlead("call", "s", "echo").status == 0


def test_a_server_that_offers_nothing_has_nothing_to_decide(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ReadableServer(tmp_path)
    write(machine, {"s": server.entry(trust="trusted")})
    assert "`s` has no tools, so there is nothing to decide" in fairlead("review", "s").err
