import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from fairlead.connection.outcomes import AnswerUnreadable, ConnectionClosed, RequestExpired, SpawnFailed
from fairlead.connection.process.child import Command
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import Context, call_json, call_large, call_tool, hostile, running
from tests.loops import LOOPS, backend_of


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """All of them, always: this is where our own reading and writing meets the event loop."""
    return backend_of(request.param)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_call_goes_there_and_back() -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert await call_json(dispatcher, "echo", text="hællo\n") == {"text": "hællo\n"}

    assert dispatcher.ending is not None
    assert dispatcher.ending.kind == "closed"


async def test_many_calls_at_once_find_their_own_answers() -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):

        async def call(number: int) -> None:
            assert await call_json(dispatcher, "echo", number=number) == {"number": number}

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(call, number)


@pytest.mark.requirement("HARD-5")
async def test_arguments_are_never_read_by_a_shell(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    arguments = [
        f"stderr=; touch {trap}",
        f"stderr=$(touch {trap})",
        f"stderr=`touch {trap}` && *",
        "stderr=",
    ]

    async with StdioDispatcher(hostile(*arguments)) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert await call_json(dispatcher, "arguments") == arguments

    assert not trap.exists()


@pytest.mark.requirement("HARD-6")
async def test_a_server_gets_three_pipes_and_none_of_our_files(tmp_path: Path) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        async with (
            StdioDispatcher(hostile()) as one,
            StdioDispatcher(hostile()) as other,
            running(one, other),
        ):
            with anyio.fail_after(20):
                for dispatcher in (one, other):
                    files: list[str] = await call_json(dispatcher, "files")
                    # The null device it opened itself.
                    kinds = [file.partition(":")[0] for file in files if file != os.devnull]
                    assert kinds == ["pipe"] * 3
    finally:
        os.close(secret)


@pytest.mark.requirement("HARD-6", "NEED-23")
async def test_a_server_sees_declared_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("SSL_CERT_FILE", "/certificates.pem")
    command = hostile(env={"DECLARED": "yes"})

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            environment = await call_json(dispatcher, "environment")

    assert environment["DECLARED"] == "yes"
    assert environment["SSL_CERT_FILE"] == "/certificates.pem"
    assert environment["PATH"] == os.environ["PATH"]
    assert "OPENAI_API_KEY" not in environment


async def test_a_server_starts_in_its_folder_and_finds_programs_on_its_path(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "my-server"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\npwd >&2\nexec {' '.join(hostile().argv)}\n")
    program.chmod(0o755)
    command = Command(
        argv=("my-server",), env={"PATH": f"{program.parent}:{os.environ['PATH']}"}, cwd=tmp_path
    )

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, "echo")

    assert dispatcher.stderr.tail.lines == (str(tmp_path),)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command(argv=("no-such-program-anywhere",)), "there is no program no-such-program-anywhere"),
        (Command(argv=("/etc/passwd",)), "/etc/passwd may not be run"),
        (Command(argv=("cat",), cwd=Path("/no/such/folder")), "there is no folder /no/such/folder"),
        (Command(argv=("cat", "a\0b")), "cat cannot be run"),
    ],
)
async def test_a_server_that_cannot_start_says_why(command: Command, message: str) -> None:
    with pytest.raises(SpawnFailed, match=message) as caught:
        async with StdioDispatcher(command):
            pass

    assert caught.value.delivery == "not_sent"


@pytest.mark.requirement("HARD-11")
@pytest.mark.parametrize("tool", ["garbage", "escapes", "byte-by-byte", "float-id", "string-id"])
async def test_noise_on_stdout_is_skipped_and_the_session_lives(tool: str) -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, tool)
            await call_tool(dispatcher, "echo")

    if tool == "garbage":
        assert dispatcher.noise.lines[:2] == ("Listening on port 3000", "ready")
    else:
        assert dispatcher.noise.lines == ()


@pytest.mark.requirement("HARD-12")
async def test_bytes_that_are_no_utf8_cost_one_character() -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert await call_tool(dispatcher, "not-utf8") == "caf\ufffd"


@pytest.mark.requirement("HARD-13")
@pytest.mark.parametrize("tool", ["long-integer", "nan", "huge-float", "deep", "id-last", "not-an-object"])
async def test_an_answer_nobody_can_read_is_an_error_at_once(tool: str) -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            with pytest.raises(AnswerUnreadable) as caught:
                await call_tool(dispatcher, tool, opts={})
            await call_tool(dispatcher, "echo")

    assert caught.value.delivery == "done"


