"""Each failure of a server has the hint that mends it, whichever program or language it comes from."""

import signal
import sys
from pathlib import Path
from typing import Literal

import pytest

from fairlead.config.models import RemoteServer, ServerLimits
from fairlead.connection.connection import Connection
from fairlead.connection.failure_hints import hint_for_transport
from fairlead.connection.failures import call_failure, connect_failure, connecting, lost_error
from fairlead.connection.outcomes import (
    ConnectionClosed,
    ConnectionEnding,
    Credentials,
    HttpRejected,
    RequestRejected,
)
from fairlead.connection.process.child import Command
from fairlead.connection.supervisor import Supervisor
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import AuthRequired, ConnectFailed, ServerError
from tests.connection.test_connection import supervised


def ended(*stderr: str, code: int = 1, noise: tuple[str, ...] = ()) -> ServerError:
    """The error for a process that ended before it was ready."""
    ending = ConnectionEnding(
        kind="exited",
        message=f"the server exited with code {code}",
        exit_code=code,
        stderr=stderr,
        noise=noise,
        is_local=True,
    )
    return connect_failure("x", ConnectionClosed(ending, "unknown"), is_local=True)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/usr/bin/python3: No module named mcp_server_tme", "correct the name in `args`"),
        ("ModuleNotFoundError: No module named 'fastmcp'", "install the package that has this module"),
        ("python: No module named foo.__main__; 'foo' is a package", "cannot be run with `-m`"),
        ("python3: can't open file '/x/server.py': [Errno 2] No such file or directory", "path in `args`"),
        ("Error: Cannot find module '/srv/dist/index.js'", "path in `args`"),
        ("Error: Cannot find module 'zod'", "run `npm install`"),
        (
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /a/b.js",
            "run `npm install`",
        ),
        ("Error: Unable to access jarfile server.jar", "path in `args`"),
        ("npm error 404 Not Found - GET https://r.example/none - Not found", "no such package"),
        ("npm ERR! could not determine executable to run", "`-p`"),
        ("An executable named `a` is not provided by package `b`.", "`--from`"),
        (
            "error: Failed to fetch: https://r.example (invalid peer certificate: UnknownIssuer)",
            "SSL_CERT_FILE",
        ),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("error: Failed to fetch: `https://index.example/simple/x/`", "online"),
        ("npm error FetchError: request to https://r.example/x failed, reason: ENOTFOUND", "online"),
        ("Error: listen EADDRINUSE: address already in use :::3000", "another program has that port"),
        ("OSError: [Errno 98] Address already in use", "another program has that port"),
        ("/usr/bin/env: 'python3\\r': No such file or directory", "line ends of Windows"),
        ("/usr/bin/env: 'node': No such file or directory", "`PATH` in `env`"),
        ("sh: 1: uvicorn: not found", "`PATH` in `env`"),
        (
            "Error: STRIPE_API_KEY environment variable is required",
            '`"env": {"STRIPE_API_KEY": "${STRIPE_API_KEY}"}`',
        ),
        ("KeyError: 'GITHUB_TOKEN'", '"${GITHUB_TOKEN}"'),
        ("error: unrecognized arguments: --sdtio", "correct `args`"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start Docker"),
        ("docker: Error response from daemon: pull access denied for x", "no such image"),
        ("the input device is not a TTY", "take `-t` out"),
        ("PermissionError: [Errno 13] Permission denied: '/data'", "rights of what it names"),
        ("error while loading shared libraries: libfoo.so.1: cannot open shared object file", "library"),
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "memory"),
        ("Error: connect ECONNREFUSED 127.0.0.1:5432", "address in `args` or `env`"),
        ("npm error notarget No matching version found for cowsay@99.", "no such version"),
        ("npm error 403 403 Forbidden - GET https://r.example/x - permission_denied", "`npm login`"),
        ("error: Failed to parse: `@acme/server-time`", "write `npx` as `command`"),
        ("error: Failed to spawn: `mcp-server-foo`", "correct its name in `args`"),
        ("error: No `pyproject.toml` found in current directory or any parent directory", "`--directory`"),
        ("npm error enoent Could not read package.json: Error: ENOENT", "as `cwd`"),
        ('npm error Missing script: "mcp"', "name of a script"),
        ("npm error code ENOTEMPTY", "remove the folder `_npx`"),
        ("Error: ENOSPC: no space left on device, write", "the disk is full"),
        (
            "Because the current Python version (3.9.2) does not satisfy Python>=3.10 and foo needs that",
            "write `--python`",
        ),
        ("ReferenceError: fetch is not defined", "install the version"),
        ("TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'", "install the version"),
        ("ModuleNotFoundError: No module named 'tomllib'", "install the version"),
        ("You must install or update .NET to run this application.", "install the version"),
        (
            "Error reading config: SyntaxError: Unexpected token } in JSON at position 41",
            "JSON file or value",
        ),
        ("SyntaxError: Cannot use import statement outside a module", "its code cannot be read"),
        ("python: can't find '__main__' module in '/srv/server'", "path in `args`"),
        ("/usr/bin/env: \u2018node --no-warnings\u2019: No such file or directory", "`env -S`"),
        ('docker: Conflict. The container name "/mcp" is already in use by container "a"', "`--name`"),
        ("docker: permission denied while trying to connect to the Docker daemon socket", "group `docker`"),
        ("Error: Bind for 0.0.0.0:8080 failed: port is already allocated", "another program has that port"),
        ("ada@build: Permission denied (publickey,password).", "SSH_AUTH_SOCK"),
        ("Host key verification failed.", "once in a terminal"),
        ("sudo: a password is required", "take `sudo` out"),
        ("error: Uncaught NotCapable: Requires env access to A, run again with the --allow-env flag", "flag"),
        ("Error: browserType.launch: Executable doesn't exist at /x/chrome", "playwright install"),
        ("Error: Cannot open display: :0", '"${DISPLAY}"'),
        ("Error: database is locked", "another copy"),
        ("Error: 401 Unauthorized: Invalid API key", "correct the key"),
        ("FATAL: password authentication failed for user ada", "correct the key, token or password"),
        ("Error: TOKEN is not set", '"${TOKEN}"'),
        ("error: the environment variable $api_token is missing", '"${api_token}"'),
        ("RuntimeError: the moon is full", "`fairlead logs x`"),
    ],
)
def test_what_a_program_wrote_decides_the_hint(line: str, hint: str) -> None:
    error = ended("starting", line)
    assert line.split(": ", 1)[-1][:30] in str(error).split("\n")[0]
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (0, "argument to speak MCP over stdio"),
        (3, "in a terminal"),
        (127, "`PATH`"),
        (126, "`chmod +x`"),
        (137, "memory"),
        (139, "crashed"),
    ],
)
def test_a_program_that_wrote_nothing_is_told_by_its_exit_code(code: int, hint: str) -> None:
    assert hint in (ended(code=code).hint or "")


