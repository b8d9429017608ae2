"""What is loaded or built when it is first needed does not hold the event loop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer, watch_loop
from fairlead.testing.watchdog import SHARED_FACTOR
from tests.conftest import Machine
from tests.host.offers.test_skills import server_with, skills_of

pytestmark = pytest.mark.requirement("HARD-66")

# In an interpreter of its own: here, most of it has been loaded long since.
PROGRAM = """
import json, sys
import anyio
from fairlead.host.host import Host
from fairlead.testing import watch_loop

async def main(document, home, use):
    async with Host.open(overrides=document, env={"HOME": home, "PATH": "/usr/bin:/bin"}, cwd=home) as host:
        # A native library that is loaded, or a model, keeps the interpreter for a while in any thread.
        with watch_loop(0.2), anyio.fail_after(120):
            print(await USES[use](host))

async def langchain(host):
    return [tool.name for tool in await host.tools.for_langchain()]

async def pydantic_ai(host):
    return [tool.name for tool in await host.tools.for_pydantic_ai()]

async def built_in(host):
    return await host.connect("docs")

async def by_meaning(host):
    return [hit.key.tool for hit in (await host.tools.search("echo")).hits]

USES = {"langchain": langchain, "pydantic-ai": pydantic_ai, "built-in": built_in, "by meaning": by_meaning}
anyio.run(main, *json.loads(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("use", "said"),
    [("langchain", "echo"), ("pydantic-ai", "echo"), ("built-in", "{}"), ("by meaning", "echo")],
)
def test_the_first_use_of_something_large_does_not_hold_the_loop(
    machine: Machine, tmp_path: Path, use: str, said: str
) -> None:
    document = {
        "servers": {
            "x": ScriptedServer(tmp_path / "record").entry(trust="trusted"),
            "docs": {"builtin": "docs", "enabled": True},
        },
        "tools": {"search": "meaning"},
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([document, str(machine.home), use])],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(machine.home),
            "FAIRLEAD_LOOP_FACTOR": str(SHARED_FACTOR),
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert said in run.stdout


async def test_the_head_of_a_skill_is_read_off_the_loop(machine: Machine, tmp_path: Path) -> None:
    tags = ["a"] * 5_000
    text = f"---\nname: sums\ntags: [{', '.join(tags)}]\n---\nAdd them up.\n"
    server = server_with(tmp_path / "record", text, head={"name": "sums", "tags": tags})
    async with skills_of(machine, server) as skills:
        (skill,) = await skills.list()
        with watch_loop():
            assert await skills.load(skill) == text