@pytest.mark.requirement("HARD-16")
async def test_an_answer_over_the_limit_costs_its_own_call_alone() -> None:
    beside: list[str] = []
    refused: list[AnswerUnreadable] = []
    async with StdioDispatcher(hostile(), max_line_bytes=100_000) as dispatcher, running(dispatcher):

        async def call_beside() -> None:
            beside.append(await call_tool(dispatcher, "giant", {"bytes": 90_001}))

        async def call_too_much() -> None:
            with pytest.raises(AnswerUnreadable) as caught:
                await call_tool(dispatcher, "giant", {"bytes": 1_000_000})
            refused.append(caught.value)

        with anyio.fail_after(20):
            assert len(await call_tool(dispatcher, "giant", {"bytes": 90_000})) == 90_000
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_beside)
                tasks.start_soon(call_too_much)
            assert len(await call_tool(dispatcher, "giant", {"bytes": 90_002})) == 90_002

    assert len(beside[0]) == 90_001
    assert "100000 bytes" in refused[0].message
    assert refused[0].delivery == "done"


@pytest.mark.requirement("HARD-16")
async def test_output_without_a_newline_closes_the_connection() -> None:
    command = hostile("stdout-for-ever=x", exit_seconds=0.1)

    async with StdioDispatcher(command, max_line_bytes=1_000_000) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert (await dispatcher.wait_closed()).kind == "overflow"


async def test_a_large_message_passes_both_ways_where_the_limit_allows_it() -> None:
    text = "x" * 20_000_000

    async with StdioDispatcher(hostile(), max_line_bytes=64_000_000) as dispatcher, running(dispatcher):
        with anyio.fail_after(60):
            assert await call_large(dispatcher, "echo", text=text) == {"text": text}


@pytest.mark.requirement("HARD-17")
async def test_a_crash_fails_every_waiter_at_once_with_what_is_known() -> None:
    caught: list[ConnectionClosed] = []

    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):

        async def call(tool: str) -> None:
            with pytest.raises(ConnectionClosed) as one:
                await dispatcher.call_raw("tools/call", {"name": tool})
            caught.append(one.value)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for tool in ("silence", "silence", "crash"):
                    tasks.start_soon(call, tool)
            with pytest.raises(ConnectionClosed) as later:
                await call_tool(dispatcher, "echo")

    assert [one.delivery for one in caught] == ["unknown"] * 3
    assert later.value.delivery == "not_sent"
    ending = later.value.ending
    assert (ending.kind, ending.signal, ending.exit_code) == ("exited", signal.SIGKILL, None)
    assert ending.message == "the server was killed by SIGKILL"
    assert ending.stderr == ("Traceback: it is over",)


@pytest.mark.requirement("HARD-17")
async def test_an_exit_is_noticed_without_a_call() -> None:
    async with StdioDispatcher(hostile("stderr=no licence", "exit=3")) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            ending = await dispatcher.wait_closed()

        assert (ending.kind, ending.exit_code, ending.stderr) == ("exited", 3, ("no licence",))


async def test_last_words_need_no_newline() -> None:
    words = "import sys; sys.stderr.write('first\\nno licence'); sys.exit(3)"
    async with (
        StdioDispatcher(Command(argv=(sys.executable, "-c", words))) as dispatcher,
        running(dispatcher),
    ):
        with anyio.fail_after(20):
            await dispatcher.wait_closed()
        assert dispatcher.ending is not None
        assert dispatcher.ending.stderr == ("first", "no licence")


@pytest.mark.requirement("HARD-17")
async def test_a_server_that_is_gone_at_once_says_so() -> None:
    for _ in range(20):
        async with StdioDispatcher(Command(argv=("true",))) as dispatcher, running(dispatcher):
            with anyio.fail_after(20):
                assert (await dispatcher.wait_closed()).exit_code == 0


async def test_a_closed_stdout_is_noticed_though_the_process_lives() -> None:
    command = hostile(exit_seconds=0.1)

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20), pytest.raises(ConnectionClosed) as caught:
            await call_tool(dispatcher, "close-stdout")

    assert caught.value.ending.kind == "hung_up"


async def test_the_last_words_of_a_server_count_even_without_a_newline() -> None:
    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert await call_tool(dispatcher, "answer-and-exit") == ""


async def test_an_exit_is_noticed_though_a_grandchild_holds_the_pipes(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    command = hostile(f"grandchild={pid_file}", "exit=4", terminate_seconds=0.1)

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            assert (await dispatcher.wait_closed()).exit_code == 4

    assert not is_alive(int(pid_file.read_text()))


@pytest.mark.requirement("HARD-18")
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_server_that_ignores_everything_is_dead_within_5_seconds() -> None:
    command = hostile("ignore-sigterm", "serve", "sleep=600")

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, "echo")
        began = time.monotonic()

    assert time.monotonic() - began < 6
    assert dispatcher.returncode == -signal.SIGKILL


