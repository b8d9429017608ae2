"""`fairlead login` with a person at a terminal, or a script in their place."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.cli.login.support import Browser, Fairlead, clicked, come_back, configure, tokens, who
from tests.conftest import Machine

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.cli.pty_support import SECONDS, Person, at_terminal


def login_page(person: Person) -> str:
    """The address of the login page, once it has been shown."""
    return next(line for line in person.seen.splitlines() if line.startswith("http://"))


@contextmanager
def logging_in(machine: Machine, *options: str) -> Generator[Person]:
    with at_terminal(
        "login", "x", *options, env=machine.env | {"TERM": "dumb"}, cwd=machine.project
    ) as person:
        yield person


def test_a_person_sees_where_the_page_is_and_can_say_no(
    machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine) as person:
        shown = person.sees("Open it? [yes/NO]: ")
        assert f"you go to {server.url.removeprefix('http://')}." in shown
        assert "asks for: mcp:read" in shown
        assert "warning: it leads to a program on this machine" in shown
        assert f"\n{server.url}/authorize?" in shown
        person.types("")
        assert person.waits() == 3
    assert server.count("/authorize") == server.count("/token") == 0


def test_a_person_says_yes_and_the_browser_comes_back(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser("grace")
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine) as person:
        person.sees("Open it?")
        person.types("y")
        person.sees("\nlogged in to `x`")
        person.sees("is ready: 2 tools")
        assert person.waits() == 0
    assert who(fairlead) == "grace mcp:read"
    with logging_in(machine) as person:
        person.sees("Log in again? [y/N]: ")
        person.types("n")
        assert person.waits() == 0
    browser("ada")
    with logging_in(machine, "--yes") as person:
        person.sees("Log in again? [y/N]: ")
        person.types("y")
        person.sees("logged in to `x`")
        assert person.waits() == 0
    assert who(fairlead) == "ada mcp:read"


@pytest.mark.requirement("NEED-14", "HARD-32")
def test_a_person_pastes_the_address_and_that_of_another_login_is_refused(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer
) -> None:
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine, "--yes") as person:
        person.sees("please open that address yourself")
        person.sees("address: ")
        back = clicked(login_page(person))
        person.types("")
        person.sees("not this login's redirect URL: nothing was pasted")
        person.types(back.replace("state=", "state=a"))
        person.sees("not this login's redirect URL: it belongs to another login")
        person.sees("address: ")
        # Longer than a terminal lets lines be, and broken where a mail program would.
        person.types(f"{back[:40]}\n{back[40:]}&more={'m' * 5000}")
        person.sees("logged in to `x`")
        assert person.waits() == 0
        assert [token for token in tokens(server) if token in person.seen] == []
    assert who(fairlead) == "ada mcp:read"


def test_without_more_input_the_browser_is_still_waited_for(
    machine: Machine, server: AuthorizationServer
) -> None:
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine, "--yes") as person:
        person.sees("address: ")
        person.types("\x04", end="")
        come_back(clicked(login_page(person)))
        person.sees("logged in to `x`")
        assert person.waits() == 0


@pytest.mark.parametrize("options", [("--yes",), ("--no-browser",)])
def test_ctrl_c_ends_it(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, options: tuple[str, ...]
) -> None:
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine, *options) as person:
        person.sees("address: ")
        person.presses_ctrl_c()
        person.sees("interrupted")
        assert person.waits() == 130
    assert "no logins" in fairlead("auth", "list").err


def test_who_can_type_nothing_gets_the_address_and_nothing_is_opened(
    machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    program = (
        "import os; os.dup2(os.open(os.devnull, os.O_RDONLY), 0); import fairlead.cli.main as m; m.main()"
    )
    with at_terminal("login", "x", env=machine.env, cwd=machine.project, program=("-c", program)) as person:
        person.sees("please open that address yourself")
        person.sees("waiting for you to log in there")
        assert server.count("/authorize") == 0
        come_back(clicked(login_page(person)))
        person.sees("logged in to `x`")
        assert person.waits() == 0


def test_a_call_at_a_terminal_asks_for_the_login_and_goes_on(
    machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    configure(machine, x={"url": server.mcp_url})
    call = ("call", "x", "whoami")
    env = machine.env | {"TERM": "dumb"}
    with at_terminal(*call, env=env, cwd=machine.project) as person:
        person.sees("Open it?")
        person.types("yes")
        person.sees("if your browser is on another machine, use `fairlead login x --no-browser`")
    browser()
    with at_terminal(*call, env=machine.env | {"TERM": "dumb"}, cwd=machine.project) as person:
        person.sees("Open it?")
        person.types("yes")
        person.sees("ada mcp:read")
        assert person.waits() == 0


# By script.


@contextmanager
def scripted(machine: Machine, *arguments: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "fairlead", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=machine.env,
        cwd=machine.project,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.requirement("NEED-14")
@pytest.mark.parametrize("is_right", [True, False])
def test_a_script_reads_the_address_and_writes_the_one_it_ends_up_at(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, is_right: bool
) -> None:
    configure(machine, x={"url": server.mcp_url})
    with scripted(machine, "login", "x", "--no-browser") as process:
        assert process.stdout
        back = clicked(process.stdout.readline().strip())
        answer = back if is_right else back.replace("state=", "state=a")
        _, said = process.communicate(answer, timeout=SECONDS)
    if is_right:
        assert process.returncode == 0, said
        assert who(fairlead) == "ada mcp:read"
    else:
        assert process.returncode == 3
        assert "it belongs to another login" in said
        assert server.count("/token") == 0


def test_nothing_to_read_is_no_answer(machine: Machine, server: AuthorizationServer) -> None:
    configure(machine, x={"url": server.mcp_url})
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "login", "x", "--no-browser"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=machine.env,
        cwd=machine.project,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert "nothing was pasted" in done.stderr


@pytest.mark.requirement("NEED-17")
def test_a_machine_logs_in_without_a_page(fairlead: Fairlead, machine: Machine) -> None:
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "${ROBOT:-hush}"}
    with authorization_server(refresh_tokens=False) as server:
        server.add_client("robot", auth="client_secret_basic", client_secret="hush")
        configure(machine, x={"url": server.mcp_url, "oauth": oauth})
        before = fairlead("whoami", "x")
        assert before.status == 0
        assert "logs in by itself" in before.err
        outcome = fairlead("login", "x")
        assert outcome.status == 0, outcome.err
        assert "then renews by itself" in outcome.err
        assert "then renews by itself" in fairlead("auth", "list").out
        assert who(fairlead) == "robot"
        server.behaviour.token_status = 503
        assert fairlead("login", "x", "--force").status == 4
