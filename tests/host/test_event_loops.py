"""The library on the event loops of other programs: README snippets under `asyncio.run`, uvloop, Jupyter."""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from fairlead.testing.fixtures import open_host
from tests.conftest import Machine
from tests.loops import LOOPS, backend_of

README = Path(__file__).parents[2] / "README.md"
SERVERS = Path(__file__).parents[1] / "fixtures"
SECONDS = 60


TIME_SERVER = """
import json, sys
tools = [{"name": "get_current_time", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "time", "version": "1"}
    elif message["method"] == "tools/list":
        result = {"tools": tools}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "it is noon"}]}
    elif message["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}))
        sys.stdout.flush()
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def snippets() -> list[str]:
    """Return the Python code in the README, block by block."""
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def snippet_with(text: str) -> str:
    (found,) = [snippet for snippet in snippets() if text in snippet]
    return found


def run_main(machine: Machine, body: str) -> str:
    """Run code as a program's `main`, under `asyncio.run` in a process of its own; return what it printed."""
    script = machine.project / "main.py"
    script.write_text(
        "async def main():\n" + textwrap.indent(body, "    ") + "\n\nimport asyncio\nasyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script)],
        env=machine.env,
        cwd=machine.project,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "NoEventLoopError" not in done.stderr
    return done.stdout


@pytest.fixture
def time_server(machine: Machine) -> None:
    program = machine.project / "time_server.py"
    program.write_text(TIME_SERVER)
    entry = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"], "approval": "allow"}
    machine.write_user(json.dumps({"servers": {"time": entry}}))


@pytest.mark.requirement("HARD-88")
def test_sniffio_is_installed_so_that_anyio_does_not_guess_its_loop() -> None:
    assert importlib.util.find_spec("sniffio") is not None


@pytest.mark.requirement("HARD-88")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_tests_event_loop_is_as_bare_as_a_program_s_own(loop: str) -> None:
    """Callbacks see no backend of anyio, or these tests would prove nothing."""

    def outcome_in_callback() -> Exception | None:
        try:
            anyio.CancelScope()
        except anyio.NoEventLoopError as exc:
            return exc
        return None

    def run() -> Exception | None:
        _, options = backend_of(loop)
        with asyncio.Runner(loop_factory=options["loop_factory"]) as runner:

            async def main() -> Exception | None:
                running = asyncio.get_running_loop()
                found = running.create_future()
                running.call_soon(lambda: found.set_result(outcome_in_callback()))
                return await found

            return runner.run(main())

    assert isinstance(await anyio.to_thread.run_sync(run), anyio.NoEventLoopError)


@pytest.mark.requirement("HARD-88")
@pytest.mark.usefixtures("time_server")
def test_the_readme_s_first_snippet_runs(machine: Machine) -> None:
    assert run_main(machine, snippet_with("get_current_time")) == "it is noon None False\n"


@pytest.mark.requirement("HARD-88")
@pytest.mark.usefixtures("time_server")
def test_the_readme_s_snippet_for_a_model_runs(machine: Machine) -> None:
    body = """\
from types import SimpleNamespace as Object
from fairlead import Host
from fairlead.adapters.openai import openai_arguments

def create(model, input, tools):
    (call.name,) = [tool["name"] for tool in tools if "current_time" in tool["name"]]

client = Object(responses=Object(create=create))
call = Object(arguments="{}")
async with Host.open() as host:
"""
    body += textwrap.indent(snippet_with("for_openai()"), "    ")
    body += "    print(result.text)\n"
    assert "it is noon" in run_main(machine, body)


@pytest.mark.requirement("HARD-88")
def test_the_readme_s_greeter_runs(machine: Machine) -> None:
    body = snippet_with("greeter.serve").replace("port=8765", "port=0")
    assert run_main(machine, body) == "{'text': 'Hello, Ada!'}\n"


@pytest.mark.requirement("HARD-88")
def test_built_in_servers_start(machine: Machine) -> None:
    machine.env.pop("FAIRLEAD_BUILTINS")
    (machine.project / "notes.txt").write_text("a note")
    (machine.project / ".git").mkdir()
    body = """\
from fairlead import Host
async with Host.open() as host:
    print((await host.call("repo", "repo.readFile", {"path": "notes.txt"}, confirmed=True)).text)
"""
    assert "a note" in run_main(machine, body)


PROGRESS_AND_RESULT_IN_ONE_READ = r"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    key, method = message["id"], message["method"]
    if method == "initialize":
        info = {"name": "quick", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        token = message["params"]["_meta"]["progressToken"]
        report = {"progressToken": token, "progress": 1, "message": "half"}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": report})
        done = json.dumps({"jsonrpc": "2.0", "id": key, "result": {"content": []}})
        sys.stdout.write(note + "\n" + done + "\n")
        sys.stdout.flush()
        continue
    else:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": key, "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": key, "result": result}), flush=True)
"""


@pytest.mark.requirement("HARD-88")
@pytest.mark.parametrize("anyio_backend", LOOPS, indirect=True)
async def test_progress_and_result_in_one_read_both_arrive(machine: Machine) -> None:
    program = machine.project / "quick.py"
    program.write_text(PROGRESS_AND_RESULT_IN_ONE_READ)
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    quick = {"command": sys.executable, "args": [str(program)], "allow_tools": ["*"]}
    async with open_host(machine.home / "host", seconds=SECONDS, quick=quick) as host:
        await host.call("quick", "work", on_progress=report)

    assert reports == [(1.0, None, "half")]


@contextmanager
def kernel(machine: Machine) -> Generator[BlockingKernelClient]:
    """Run a Jupyter kernel as a notebook does, in a process of its own."""
    manager = KernelManager()
    manager.connection_file = str(machine.project / "kernel.json")
    manager.start_kernel(env=machine.env, cwd=str(machine.project))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


def run_cell(client: BlockingKernelClient, code: str) -> str:
    """Run a cell and return what it printed; what it raised fails the test."""
    printed: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=SECONDS, output_hook=hear, allow_stdin=False)
    content = reply["content"]
    assert content["status"] == "ok", "\n".join(content.get("traceback", [])) + "".join(printed)
    return "".join(printed)


@pytest.mark.requirement("HARD-88")
@pytest.mark.usefixtures("time_server")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cells_of_a_notebook_run(machine: Machine) -> None:
    with kernel(machine) as client:
        for _ in range(2):
            assert run_cell(client, snippet_with("get_current_time")) == "it is noon None False\n"
        greeted = run_cell(client, snippet_with("greeter.serve").replace("port=8765", "port=0"))
        assert greeted == "{'text': 'Hello, Ada!'}\n"


@pytest.mark.requirement("HARD-88")
@pytest.mark.usefixtures("time_server")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_host_stays_open_over_the_cells_of_a_notebook(machine: Machine) -> None:
    call = 'print((await host.call("time.get_current_time")).text)'
    with kernel(machine) as client:
        run_cell(client, "import fairlead; host = await fairlead.Host.open(); events = host.events()")
        assert run_cell(client, call) == "it is noon\n"
        read = "async for e in events:\n  print(e)\n  if 'End' in repr(e): break"
        assert "McpToolCallEnd" in run_cell(client, read)
        run_cell(client, "await host.aclose()")
        run_cell(client, "host = fairlead.open()")
        assert run_cell(client, call.replace("await ", "")) == "it is noon\n"
        run_cell(client, "host.close()")


CLOSED = """
import asyncio, os, sys
from pathlib import Path

import anyio
import uvloop

from fairlead import Host
from fairlead.testing import ScriptedServer

loop, home = sys.argv[1], Path(sys.argv[2])
server = ScriptedServer(home / "record", tools=["echo"])
document = {"servers": {"a": server.entry()}, "policy": {"approval": "allow"}}
env = {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}


async def main():
    with anyio.fail_after(60):
        async with Host.open(overrides=document, env=env, cwd=home) as host:
            result = await host.call("a", "echo", {"x": 1})
            os.write(2, b"stray words of a library, which belong into no file of ours")
            result = await host.call("a", "echo", {"x": 2})
    (home / "done").write_text(result.text)


{"asyncio": asyncio.run, "anyio": lambda work: anyio.run(main), "uvloop": uvloop.run}[loop](main())
"""


@pytest.mark.requirement("HARD-88")
@pytest.mark.parametrize(
    ("loop", "closed"),
    [
        ("asyncio", "<&- >&- 2>&-"),
        ("anyio", "<&- >&- 2>&-"),
        ("uvloop", "<&- >&- 2>&-"),
        ("uvloop", "<&-"),
        ("uvloop", ">&- 2>&-"),
    ],
)
def test_the_library_works_where_standard_descriptors_are_closed(
    tmp_path: Path, loop: str, closed: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(CLOSED.replace("(main())", "(main)" if loop == "anyio" else "(main())"))
    line = f'exec "$0" "$1" {loop} "$2" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, str(program), str(tmp_path)], timeout=120, check=False
    )
    assert done.returncode == 0
    assert "2" in (tmp_path / "done").read_text()
    store = tmp_path / ".local" / "state" / "fairlead" / "state.db"
    assert b"stray words" not in store.read_bytes()