@pytest.mark.requirement("HARD-18", "NEED-1")
@pytest.mark.parametrize("kind", ["grandchild", "escaped-grandchild"])
async def test_what_a_server_leaves_behind_is_killed(kind: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = hostile(f"{kind}={pid_file}", terminate_seconds=0.1)

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, "echo")
        assert is_alive(int(pid_file.read_text()))

    assert dispatcher.returncode == 0
    assert not is_alive(int(pid_file.read_text()))


async def test_leaving_ends_the_server_even_when_cancelled(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    with anyio.fail_after(20), anyio.CancelScope() as scope:
        command = hostile(
            f"grandchild={pid_file}", "serve", "sleep=600", exit_seconds=0.1, terminate_seconds=0.1
        )
        async with StdioDispatcher(command) as dispatcher, running(dispatcher):
            await call_tool(dispatcher, "echo")
            scope.cancel()
            await anyio.sleep_forever()

    assert not is_alive(int(pid_file.read_text()))


@pytest.mark.requirement("HARD-20")
async def test_a_flood_on_stderr_is_bounded_and_clean(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flooded = StdioDispatcher(hostile("stderr-flood=100000"), stderr_log=tmp_path / "server.log")

    async with flooded as dispatcher, running(dispatcher):
        with anyio.fail_after(60):
            await call_tool(dispatcher, "echo", opts={})

    assert dispatcher.stderr.tail.lines[-1] == "line 99999 end"
    assert len(dispatcher.stderr.tail.lines) == 100
    for name in ("server.log", "server.log.1"):
        text = (tmp_path / name).read_text()
        assert len(text) <= 1024 * 1024
        assert "\x1b" not in text
    assert capfd.readouterr() == ("", "")


@pytest.mark.requirement("HARD-46")
async def test_a_flood_of_requests_from_the_server_is_survived() -> None:
    asked = 0

    async def answer(context: Context, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await anyio.sleep(0.001)
        return {"roots": []}

    async with (
        StdioDispatcher(hostile("ask=20000")) as dispatcher,
        running(dispatcher, on_request=answer),
    ):
        with anyio.fail_after(60):
            await call_tool(dispatcher, "echo", opts={})

    assert 64 <= asked < 20_000


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    record = tmp_path / "record"

    async with StdioDispatcher(hostile(f"serve={record}")) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, "echo")
            with anyio.move_on_after(0.05):
                await dispatcher.call_raw("tools/call", {"name": "silence"})
            with pytest.raises(RequestExpired):
                await dispatcher.call_raw("tools/call", {"name": "silence"}, {"timeout": 0.05})
            await call_tool(dispatcher, "echo")

    sent = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(message["method"], message["params"].get("requestId")) for message in sent] == [
        ("tools/call", None),
        ("tools/call", None),
        ("notifications/cancelled", 2),
        ("tools/call", None),
        ("notifications/cancelled", 3),
        ("tools/call", None),
    ]


async def test_a_server_that_does_not_read_makes_senders_wait_and_says_not_sent() -> None:
    command = hostile("sleep=600", exit_seconds=0.1)
    arguments = {"name": "echo", "arguments": {"text": "x" * 1_000_000}}

    async with StdioDispatcher(command) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            with pytest.raises(RequestExpired) as first:
                await dispatcher.call_raw("tools/call", arguments, {"timeout": 0.1})
            with pytest.raises(RequestExpired) as second:
                await dispatcher.call_raw("tools/call", arguments, {"timeout": 0.1})

    assert (first.value.delivery, second.value.delivery) == ("unknown", "not_sent")


async def test_an_exit_is_noticed_where_the_system_has_no_process_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(pid)

    monkeypatch.setattr(os, "pidfd_open", refuse)

    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20), pytest.raises(ConnectionClosed, match="exited with code 3"):
            await call_tool(dispatcher, "exit")


async def test_progress_reaches_the_caller() -> None:
    reports: list[tuple[float, float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            await call_tool(dispatcher, "progress", {"steps": 3}, {"on_progress": report})

    assert reports == [(1.0, 3.0, "step 1"), (2.0, 3.0, "step 2"), (3.0, 3.0, "step 3")]


async def test_bytes_that_span_lines_are_sent_as_one() -> None:
    arguments = msgspec.Raw(b'{\n  "a": 1\n}')

    async with StdioDispatcher(hostile()) as dispatcher, running(dispatcher):
        with anyio.fail_after(20):
            result = await dispatcher.send_raw_request("tools/call", {"name": "echo", "arguments": arguments})

    assert json.loads(result["content"][0]["text"]) == {"a": 1}
