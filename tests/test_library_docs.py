"""The examples of docs/library.md and of the public docstrings are run, and print what they say."""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pydantic
import pytest

import fairlead
from fairlead import Host
from tests.conftest import Machine

pytestmark = pytest.mark.requirement("HARD-88")

PAGE = Path(__file__).parent.parent / "docs" / "library.md"
SECONDS = 60

TIME_SERVER = """
import json, sys
properties = {"timezone": {"type": "string"}}
schema = {"type": "object", "properties": properties}
tools = [{"name": "get_current_time", "inputSchema": schema}]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "time", "version": "1"}
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        reply["result"] = {"tools": tools}
    elif message["method"] == "tools/call":
        now = {"timezone": message["params"].get("arguments", {}).get("timezone"), "hour": 12}
        content = [{"type": "text", "text": json.dumps(now)}]
        reply["result"] = {"content": content, "structuredContent": now}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def time_server(machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "time_server.py"
    program.write_text(TIME_SERVER)
    entry = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"], "approval": "allow"}
    machine.write_user(json.dumps({"servers": {"time": entry}}))


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.usefixtures("time_server")
@pytest.mark.parametrize("number", range(len(blocks_of(PAGE.read_text(encoding="utf-8")))))
def test_an_example_of_the_page_prints_what_it_says(machine: Machine, number: int) -> None:
    block = blocks_of(PAGE.read_text(encoding="utf-8"))[number]
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", block],
        env=machine.env,
        cwd=machine.project,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == re.findall(r"# → (.*)", block)


def documented(module: Any, seen: set[int]) -> Iterator[tuple[str, str]]:
    """The examples in the docstrings of public classes and functions, and of their methods."""
    for name in module.__all__:
        value = getattr(module, name)
        found = [(name, value)]
        if inspect.isclass(value):
            found += [(f"{name}.{key}", each) for key, each in vars(value).items() if not key.startswith("_")]
        for path, each in found:
            each = getattr(each, "__func__", each)
            if id(each) not in seen and (text := getattr(each, "__doc__", None)):
                seen.add(id(each))
                for block in blocks_of(inspect.cleandoc(text)):
                    yield path, block


EXAMPLES = list(documented(fairlead, set()))


def test_the_main_entrances_have_examples() -> None:
    names = {name for name, _ in EXAMPLES}
    assert {"HostOpening", "EventStream", "ToolEntry", "ToolResult", "Host.call", "SyncHost", "open"} <= names


@pytest.mark.blocks_loop
@pytest.mark.usefixtures("time_server")
@pytest.mark.parametrize(("name", "block"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
async def test_an_example_in_a_docstring_runs(name: str, block: str) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block, name, "exec", flags=flags)

    class CurrentTime(pydantic.BaseModel):
        timezone: str
        hour: int

    with anyio.fail_after(SECONDS):
        async with Host.open() as host:
            result = await host.call("time.get_current_time", timezone="UTC")
            public = {each: getattr(fairlead, each) for each in fairlead.__all__ if each != "open"}
            given: dict[str, Any] = {
                "host": host,
                "result": result,
                "CurrentTime": CurrentTime,
                "fairlead": fairlead,
                "pydantic": pydantic,
            }
            scope = public | given
            if not inspect.CO_COROUTINE & code.co_flags:
                await anyio.to_thread.run_sync(exec, code, scope)
                return
            begun: Any = eval(code, scope)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: begun)
                await host.call("time.get_current_time", timezone="UTC")
                if "host.events()" in block:
                    await host.aclose()  # which ends the events
