"""What the user reads of a local server that did not start, or ended: the reason, wherever it was written."""

import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from fairlead.config.models import ServerLimits
from fairlead.connection.connection import Connection
from fairlead.connection.outcomes import ConnectionClosed
from fairlead.connection.process.child import Command
from fairlead.connection.supervisor import Supervisor
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import ConnectFailed, ConnectionLost, ServerError
from fairlead.testing import ScriptedServer
from tests.connection.servers import Context, answer_nothing, running
from tests.connection.test_connection import call, supervised, transport

LIMITS = ServerLimits()
SHORT = ServerLimits(startup_timeout_ms=1_500)


def program(code: str) -> Callable[[], AbstractAsyncContextManager[WireDispatcher]]:
    """A transport to a process that runs Python code."""

    @asynccontextmanager
    async def open_transport() -> AsyncGenerator[WireDispatcher]:
        async with StdioDispatcher(Command(argv=(sys.executable, "-I", "-S", "-c", code))) as dispatcher:
            yield dispatcher

    return open_transport


async def failure_of(code: str, limits: ServerLimits = LIMITS) -> ServerError:
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", limits, [program(code)], tasks=tasks))
        with pytest.raises(ConnectFailed) as raised:
            await connection.ready()
        assert connection.vitals.last_error is raised.value
        await connection.aclose()
    return raised.value


WRITE = "import os, sys, time; w = lambda text: os.write(2, text.encode());"


@pytest.mark.parametrize(
    ("code", "first_line"),
    [
        (
            WRITE + r"w('error: no --root\n\nUsage: x\n' + '  --more\n' * 300); sys.exit(2)",
            "code 2: error: no --root",
        ),
        (
            WRITE
            + r"w('loader:1\n  throw err;\n  ^\n\nError: Cannot find module \'y\'\n' + '    at z\n' * 50"
            r" + '\nNode.js v22\n'); sys.exit(1)",
            "code 1: Error: Cannot find module 'y'",
        ),
        (WRITE + r"w('fatal: no newline at the end'); sys.exit(3)", "code 3: fatal: no newline at the end"),
        ("import nope", "code 1: ModuleNotFoundError: No module named 'nope'"),
        ("raise SystemExit('STRIPE_KEY is required')", "code 1: STRIPE_KEY is required"),
        (WRITE + r"os.close(1); w('Error: late\n'); time.sleep(0.05); sys.exit(4)", ": Error: late"),
        (
            WRITE + r"w('x\n' * 20_000); w('Error: at the very end\n'); os._exit(7)",
            "code 7: Error: at the very end",
        ),
    ],
    ids=["usage", "node", "no-newline", "import", "exit", "stdout-closed", "after-much-else"],
)
async def test_the_reason_is_in_the_first_line_of_the_error(code: str, first_line: str) -> None:
    error = await failure_of(code)
    assert first_line in str(error).split("\n")[0]


async def test_a_start_that_takes_too_long_says_what_the_server_wrote() -> None:
    code = (
        WRITE
        + r"w('starting\nError: waiting for the database at db:5432\nenter a password: '); time.sleep(60)"
    )
    error = await failure_of(code, SHORT)
    first, *rest = str(error).split("\n")
    assert re.search(r"not ready after \d[\d.]* s: Error: waiting for the database", first)
    assert "  enter a password:" in rest
    assert "startup_timeout_ms" in (error.hint or "")


@pytest.mark.parametrize("ending", ["", "\\r", " ", "\\x00", "\\n\\n  \\n"])
async def test_a_last_line_without_a_newline_counts_in_a_start_that_takes_too_long(ending: str) -> None:
    code = WRITE + f"w('starting\\nError: waiting for the VPN{ending}'); time.sleep(60)"
    error = await failure_of(code, SHORT)
    assert "Error: waiting for the VPN" in str(error).splitlines()[0]


async def test_a_last_line_counts_that_comes_in_pieces_without_an_end() -> None:
    code = WRITE + "[(w(part), time.sleep(0.01)) for part in ('Err', 'or: ', 'no ', 'disk')]; os._exit(3)"
    assert str(await failure_of(code)).splitlines()[0].endswith("code 3: Error: no disk")


async def test_a_start_that_takes_too_long_says_nothing_of_how_it_was_ended() -> None:
    code = (
        WRITE + r"w('Error: waiting for the database\n'); time.sleep(60)"
    )  # SIGINT and SIGTERM leave traces
    error = await failure_of(f"import signal; signal.signal(15, lambda *_: 1 / 0); {code}", SHORT)
    assert "ZeroDivisionError" not in str(error)


