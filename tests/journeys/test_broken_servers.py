"""22 broken servers: each is named rightly, and its hint works when it is followed to the letter.

Of each, `fairlead test`, `tools`, `call` and `status` say the same in one line, with the hint. Then the test
does what the hint says, with what the hint itself names, and the server works; status forgets the error.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.testing import scripted_program
from tests.auth.authorization_server import authorization_server
from tests.cli.login.support import BROWSER
from tests.journeys.support.person import Journey, Printed
from tests.journeys.support.web import answering, free_port, wanting, web_server

pytestmark = pytest.mark.slow

NOT_READY, NEEDS_A_PERSON, FIXABLE = 4, 3, 1
PYTHON = sys.executable


def server(journey: Journey, **script: Any) -> list[str]:
    """The command of a server that works, unless its script says otherwise."""
    script = {"record": str(journey.home / "record"), **script}
    return [PYTHON, "-I", "-S", scripted_program.__file__, json.dumps(script)]


@dataclass(kw_only=True)
class Broken:
    """A broken server, what is said of it, and what a person does about it."""

    says: str
    """In the first line of the error."""
    hint: str
    mend: Callable[[str], None]
    """Does what the hint says, which it is given."""
    status: int = NOT_READY
    tool: str = "echo"


Breaking = Callable[[Journey], AbstractContextManager[Broken]]
CASES: dict[str, Breaking] = {}


def case(function: Callable[[Journey], Generator[Broken]]) -> Breaking:
    """Add a broken server, which exists for the length of a block."""
    CASES[function.__name__.replace("_", " ")] = made = contextmanager(function)
    return made


def local(*argv: str, **more: Any) -> dict[str, Any]:
    return {"command": argv[0], "args": [*argv[1:]], **more}


def named_in(pattern: str, hint: str) -> str:
    """What a hint names in this place."""
    found = re.search(pattern, hint)
    assert found, hint
    return found[1]


# Processes.


@case
def wrong_command(journey: Journey) -> Generator[Broken]:
    folder = journey.home / "bin"
    folder.mkdir()
    program = folder / "mcp-server-time"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(server(journey))}\n")
    program.chmod(0o755)
    journey.env["PATH"] += f":{folder}"
    journey.configure(x=local("mcp-sever-time"))
    yield Broken(
        says="there is no program mcp-sever-time on the PATH",
        hint="did you mean",
        mend=lambda hint: journey.edit("x", command=named_in("did you mean `(.+?)`", hint)),
    )


@case
def no_such_module(journey: Journey) -> Generator[Broken]:
    (journey.home / "mcp_server_time.py").write_text(f"import os; os.execv({PYTHON!r}, {server(journey)!r})")
    journey.configure(x=local(PYTHON, "-m", "mcp_server_tme", cwd=str(journey.home)))

    def correct_the_name(hint: str) -> None:
        assert "correct the name in `args`" in hint
        journey.edit("x", args=["-m", "mcp_server_time"])

    yield Broken(
        says="No module named mcp_server_tme",
        hint="install the package that has this module into the Python that `command` names",
        mend=correct_the_name,
    )


@case
def crash_at_start(journey: Journey) -> Generator[Broken]:
    code = (
        "import os, sys\nif 'ACME_KEY' not in os.environ: raise SystemExit('ACME_KEY is not set')\n"
        f"os.execv(sys.executable, {server(journey)!r})"
    )
    journey.configure(x=local(PYTHON, "-c", code))
    journey.env["ACME_KEY"] = "of-the-shell-1234"

    def paste(hint: str) -> None:
        journey.edit("x", env=json.loads(named_in(r'`"env": (\{.*\})`', hint)))

    yield Broken(
        says="the server exited with code 1: ACME_KEY is not set", hint="set it in `env`", mend=paste
    )


@case
def hang(journey: Journey) -> Generator[Broken]:
    wait = "import os, sys, time\nif '--stdio' not in sys.argv: time.sleep(100)\n"
    code = f"{wait}os.execv(sys.executable, {server(journey)!r})"
    journey.configure(x=local(PYTHON, "-c", code, startup_timeout_ms=1_500))

    def add_the_argument(hint: str) -> None:
        assert (
            "does it need an argument to speak MCP over stdio? `startup_timeout_ms` gives it more time"
            in hint
        )
        journey.edit("x", args=["-c", code, "--stdio"], startup_timeout_ms=None)

    yield Broken(says="not ready after 1.5 s", hint="it wrote nothing to stderr", mend=add_the_argument)


@case
def noise_on_stdout(journey: Journey) -> Generator[Broken]:
    with web_server() as web:
        code = f"import time; print('Listening on {web.url}', flush=True); time.sleep(100)"
        journey.configure(x=local(PYTHON, "-c", code, startup_timeout_ms=1_500))

        def use_its_address(hint: str) -> None:
            assert "run it yourself and write its address as `url`" in hint
            journey.edit("x", command=None, args=None, url=web.url)

        yield Broken(
            says=f"it wrote to stdout, where only MCP messages belong: Listening on {web.url}",
            hint="it seems to serve HTTP",
            mend=use_its_address,
        )


# URLs.


@case
def wrong_url(journey: Journey) -> Generator[Broken]:
    with web_server() as web:
        journey.configure(x={"url": web.url.removeprefix("http://")})
        yield Broken(
            says="must be an http:// or https:// URL with a host",
            hint="write it whole, such as `https://example.com/mcp`",
            mend=lambda _hint: journey.edit("x", url=web.url),
            status=FIXABLE,
        )


@case
def http_401(journey: Journey) -> Generator[Broken]:
    with web_server(wanting("the-new-token", body=b'{"message": "the token has expired"}')) as web:
        journey.configure(x={"url": web.url, "headers": {"Authorization": "Bearer the-old-token"}})

        def correct_the_header(hint: str) -> None:
            name = named_in(r"correct `headers\.(\w+)`", hint)
            journey.edit("x", headers={name: "Bearer the-new-token"})

        yield Broken(
            says="the token in `headers.Authorization` has expired (401)",
            hint="correct `headers.Authorization`; or leave it out and run `fairlead login x`",
            mend=correct_the_header,
            status=NEEDS_A_PERSON,
        )


@case
def http_403(journey: Journey) -> Generator[Broken]:
    with web_server(wanting("of-an-admin", 403, b'{"error": "only for admins"}')) as web:
        journey.configure(x={"url": web.url, "headers": {"Authorization": "Bearer of-a-guest"}})

        def take_one_with_rights(hint: str) -> None:
            name = named_in(r"rights of the token in `headers\.(\w+)`", hint)
            journey.edit("x", headers={name: "Bearer of-an-admin"})

        yield Broken(
            says="the server answered with HTTP 403 Forbidden: only for admins",
            hint="the server does not allow it",
            mend=take_one_with_rights,
        )


@case
def http_404(journey: Journey) -> Generator[Broken]:
    with web_server() as web:
        journey.configure(x={"url": web.url.removesuffix("/mcp")})

        def add_the_path(hint: str) -> None:
            journey.edit("x", url=web.url.removesuffix("/mcp") + named_in("ends in `(/mcp)`", hint))

        yield Broken(says="HTTP 404 Not Found", hint="check the path of `url`", mend=add_the_path)


@case
def http_429(journey: Journey) -> Generator[Broken]:
    with web_server(answering(429, b"100 calls an hour", Retry_After="2", Content_Type="text/plain")) as web:
        journey.configure(x={"url": web.url})

        def wait(hint: str) -> None:
            assert named_in(r"wait (\d+) s and try again", hint) == "2"
            web.fault = None  # as after that time

        yield Broken(
            says="HTTP 429 Too Many Requests: 100 calls an hour",
            hint="limits the rate of requests",
            mend=wait,
        )


@case
def http_500(journey: Journey) -> Generator[Broken]:
    body = b'{"error": {"message": "the database is down"}}'
    with web_server(answering(500, body, Content_Type="application/json")) as web:
        journey.configure(x={"url": web.url})

        def mend_the_server(hint: str) -> None:
            assert "its own log says more; try again later" in hint
            web.fault = None

        yield Broken(
            says="HTTP 500 Internal Server Error: the database is down",
            hint="the trouble is at the server",
            mend=mend_the_server,
        )


@case
def html_page(journey: Journey) -> Generator[Broken]:
    with (
        web_server(answering(200, b"<html>Welcome</html>", Content_Type="text/html")) as page,
        web_server() as web,
    ):
        journey.configure(x={"url": page.url})
        yield Broken(
            says="the server answered with a web page",
            hint="`url` is a web page, not an MCP endpoint; look for the MCP URL",
            mend=lambda _hint: journey.edit("x", url=web.url),
        )


@case
def tls_self_signed(journey: Journey) -> Generator[Broken]:
    with web_server(tls=True) as web:
        journey.configure(x={"url": web.url})

        def trust_it(hint: str) -> None:
            pem = journey.home / "trusted.pem"
            web.authority.cert_pem.write_to_path(str(pem))
            journey.env[named_in(r"or set (\w+) to a PEM file", hint)] = str(pem)

        yield Broken(
            says="the certificate of 127.0.0.1 is not trusted", hint="add the certificate", mend=trust_it
        )


@case
def plain_http_on_a_tls_port(journey: Journey) -> Generator[Broken]:
    with web_server(tls=True) as web:
        pem = journey.home / "trusted.pem"
        web.authority.cert_pem.write_to_path(str(pem))
        journey.env["SSL_CERT_FILE"] = str(pem)
        journey.configure(x={"url": web.url.replace("https://", "http://")})

        def write_the_scheme(hint: str) -> None:
            scheme = named_in("write `(https://)` in `url`", hint)
            journey.edit("x", url=f"{scheme}127.0.0.1:{web.port}/mcp")

        yield Broken(
            says=f"127.0.0.1:{web.port} speaks TLS, and `url` says `http://`",
            hint="write `https://` in `url`",
            mend=write_the_scheme,
        )


@case
def refused_port(journey: Journey) -> Generator[Broken]:
    port = free_port()
    journey.configure(x={"url": f"http://127.0.0.1:{port}/mcp"})
    running: list[AbstractContextManager[object]] = []

    def start_it(hint: str) -> None:
        assert hint.startswith("is the server running, and is the port in `url` right?")
        web = web_server(port=port)
        web.__enter__()
        running.append(web)

    yield Broken(
        says=f"no connection to 127.0.0.1:{port}: nothing listens there (connection refused)",
        hint="is the server running",
        mend=start_it,
    )
    for web in running:
        web.__exit__(None, None, None)


@case
def dns(journey: Journey) -> Generator[Broken]:
    with web_server() as web:
        journey.configure(x={"url": f"http://mcp.invalid:{web.port}/mcp"})
        yield Broken(
            says="the name mcp.invalid cannot be resolved",
            hint="check the host in `url`",
            mend=lambda _hint: journey.edit("x", url=web.url),
        )


# Logins.


def have_a_browser(journey: Journey) -> None:
    program = journey.home / "browser.py"
    program.write_text(BROWSER)
    journey.env["BROWSER"] = f"{PYTHON} {program} ada %s"


@case
def needs_login(journey: Journey) -> Generator[Broken]:
    have_a_browser(journey)
    with authorization_server(scope="mcp:read") as issuer:
        journey.configure(x={"url": issuer.mcp_url})
        yield Broken(
            says="login required",
            hint="run `fairlead login x`",
            mend=lambda hint: log_in(journey, hint),
            status=NEEDS_A_PERSON,
            tool="whoami",
        )


@case
def expired_login(journey: Journey) -> Generator[Broken]:
    have_a_browser(journey)
    with authorization_server(scope="mcp:read") as issuer:
        journey.configure(x={"url": issuer.mcp_url})
        log_in(journey, "`fairlead login x`")
        assert journey.run("test", "x").status == 0
        issuer.expire_access_tokens()
        issuer.refresh_tokens.clear()
        yield Broken(
            says="your login has expired",
            hint="run `fairlead login x`",
            mend=lambda hint: log_in(journey, hint),
            status=NEEDS_A_PERSON,
            tool="whoami",
        )


def log_in(journey: Journey, hint: str) -> None:
    _, *words = shlex.split(named_in("`(fairlead login .+?)`", hint))
    with journey.type(*words) as person:
        person.sees("Open it?")
        person.types("yes")
        person.sees("logged in to `x`")
        assert person.waits() == 0


# Configuration.


@case
def config_typo(journey: Journey) -> Generator[Broken]:
    command, *args = server(journey)
    journey.configure(x={"comand": command, "args": args})

    def rename(hint: str) -> None:
        journey.edit("x", comand=None, **{named_in("did you mean `(.+?)`", hint): command})

    yield Broken(says="unknown key", hint="did you mean `command`?", mend=rename, status=FIXABLE)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.requirement("HARD-23")
def test_a_broken_server_is_named_and_its_hint_mends_it(journey: Journey, name: str) -> None:
    with CASES[name](journey) as broken:
        tested = journey.run("test", "x")
        assert tested.status == broken.status, tested.err
        assert_told(broken, tested)
        assert_told(broken, journey.run("tools", "x", "--refresh"))
        assert_told(broken, journey.run("call", "x", broken.tool, "--yes"))
        kept = journey.last_error("x")
        assert kept["state"] in ("error", "auth_required")
        assert broken.says in kept["last_error"].split("\n")[0]
        whole = journey.run("status", "x").out
        assert broken.says in whole
        assert broken.hint in whole
        broken.mend(tested.hint)
        for command in (("test", "x"), ("tools", "x")):
            mended = journey.run(*command)
            assert mended.status == 0, mended.err
        kept = journey.last_error("x")
        assert (kept["last_error"], kept["hint"]) == (None, None)
        assert kept["tools"] >= 1


def assert_told(broken: Broken, printed: Printed) -> None:
    assert printed.status not in (0, 2, 70), printed.err
    told = [line for line in printed.err.splitlines() if broken.says in line]
    assert told, printed.err
    assert any(broken.hint in line for line in printed.err.splitlines() if "hint:" in line), printed.err
    assert "Traceback" not in printed.err.split("\n")[0]


@pytest.mark.requirement("HARD-17")
def test_a_server_that_crashes_later_is_named_and_works_again(journey: Journey) -> None:
    journey.configure(x=local(*server(journey, tools=["crash", "echo"])))
    assert journey.run("test", "x").status == 0
    crashed = journey.run("call", "x", "crash", "--yes")
    assert crashed.status == FIXABLE
    assert "server `x`: the server exited with code" in crashed.err
    assert "check before you repeat it" in crashed.hint
    kept = journey.last_error("x")
    assert "the server exited with code" in kept["last_error"]
    (logs,) = journey.follow(kept["hint"])
    assert "the next call starts it again" in kept["hint"]
    assert logs.status == 0
    assert journey.run("call", "x", "echo", "--yes").status == 0
    assert journey.last_error("x")["last_error"] is None


def test_a_tool_with_a_wrong_schema_is_named_and_the_others_work(journey: Journey) -> None:
    good = {"name": "echo", "inputSchema": {"type": "object"}}
    journey.configure(x=local(*server(journey, tools=[good, {"name": "bad", "inputSchema": "none"}, {}])))
    for command in (("test", "x"), ("tools", "x")):
        told = journey.run(*command)
        assert told.status == 0, told.err
        assert "1 malformed tool repaired: `bad` (inputSchema is not an object" in told.err
        assert "1 malformed tool left out: `#3` (Object missing required field `name`)" in told.err
    assert journey.run("call", "x", "echo", "--yes").status == 0


def test_a_list_that_is_none_is_named(journey: Journey) -> None:
    journey.configure(x=local(*server(journey, list_result={"tools": "none"})))
    for command in (("test", "x"), ("tools", "x")):
        told = journey.run(*command)
        assert told.status == NOT_READY
        assert "tools/list was answered with something else" in told.err
        assert "it does not follow MCP: update the server" in told.hint
    journey.edit("x", args=server(journey)[1:])  # the version that is mended
    assert journey.run("test", "x").status == 0
    assert journey.last_error("x")["last_error"] is None


def test_a_duplicate_id_is_named_with_both_places(journey: Journey) -> None:
    entry = json.dumps(local(*server(journey)))
    journey.write(f'{{"servers": {{\n  "x": {entry},\n  "x": {entry}\n}}}}')
    for command in (("test", "x"), ("tools", "x"), ("list",)):
        told = journey.run(*command)
        assert told.status in (FIXABLE, NOT_READY), told.err
        assert re.search(r"fairlead\.json:3:\d+:? +servers\.x: this key is already in line 2", told.err)
        assert told.hint == "remove or rename one of them"
    assert journey.last_error("x")["hint"] == "remove or rename one of them"
    journey.write(f'{{"servers": {{\n  "x": {entry},\n  "y": {entry}\n}}}}')
    assert journey.run("test", "x").status == 0


def test_the_same_is_read_at_a_terminal(journey: Journey) -> None:
    journey.configure(x={"url": f"http://127.0.0.1:{free_port()}/mcp"})
    with journey.type("test", "x") as person:
        person.sees("nothing listens there")
        person.sees("hint:")
        person.sees("is the server running")
        assert person.waits() == NOT_READY