@pytest.mark.parametrize(
    ("number", "hint"),
    [(signal.SIGKILL, "memory"), (signal.SIGTERM, "ended it"), (signal.SIGSEGV, "crashed")],
)
def test_a_program_that_a_signal_ended_is_told_by_that(number: signal.Signals, hint: str) -> None:
    ending = ConnectionEnding(
        kind="exited",
        message=f"killed by {number.name}",
        signal=number,
        stderr=("No module named x",),
        is_local=True,
    )
    error = connect_failure("x", ConnectionClosed(ending, "unknown"))
    assert hint in (error.hint or "") or number == signal.SIGSEGV


def test_uv_s_causes_are_part_of_the_reason() -> None:
    error = ended(
        "error: No solution found when resolving tool dependencies",
        "  cause: Because mcp-server-tme was not found in the package registry and you require it, we can"
        " conclude that your requirements are unsatisfiable.",
    )
    assert "mcp-server-tme was not found" in str(error).split("\n")[0]
    assert "correct its name in `args`" in (error.hint or "")


def test_a_banner_on_stdout_is_shown_and_says_that_it_serves_http() -> None:
    error = ended(code=0, noise=("Server listening on http://localhost:3000/mcp",))
    first = str(error).split("\n")[0]
    assert "it wrote to stdout, where only MCP messages belong: Server listening on" in first
    assert "write its address as `url`" in (error.hint or "")


def test_stdout_is_shown_beside_a_stderr_that_gives_no_reason() -> None:
    error = ended("warning: a flag is old", code=2, noise=("hello", "bye"))
    assert "only MCP messages belong: bye\n  hello\n  bye" in str(error)
    assert "warning: a flag is old" in str(error)