async def test_the_start_timeout_bounds_the_whole_start() -> None:
    async with supervised() as tasks:
        connection = Connection(
            Supervisor(
                "x",
                ServerLimits(startup_timeout_ms=2_000),
                [program("import time; time.sleep(90)")],
                tasks=tasks,
            )
        )
        began = anyio.current_time()
        with pytest.raises(ConnectFailed, match="not ready after"):
            await connection.ready()
        told_after = anyio.current_time() - began
        await connection.aclose()
    # On an idle machine 2.0 s; it was 6 s when each process that does not answer had two seconds to exit.
    assert told_after < 5


async def test_what_a_server_writes_to_stdout_beside_the_protocol_is_said_where_stderr_is_empty() -> None:
    error = await failure_of("print('you need a licence'); raise SystemExit(1)")
    assert str(error).endswith(
        "code 1; it wrote to stdout, where only MCP messages belong: you need a licence"
    )
    assert "stderr" in (error.hint or "")


async def test_json_on_stdout_that_is_no_message_is_said() -> None:
    line = '{"level": "info", "text": "waiting for a licence"}'
    error = await failure_of(f"print('{line}'); raise SystemExit(1)")
    assert str(error).endswith(f"only MCP messages belong: {line}")


async def test_of_json_over_several_lines_one_with_words_is_said() -> None:
    error = await failure_of(r"""print('{\n "result": 1\n}'); raise SystemExit(1)""")
    assert 'only MCP messages belong: "result": 1\n' in str(error)


async def test_a_crash_of_a_server_that_worked_is_told_by_its_last_failure(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", stderr="Error: an optional plugin is missing")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))
        with pytest.raises(ConnectionLost) as raised:
            await call(connection, "crash")
        await connection.aclose()
    assert "exited" in str(raised.value)


async def test_the_last_error_is_forgotten_once_the_server_works_again(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", broken_starts=1)
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))
        with pytest.raises(ConnectFailed):
            await connection.ready()
        assert connection.vitals.last_error is not None
        assert connection.vitals.last_error_at is not None
        await connection.ready()
        assert connection.vitals.last_error is connection.vitals.last_error_at is None
        with pytest.raises(ConnectionLost):
            await call(connection, "crash")
        await call(connection, "echo")
        assert connection.vitals.last_error is None
        await connection.aclose()
        assert connection.vitals.last_error is None


async def test_a_circuit_that_is_open_names_the_last_error_and_its_hint() -> None:
    async with supervised() as tasks:
        connection = Connection(
            Supervisor("x", LIMITS, [program("raise SystemExit('Error: no key')")], tasks=tasks)
        )
        errors: list[ServerError] = []
        while not connection.backoff.is_open:
            with pytest.raises(ConnectFailed) as raised:
                await connection.ready()
            errors.append(raised.value)
        with pytest.raises(ConnectFailed, match=r"times in a row.*Error: no key"):
            await connection.ready()
        await connection.aclose()


EARLY = (
    "import json, sys; params = {'level': 'info', 'data': 1};"
    "note = {'jsonrpc': '2.0', 'method': 'notifications/message', 'params': params};"
    "print(json.dumps(note), flush=True); print('noise', flush=True); [None for _ in sys.stdin]"
)


async def test_what_a_server_says_before_it_is_listened_to_is_not_lost() -> None:
    heard = anyio.Event()

    async def note(_context: Context, method: str, _params: object) -> None:
        if method == "notifications/message":
            heard.set()

    with anyio.fail_after(20):
        async with StdioDispatcher(Command(argv=(sys.executable, "-I", "-S", "-c", EARLY))) as dispatcher:
            while not dispatcher.noise_lines():  # noqa: ASYNC110 - it has been read before `run`, which nothing tells
                await anyio.sleep(0.01)
            async with anyio.create_task_group() as tasks:
                await tasks.start(dispatcher.run, answer_nothing, note)
                await heard.wait()
                tasks.cancel_scope.cancel()
    assert dispatcher.noise.lines == ("noise",)


async def test_a_process_that_is_known_to_have_exited_is_sent_nothing_more() -> None:
    # A descendant keeps the pipes open, so that the connection does not end with the process.
    code = "import os, time; os.fork() or (time.sleep(30), os._exit(0)); os._exit(5)"
    with anyio.fail_after(20):
        command = Command(argv=(sys.executable, "-I", "-S", "-c", code))
        async with StdioDispatcher(command) as dispatcher, running(dispatcher):
            while dispatcher.returncode is None:  # noqa: ASYNC110 - nothing tells before the end
                await anyio.sleep(0.005)
            with pytest.raises(ConnectionClosed) as raised:
                await dispatcher.call_raw("tools/call", {"name": "x", "arguments": {}})
    assert raised.value.delivery == "not_sent"
    assert raised.value.ending.exit_code == 5
