"""Headers that a program prints."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from yarl import URL

from fairlead.connection.outcomes import HeadersUnavailable
from fairlead.connection.transport.http_endpoint import RejectedRequest
from fairlead.connection.transport.request_headers import HeadersHelper, parse_headers
from tests.connection.http_support import SECONDS, call_text, connected
from tests.fixtures.hostile_http import serving

THERE = URL("https://example.org/mcp")


def helper(
    code: str, *arguments: str, fixed: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> HeadersHelper:
    argv = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return HeadersHelper(argv, environment={"GREETING": "hello"}, fixed=fixed, seconds=seconds)


@pytest.mark.parametrize(
    "output",
    [
        b"Authorization: Bearer a:b\nX-Team: blue\n",
        b"\r\nAuthorization:Bearer a:b\r\n\r\nX-Team:   blue",
        b'{"Authorization": "Bearer a:b", "X-Team": "blue"}\n',
    ],
)
def test_headers_are_lines_or_an_object(output: bytes) -> None:
    assert parse_headers(output) == {"Authorization": "Bearer a:b", "X-Team": "blue"}


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"  \n",
        b"{}",
        b'{"Authorization": 1}',
        b'{"Authorization": ',
        b"secret",
        b"Two Words: secret",
        b"X: sec\x00ret",
        b'{"X": "sec\\r\\nret: 1"}',
        b": secret",
    ],
)
def test_what_is_neither_is_refused_without_being_told(output: bytes) -> None:
    with pytest.raises(HeadersUnavailable) as caught:
        parse_headers(output)
    assert "sec" not in str(caught.value)


async def test_the_program_sees_the_environment_it_is_given_and_no_shell() -> None:
    code = "import os, sys; print('X-Greeting:', os.environ['GREETING']); print('X-Arg:', *sys.argv[1:])"
    source = helper(code, "; echo $HOME")
    assert dict(await source("POST", THERE)) == {"X-Greeting": "hello", "X-Arg": "; echo $HOME"}


async def test_what_it_prints_goes_before_what_is_fixed() -> None:
    source = helper("print('x-team: red')", fixed={"X-Team": "blue", "X-Other": "1"})
    headers = await source("POST", THERE)
    assert headers["X-Team"] == "red"
    assert len(headers) == 2


async def test_it_runs_once_until_a_server_refuses_what_it_printed(tmp_path: Path) -> None:
    log = tmp_path / "runs"
    code = f"f = open({str(log)!r}, 'a+'); f.write('x'); f.seek(0); print('X-Run:', len(f.read()))"
    source = helper(code)
    first = await source("POST", THERE)
    assert first == await source("POST", THERE) == {"X-Run": "1"}

    refused = RejectedRequest(www_authenticate=None, refused=first)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(source, "POST", THERE, refused)
    assert await source("POST", THERE) == {"X-Run": "2"}
    assert log.read_text() == "xx"


async def test_a_server_gets_the_headers_again_after_a_401(tmp_path: Path) -> None:
    log = tmp_path / "runs"
    code = (
        f"f = open({str(log)!r}, 'a+'); f.write('x'); f.seek(0); "
        "print('Authorization: Bearer', 'wrong' if len(f.read()) == 1 else 'right')"
    )
    async with serving("token") as server, connected(server, headers=helper(code)) as dispatcher:
        assert await call_text(dispatcher, "echo") == "{}"
    assert log.read_text() == "xx"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('\\x1b[31mno key')", "exited with code 1: no key"),
        ("print('x' * 100_000)", "printed more than 65536 bytes"),
        ("while True: print('x')", "printed more than 65536 bytes"),
        ("import sys\nwhile True: sys.stderr.write('x\\n')", "was not done within 1 s"),
        ("import time; time.sleep(600)", "was not done within 1 s"),
    ],
)
async def test_a_program_that_fails_is_a_request_that_was_not_sent(code: str, message: str) -> None:
    with anyio.fail_after(SECONDS), pytest.raises(HeadersUnavailable, match=message) as caught:
        await helper(code, seconds=1)("POST", THERE)
    assert caught.value.delivery == "not_sent"


async def test_a_program_that_is_not_there_is_said_to_be_missing() -> None:
    source = HeadersHelper(["/no/such/program"], environment={})
    with pytest.raises(HeadersUnavailable, match="'/no/such/program' cannot be run"):
        await source("POST", THERE)


@pytest.mark.requirement("NEED-1")
async def test_nothing_of_a_program_is_left_behind() -> None:
    begun, gone = anyio.Event(), anyio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(watch, "127.0.0.1", 0) as listener:
        address = listener.sockets[0].getsockname()
        child = f"import socket, time; s = socket.create_connection({address}); time.sleep(600)"
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', {child!r}])"
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(helper(code), "POST", THERE)
                await begun.wait()
                tasks.cancel_scope.cancel()
            await gone.wait()
