"""The synchronous host: every verb waits, in any thread and beside any loop, and nothing is left behind."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

import fairlead
from fairlead import (
    ApprovalRequest,
    Callbacks,
    ConfigError,
    FairleadError,
    Host,
    McpToolCallEnd,
    SyncHost,
    SyncToolset,
    Toolset,
    UnknownServer,
    WaitTimedOut,
    WouldBlock,
)
from fairlead.host import sync_host
from fairlead.host.extensions import ExtensionMessages
from fairlead.host.loop_thread import LoopThread
from fairlead.host.offers.prompts import Prompts
from fairlead.host.offers.resources import Resources
from fairlead.host.offers.skills import Skills
from fairlead.host.offers.tasks import Tasks
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS, is_running, unasked
from tests.loops import LOOPS

pytestmark = pytest.mark.requirement("HARD-88")

INTERNAL = {
    "parts", "bus", "end", "close_with", "aclose", "open", "propose", "reach", "catalog", "wait_for_catalog",
    "statuses_besides", "tracer", "find", "error_result", "login_hint", "waiting_for_login",
    "wait_until_settled",
}  # fmt: skip
"""Public methods that are of use to the package alone, or are `close` here."""


def opened(machine: Machine, servers: dict[str, Any], **options: Any) -> SyncHost:
    return fairlead.open(overrides=unasked(servers), env=machine.env, cwd=machine.project, **options)


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=["echo", "pid", "wait"])


def verbs_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "sync", "left_out"),
    [
        (Host, SyncHost, INTERNAL),
        (
            Toolset,
            SyncToolset,
            {
                *("find", "error_result", "login_hint", "waiting_for_login", "wait_until_settled"),
                *("note_call", "rank", "unavailable_to_model", "without_images"),
            },
        ),
        (Resources, sync_host.SyncResources, set[str]()),
        (Prompts, sync_host.SyncPrompts, set[str]()),
        (Tasks, sync_host.SyncTasks, set[str]()),
        (ExtensionMessages, sync_host.SyncExtensionMessages, set[str]()),
        (Skills, sync_host.SyncSkills, set[str]()),
    ],
)
def test_every_verb_is_there_with_its_documentation(kind: type, sync: type, left_out: set[str]) -> None:
    assert verbs_of(kind) - verbs_of(sync) <= left_out
    for name in verbs_of(kind) & verbs_of(sync):
        assert not inspect.iscoroutinefunction(getattr(sync, name))
        assert inspect.getdoc(getattr(sync, name))


def test_calls_lists_and_tools(machine: Machine, server: ScriptedServer) -> None:
    before = threading.enumerate()
    with opened(machine, {"a": server.entry()}) as host:
        assert "7" in host.call("a.echo", x=7).text
        assert "8" in host.call("a", "echo", {"x": 8}).text
        assert {entry.name for entry in host.tools_of("a")} == {"echo", "pid", "wait"}
        assert [status.state for status in host.status()] == ["ready"]
        tools = host.tools.for_openai()
        (name,) = [tool["name"] for tool in tools.definitions if "echo" in tool["name"]]
        assert "9" in tools.call(name, {"x": 9}).text
        assert host.tools.search("echo").hits
        assert len(host.tools.ready().catalog) == 3
        with pytest.raises(UnknownServer):
            host.call("b.echo")
        pid = int(host.call("a.pid").text)
        host.close("a")
        assert not is_running(pid)
        assert repr(host) == "<SyncHost of <Host: open; servers: 1 idle>>"
    with pytest.raises(FairleadError, match="closed"):
        host.call("a.echo")
    host.close()
    assert threading.enumerate() == before


def test_the_servers_of_a_selection_are_there_for_codex_seed_001(machine: Machine) -> None:
    servers = {"files": {"command": "files"}, "web": {"url": "https://example.com/mcp"}}
    overrides = unasked(servers, bundles={"one": {"serverId": "web", "allowTools": ["read"]}})
    with fairlead.open(overrides=overrides, env=machine.env, cwd=machine.project) as host:
        everything = host.tools.to_codex_mcp_servers_config()
        one = host.toolset("one").to_codex_mcp_servers_config()
    assert everything.document["mcp_servers"]["files"]["command"] == "files"
    assert set(everything.document["mcp_servers"]) == {"files", "web"}
    assert one.document["mcp_servers"]["web"]["enabled_tools"] == ["read"]
    assert set(one.document["mcp_servers"]) == {"web"}


def test_tools_of_frameworks_work_without_a_loop(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host:
        (tool,) = [tool for tool in host.tools.for_langchain() if "echo" in tool.name]
        assert "5" in str(tool.invoke({"x": 5}))
        assert "6" in str(asyncio.run(tool.ainvoke({"x": 6})))
        (agents,) = [tool for tool in host.tools.for_pydantic_ai() if "echo" in tool.name]
        function: Any = agents.function
        assert "7" in str(asyncio.run(function(x=7)))


def test_events_are_a_plain_iterator_and_end_with_the_host(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host:
        events, second = host.events(), host.events()
        host.call("a.echo")
        assert any(isinstance(event, McpToolCallEnd) for event in events)
        with host.fail_after(0.05), pytest.raises(WaitTimedOut):
            for _ in events:
                pass
        second.close()
        assert any(isinstance(event, McpToolCallEnd) for event in second)
        told: list[Any] = []
        reader = threading.Thread(target=lambda: told.extend(events))
        reader.start()
    reader.join(SECONDS)
    assert not reader.is_alive()
    assert list(events) == []


def test_several_threads_use_one_host(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host, ThreadPoolExecutor(8) as pool:

        def call(number: int) -> str:
            return host.call("a.echo", x=number).text

        results = list(pool.map(call, range(40)))
    assert all(str(number) in text for number, text in enumerate(results))
    assert server.starts == 1


@pytest.mark.blocks_loop
@pytest.mark.parametrize("anyio_backend", LOOPS, indirect=True)
async def test_it_works_where_a_loop_is_running(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host:
        assert "1" in host.call("a.echo", x=1).text
        assert "2" in (await anyio.to_thread.run_sync(lambda: host.call("a.echo", x=2))).text


def test_time_is_bounded_and_the_call_cancelled(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host:
        host.call("a.echo")
        events = host.events()
        with host.fail_after(60), host.fail_after(0.2), pytest.raises(WaitTimedOut) as caught:
            host.call("a.wait")
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.delivery == "unknown"
        end = next(event for event in events if isinstance(event, McpToolCallEnd))
        assert end.error == "cancelled"
        assert host.call("a.echo").text


def test_plain_functions_answer_and_hear_of_progress(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "tick"])
    asked: list[ApprovalRequest] = []
    progress: list[float] = []

    def approve(request: ApprovalRequest) -> Any:
        asked.append(request)
        assert host.status()  # it may use the host
        return "session"

    def report(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    plain: Any = Callbacks(on_approve=approve)
    anything: Any
    with opened(machine, {"a": server.entry(approval="ask")}, operator=plain) as host:
        host.call("a.echo", x=1)
        anything = host
        anything.call("a", "tick", {"times": 3, "seconds": 0.01}, on_progress=report)
    assert [request.tool for request in asked] == ["echo", "tick"]
    assert progress


def test_an_asynchronous_callback_that_would_wait_for_itself_is_told(
    machine: Machine, server: ScriptedServer
) -> None:
    found: list[FairleadError] = []

    async def approve(_request: ApprovalRequest) -> Any:
        try:
            host.status()
        except WouldBlock as exc:
            found.append(exc)
        return "once"

    entry = server.entry(approval="ask")
    with opened(machine, {"a": entry}, operator=Callbacks(on_approve=approve)) as host:
        host.call("a.echo")
    assert "plain functions" in str(found[0].hint)


def test_what_is_wrong_with_the_configuration_is_raised_and_leaves_no_thread(machine: Machine) -> None:
    before = threading.enumerate()
    with pytest.raises(ConfigError):
        fairlead.open(path=machine.project / "missing.json", env=machine.env, cwd=machine.project)
    assert threading.enumerate() == before


def test_a_host_that_is_dropped_warns_and_ends(machine: Machine, server: ScriptedServer) -> None:
    def use() -> int:
        host = opened(machine, {"a": server.entry()})
        return int(host.call("a.pid").text)

    with pytest.warns(ResourceWarning, match="not closed"):
        pid = use()
    deadline = time.monotonic() + SECONDS
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def test_a_forked_process_is_told_to_open_its_own(machine: Machine, server: ScriptedServer) -> None:
    with opened(machine, {"a": server.entry()}) as host:
        child = os.fork()
        if child == 0:
            try:
                host.status()
            except WouldBlock:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert host.status()


PROGRAM = """
import os, sys
from pathlib import Path
import fairlead
from fairlead.testing import ScriptedServer