def test_a_variable_that_a_program_asks_for_is_passed_on_from_the_shell() -> None:
    error = ended("Please provide your API token via --token or the NOTION_TOKEN env var.")
    assert '"${NOTION_TOKEN}"' in (error.hint or "")


@pytest.mark.parametrize("line", ["Password for ada:", "Please enter your key:", "Replace it? [y/N]"])
def test_a_question_on_stderr_says_that_nobody_can_answer_it(line: str) -> None:
    assert "it asks for input" in (ended("starting", line).hint or "")


def test_a_question_on_stdout_is_told_from_a_log() -> None:
    assert "it asks for input" in (ended(code=0, noise=("Enter API key:",)).hint or "")
    assert "`-y`" in (ended(code=1, noise=("Ok to proceed? (y)",)).hint or "")


def test_a_field_that_settings_lack_is_named_in_the_first_line() -> None:
    error = ended(
        "Traceback (most recent call last):",
        '  File "/srv/server.py", line 3, in <module>',
        "    settings = Settings()",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings",
        "ACME_API_KEY",
        "  Field required [type=missing, input_value={}, input_type=dict]",
        "    For further information visit https://errors.pydantic.dev/2.11/v/missing",
    )
    assert "1 validation error for Settings: ACME_API_KEY: Field required" in str(error).split("\n")[0]
    assert '"${ACME_API_KEY}"' in (error.hint or "")


def test_a_server_that_ends_later_says_that_the_next_call_starts_it_again() -> None:
    ending = ConnectionEnding(
        kind="exited", message="the server exited with code 3", exit_code=3, is_local=True
    )
    assert "the next call starts it again" in (lost_error("x", ending).hint or "")
    assert "before you repeat" in (call_failure("x", ConnectionClosed(ending, "unknown")).hint or "")
    remote = ConnectionEnding(kind="hung_up", message="the server went away")
    assert lost_error("x", remote).hint is None


@pytest.mark.parametrize(
    ("credentials", "words", "hint"),
    [
        (
            Credentials(origin="headers", names=("Authorization",)),
            "refused the token in `headers.Authorization`",
            "correct `headers.Authorization`",
        ),
        (
            Credentials(origin="headers", names=("X-Api-Key",), expired=True),
            "`headers.X-Api-Key` has expired",
            "correct `headers.X-Api-Key`",
        ),
        (Credentials(origin="headers"), "login required", "set `headers.Authorization`"),
        (
            Credentials(origin="headers_helper", names=("Authorization",)),
            "what `headers_helper` prints",
            "`headers_helper`",
        ),
        (Credentials(origin="auth_provider", names=("Authorization",)), "auth provider", "auth provider"),
        (
            Credentials(origin="login", names=("Authorization",)),
            "the token of your login",
            "`fairlead login x`",
        ),
    ],
    ids=lambda value: value.origin if isinstance(value, Credentials) else "",
)
def test_a_refused_token_is_told_by_where_it_comes_from(
    credentials: Credentials, words: str, hint: str
) -> None:
    error = connect_failure("x", HttpRejected(401, "no", credentials=credentials, detail="bad signature"))
    assert isinstance(error, AuthRequired)
    assert words in str(error)
    assert "bad signature" in str(error)
    assert hint in (error.hint or "")


@pytest.mark.parametrize(
    ("said", "hint"),
    [("it chose version 1999-01-01", "update the server"), ("it speaks only 2030-01-01", "update Fairlead")],
)
def test_a_protocol_version_that_is_not_spoken_says_which_side_is_old(said: str, hint: str) -> None:
    error = connect_failure("x", RequestRejected(-32022, said))
    assert hint in (error.hint or "")
    assert "2026-07-28" in (error.hint or "")


def test_an_error_in_answer_to_the_handshake_says_what_to_set() -> None:
    local = connect_failure("x", RequestRejected(-32000, "set API_KEY: it is missing"), is_local=True)
    assert '"${API_KEY}"' in (local.hint or "")
    assert "`fairlead logs x`" in (connect_failure("x", RequestRejected(-1, "no"), is_local=True).hint or "")
    assert "`headers`" in (connect_failure("x", RequestRejected(-1, "no")).hint or "")
    old = connect_failure("x", RequestRejected(-32602, "Unsupported protocol version"), is_local=True)
    assert "update the server" in (old.hint or "")


def test_who_does_not_know_the_handshake_is_no_mcp_server() -> None:
    refusal = RequestRejected(-32601, "Method not found")
    assert "not an MCP server" in (connect_failure("x", refusal, is_local=True).hint or "")
    assert "is it an MCP server?" in (connect_failure("x", refusal).hint or "")


@pytest.mark.parametrize(
    ("url", "transport", "hint"),
    [
        ("https://a.test/sse", "http", '`"transport": "sse"`'),
        ("https://a.test/sse/?key=1", "http", '`"transport": "sse"`'),
        ("https://a.test/mcp", "sse", "take `transport` out"),
    ],
)
def test_the_wrong_transport_over_http_is_told_by_the_url(
    url: str, transport: Literal["http", "sse"], hint: str
) -> None:
    said = hint_for_transport(RemoteServer(url=url, transport=transport))
    with pytest.raises(ConnectFailed) as raised, connecting("x", transport_hint=said):
        raise HttpRejected(405, "the server answered with HTTP 405 Method Not Allowed")
    assert hint in (raised.value.hint or "")
    assert "else `url` takes no MCP requests" in (raised.value.hint or "")
    assert hint_for_transport(RemoteServer(url="https://a.test/mcp")) is None


async def failure_of(*argv: str, cwd: Path | None = None, path: str | None = None) -> ServerError:
    env = {"PATH": path} if path is not None else {}
    async with supervised() as tasks:
        command = Command(argv=argv, cwd=cwd, env=env)
        connection = Connection(
            Supervisor("x", ServerLimits(), [lambda: StdioDispatcher(command)], tasks=tasks)
        )
        with pytest.raises(ConnectFailed) as raised:
            await connection.ready()
        await connection.aclose()
    return raised.value


def program(folder: Path, name: str, text: str = "#!/bin/sh\n", mode: int = 0o755) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_a_program_that_cannot_be_run_is_told_by_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = str(tmp_path)
    program(tmp_path, "mcp-server-time")
    error = await failure_of("mcp-sever-time", path=path)
    assert "there is no program mcp-sever-time on the PATH" in str(error)
    assert "did you mean `mcp-server-time`?" in (error.hint or "")
    error = await failure_of("mcp-server-time --verbose", path=path)
    assert "`command` has arguments in it" in str(error)
    assert "write `mcp-server-time` as `command`" in (error.hint or "")
    error = await failure_of(program(tmp_path, "a", "#!/no/such/python\n"))
    assert "its interpreter /no/such/python is not there" in str(error)
    assert "first line of the script" in (error.hint or "")
    error = await failure_of(str(tmp_path))
    assert "is a folder" in str(error)
    error = await failure_of(program(tmp_path, "b", mode=0o644))
    assert "`chmod +x`" in (error.hint or "")
    error = await failure_of(program(tmp_path, "c", "echo\n"))
    assert "is it for this machine?" in (error.hint or "")
    error = await failure_of(program(tmp_path, "d.py", "print()\n"))
    assert "write `python3` as `command`" in (error.hint or "")
    error = await failure_of(program(tmp_path, "d.js", "0\n", mode=0o644))
    assert "write `node` as `command`" in (error.hint or "")
    error = await failure_of(program(tmp_path, "e", "\x7fELF\n"))
    assert "built for another kind of machine" in str(error)
    assert "for this machine" in (error.hint or "")
    error = await failure_of(program(tmp_path, "f", ""))
    assert "is empty" in str(error)
    error = await failure_of(program(tmp_path, "g", "#!/bin/sh\r\necho\r\n"))
    assert "line ends of Unix" in (error.hint or "")
    error = await failure_of(sys.executable, cwd=tmp_path / "gone")
    assert error.hint == "correct `cwd`"


@pytest.mark.parametrize(
    ("name", "hint"), [("uvx", "pip install uv"), ("npx", "Node.js"), ("docker", "have it run")]
)
async def test_a_runner_that_is_not_installed_says_how_to_get_it(
    tmp_path: Path, name: str, hint: str
) -> None:
    error = await failure_of(name, "some-server", path=str(tmp_path))
    assert hint in (error.hint or "")