home = Path(sys.argv[1])
server = ScriptedServer(home / "record", tools=["echo", "pid", "wait"])
document = {"servers": {"a": server.entry()}, "policy": {"approval": "allow"}}
env = {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
host = fairlead.open(overrides=document, env=env, cwd=home)
print(host.call("a.pid").text, flush=True)
"""


def run_program(tmp_path: Path, more: str = "") -> "subprocess.Popen[str]":
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + more)
    return subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_while_a_call_is_handed_to_the_loop_cancels_it() -> None:
    thread = LoopThread()
    begun, ended = threading.Event(), threading.Event()

    class InterruptedPortal:
        """A portal where Ctrl-C comes once the first work runs, before its future is known."""

        def __init__(self, portal: Any) -> None:
            self.portal = portal
            self.is_first = True

        def start_task_soon(self, function: Any) -> Any:
            future = self.portal.start_task_soon(function)
            if self.is_first:
                self.is_first = False
                assert begun.wait(SECONDS)
                raise KeyboardInterrupt
            return future

    async def work() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    vars(thread)["_portal"] = InterruptedPortal(vars(thread)["_portal"])
    with pytest.raises(KeyboardInterrupt):
        thread.run(work)
    assert ended.is_set()
    assert thread.run(lambda: 5) == 5
    thread.stop()


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "host.tools.search('echo'); del host"])
def test_a_program_that_closes_nothing_exits_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    process = run_program(tmp_path, ending)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert not is_running(int(out))


def test_ctrl_c_cancels_the_call_and_the_host_goes_on(tmp_path: Path) -> None:
    more = """
events = host.events()
print("calling", flush=True)
try:
    host.call("a.wait")
except KeyboardInterrupt:
    print("interrupted", flush=True)
ended = next(event for event in events if isinstance(event, fairlead.McpToolCallEnd))
print(ended.error, host.call("a.echo", x=5).is_error)
host.close()
"""
    process = run_program(tmp_path, more)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == "calling\n"
    server = ScriptedServer(tmp_path / "record")
    deadline = time.monotonic() + SECONDS
    while not server.calls("wait") and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out == "interrupted\ncancelled False\n"
    assert not is_running(pid)
