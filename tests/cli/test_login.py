"""`fairlead login`, `logout`, `whoami` and `auth`, as people and scripts use them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from fairlead.auth.tokens import Client, Login, Token
from fairlead.cli.logins import shown_expiry
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine, Outcome

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.cli.pty_support import SECONDS, Person, at_terminal

Fairlead = Callable[..., Outcome]

# A browser with somebody at it who picks an account and is sent back.
BROWSER = """
import sys, urllib.parse, urllib.request
account, url = sys.argv[1:]
page = urllib.parse.urlsplit(url)
form = dict(urllib.parse.parse_qsl(page.query)) | {"account": account}
urllib.request.urlopen(page._replace(query="").geturl(), urllib.parse.urlencode(form).encode()).read()
"""


@pytest.fixture(autouse=True)
def vault(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.env["FAIRLEAD_VAULT"] = "file"
    monkeypatch.setenv("FAIRLEAD_VAULT", "file")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def browser(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have a browser on this machine, and say who logs in there."""

    def install(account: str = "ada") -> None:
        program = machine.home / "browser.py"
        program.write_text(BROWSER)
        machine.env["BROWSER"] = f"{sys.executable} {program} '{account}' %s"
        monkeypatch.setenv("BROWSER", machine.env["BROWSER"])

    return install


@pytest.fixture
def server() -> Generator[AuthorizationServer]:
    with authorization_server(scope="mcp:read") as server:
        yield server


def configure(machine: Machine, **servers: dict[str, Any]) -> None:
    entries = {name: {"trust": "trusted", **entry} for name, entry in servers.items()}
    machine.write_user(json.dumps({"servers": entries}))


def entry_of(machine: Machine, server_id: str = "x") -> dict[str, Any]:
    return json.loads(machine.user_file.read_text())["servers"][server_id]


def who(fairlead: Fairlead, server_id: str = "x") -> str:
    """Who the server says we are."""
    outcome = fairlead("call", server_id, "whoami", "--yes")
    assert outcome.status == 0, outcome.err
    return outcome.out.strip()


def tokens(server: AuthorizationServer) -> set[str]:
    found = {*server.access_tokens, *server.refresh_tokens, *server.spent}
    assert found
    return found


def login_page(person: Person) -> str:
    """The address of the login page, once it has been shown."""
    return next(line for line in person.seen.splitlines() if line.startswith("http://"))


def clicked(url: str, account: str = "ada") -> str:
    """The address that a browser ends up at."""
    return anyio.run(Clicking(account).visit, url)


# Where nobody is there.


def test_where_nobody_is_there_a_login_is_said_to_be_needed(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer
) -> None:
    configure(machine, x={"url": server.mcp_url})
    for arguments in (("call", "x", "whoami", "--yes"), ("login", "x"), ("test", "x")):
        outcome = fairlead(*arguments)
        assert outcome.status == 3
        assert "run `fairlead login x`" in outcome.err
    assert "auth_required" in fairlead("status").out
    assert "login needed" in fairlead("whoami").out
    assert server.count("/register") == 0


def test_what_has_no_login_is_told_apart(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer
) -> None:
    keyed = {"url": server.mcp_url, "headers": {"authorization": "Bearer ${KEY:-k}"}}
    configure(machine, local={"command": "true"}, keyed=keyed, off={"url": server.mcp_url, "oauth": False})
    for server_id, reason in {
        "local": "not reached by URL",
        "keyed": "headers.Authorization",
        "off": "`oauth: false`",
    }.items():
        outcome = fairlead("login", server_id)
        assert outcome.status == 1
        assert reason in outcome.err
    assert fairlead("login", "nobody").status == 1
    assert fairlead("whoami", "local").status == 1
    assert fairlead("whoami", "keyed").status == 0
    shown = fairlead("whoami").out
    assert "local" not in shown
    assert "not needed: its entry sets `headers.Authorization`" in shown
    assert server.seen == []


@pytest.mark.requirement("HARD-1")
def test_a_project_that_nobody_approved_is_not_contacted(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer
) -> None:
    machine.write_project(json.dumps({"servers": {"x": {"url": server.mcp_url}}}))
    outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 3
    assert "fairlead approve x" in outcome.err
    assert server.seen == []


def test_a_server_without_metadata_is_told_apart_from_one_without_registration(
    fairlead: Fairlead, machine: Machine
) -> None:
    with authorization_server(resource_metadata=False, metadata_paths=(), registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 3
    assert "headers.Authorization" in outcome.err


# By browser.


def test_a_login_holds_in_every_process_and_shows_no_token(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url, "required": True, "lazy": False})
    said = fairlead("login", "x", "--yes")
    assert said.status == 0, said.err
    assert said.out.startswith(f"{server.url}/authorize?")
    assert "logged in to `x`" in said.err
    assert "may: mcp:read" in said.err
    assert "in 60 min, then renews by itself" in said.err
    assert "`x` is ready: 2 tools" in said.err
    assert who(fairlead) == "ada mcp:read"
    shown = [fairlead(*command) for command in (("whoami",), ("whoami", "x"), ("auth", "list"))]
    data = [fairlead(*command, "--json") for command in (("whoami",), ("whoami", "x"), ("auth", "list"))]
    assert all(outcome.status == 0 and server.issuer in outcome.out for outcome in [*shown, *data])
    (listed,) = json.loads(data[-1].out)["logins"]
    assert listed["servers"] == ["x"]
    assert listed["scopes"] == ["mcp:read"]
    assert listed["kept_in"] == "file"
    assert listed["renews"]
    assert listed["expires_at"] > time.time()
    everything = "".join(outcome.out + outcome.err for outcome in [said, *shown, *data])
    assert [token for token in tokens(server) if token in everything] == []
    server.expire_access_tokens()
    assert who(fairlead) == "ada mcp:read"


def test_who_is_logged_in_is_told_so_and_can_log_in_again(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    fairlead("login", "x", "--yes")
    again = fairlead("login", "x", "--yes")
    assert again.status == 0
    assert "logged in to `x` already" in again.err
    assert server.count("/token", grant_type="authorization_code") == 1
    browser("grace")
    assert fairlead("login", "x", "--yes", "--force").status == 0
    assert who(fairlead) == "grace mcp:read"
    more = fairlead("login", "x", "--yes", "--scope", "mcp:read", "--scope", "mcp:admin")
    assert "may: mcp:read mcp:admin" in more.err
    server.access_tokens.clear()
    server.refresh_tokens.clear()
    assert "logged in to `x`\n" in fairlead("login", "x", "--yes").err
    assert server.count("/register") == 1


def test_a_login_that_cannot_be_kept_is_no_success(
    fairlead: Fairlead,
    machine: Machine,
    server: AuthorizationServer,
    browser: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser()
    monkeypatch.setenv("FAIRLEAD_VAULT", "keyring")  # which this machine has not
    configure(machine, x={"url": server.mcp_url})
    outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 1
    assert "could not be kept" in outcome.err


def test_who_refuses_on_the_page_is_not_logged_in(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser("")
    configure(machine, x={"url": server.mcp_url})
    outcome = fairlead("login", "x", "--yes", "--client-id", "known")
    assert outcome.status == 3
    server.add_client("known")
    outcome = fairlead("login", "x", "--yes", "--client-id", "known")
    assert outcome.status == 3
    assert "the person said no" in outcome.err
    assert "oauth" not in entry_of(machine)
    assert json.loads(fairlead("auth", "list", "--json").out)["logins"] == []


# At a terminal.


@contextmanager
def logging_in(machine: Machine, *options: str) -> Generator[Person]:
    with at_terminal(
        "login", "x", *options, env=machine.env | {"TERM": "dumb"}, cwd=machine.project
    ) as person:
        yield person


def test_a_person_sees_where_the_page_is_and_can_say_no(
    machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    with logging_in(machine) as person:
        shown = person.sees("Open it? [yes/NO]: ")
        assert f"you go to \x1b[1m{server.url.removeprefix('http://')}\x1b[0m" in shown
        assert "asks for: mcp:read" in shown
        assert "warning: it leads to a program on this machine" in shown
        assert f"\n{server.url}/authorize?" in shown
        person.types("")
        assert person.waits() == 3
    assert server.count("/authorize") == server.count("/token") == 0


def test_a_person_says_yes_and_the_browser_comes_back(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
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
        person.sees("that is not it: nothing was pasted")
        person.types(back.replace("state=", "state=a"))
        person.sees("that is not it: it belongs to another login")
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
        anyio.run(_visit, clicked(login_page(person)))
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


def test_a_call_at_a_terminal_asks_for_the_login_and_goes_on(
    machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
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
        outcome = fairlead("login", "x")
        assert outcome.status == 0, outcome.err
        assert "then renews by itself" in outcome.err
        assert "then renews by itself" in fairlead("auth", "list").out
        assert who(fairlead) == "robot"
        server.behaviour.token_status = 503
        assert fairlead("login", "x", "--force").status == 4


# Clients that are known beforehand.


@pytest.mark.requirement("NEED-13")
def test_a_client_that_works_is_remembered(
    fairlead: Fairlead, machine: Machine, browser: Callable[..., None]
) -> None:
    browser()
    with authorization_server(registration=False) as server:
        server.add_client("known", auth="client_secret_basic", client_secret="hush")
        configure(machine, x={"url": server.mcp_url})
        without = fairlead("login", "x", "--yes")
        assert without.status == 3
        assert "fairlead login x --client-id ID" in without.err
        assert fairlead("login", "x", "--yes", "--client-secret", "hush").status == 2
        wrong = fairlead("login", "x", "--yes", "--client-id", "known", "--client-secret", "wrong")
        assert wrong.status == 3
        assert "oauth" not in entry_of(machine)
        right = fairlead("login", "x", "--yes", "--client-id", "known", "--client-secret", "hush")
        assert right.status == 0, right.err
        oauth = entry_of(machine)["oauth"]
        assert oauth["client_id"] == "known"
        assert oauth["client_secret"].startswith("${file:")
        assert "hush" not in right.out + right.err + fairlead("whoami", "x").out
        server.expire_access_tokens()
        assert who(fairlead) == "ada"
        assert server.count("/register") == 0
        assert json.loads(fairlead("whoami", "x", "--json").out)["login"]["client"] == {
            "id": "known",
            "origin": "configured",
        }


def test_a_client_for_a_server_that_no_file_describes_is_refused_before_anybody_logs_in(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_CONFIG_JSON", json.dumps({"servers": {"x": {"url": server.mcp_url}}}))
    outcome = fairlead("login", "x", "--yes", "--client-id", "known")
    assert outcome.status == 1
    assert "no file" in outcome.err
    assert server.seen == []


# Several accounts, and the end of logins.


@pytest.mark.requirement("NEED-15")
def test_two_accounts_on_one_url_are_two_logins(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    configure(
        machine,
        x={"url": server.mcp_url},
        work={"url": server.mcp_url, "account": "work"},
    )
    browser("ada")
    assert fairlead("login", "x", "--yes").status == 0
    browser("grace")
    other = fairlead("login", "x", "--yes", "--account", "work")
    assert other.status == 0
    assert "logged in to `x` as `work`" in other.err
    assert 'an entry with `"account": "work"` uses this login' in other.err
    assert who(fairlead, "x") == "ada mcp:read"
    assert who(fairlead, "work") == "grace mcp:read"
    assert "as `work` already" in fairlead("login", "work", "--yes").err
    listed = json.loads(fairlead("auth", "list", "--json").out)["logins"]
    assert [(each["servers"], each["account"]) for each in listed] == [(["x"], None), (["work"], "work")]
    assert "logged out of x as `work`" in fairlead("logout", "x", "--account", "work").err
    assert who(fairlead, "x") == "ada mcp:read"
    assert fairlead("call", "work", "whoami", "--yes").status == 3
    fairlead("login", "work", "--yes")
    assert fairlead("logout", "x", "--all").err.count("logged out") == 2


def test_a_logout_ends_it_for_all(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url})
    fairlead("login", "x", "--yes")
    outcome = fairlead("logout", "x")
    assert outcome.status == 0
    assert "logged out of x" in outcome.err
    kept = machine.home / ".local/state/fairlead/mcp-auth.json"
    assert [token for token in tokens(server) if token in kept.read_text()] == []
    assert fairlead("call", "x", "whoami", "--yes").status == 3
    gone = fairlead("whoami", "x")
    assert gone.status == 3
    assert "run `fairlead login x`" in gone.err
    assert "no login to `x`" in fairlead("logout", "x").err
    assert "logout" in fairlead("audit").out
    fairlead("login", "x", "--yes")
    configure(machine)
    (orphan,) = json.loads(fairlead("auth", "list", "--json").out)["logins"]
    assert orphan["servers"] == []
    assert orphan["url"] == server.mcp_url
    assert "no server is configured" in fairlead("whoami").err
    assert "logged out" in fairlead("logout", server.mcp_url).err
    assert "there are no logins" in fairlead("logout", "--all").err
    assert "there are no logins" in fairlead("auth", "list").err


def test_a_logout_wants_to_know_what_of(fairlead: Fairlead) -> None:
    assert fairlead("logout").status == 2
    assert fairlead("logout", "--all", "--account", "a").status == 2


def test_a_server_whose_url_is_not_known_now_hides_no_other(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Callable[..., None]
) -> None:
    browser()
    configure(machine, x={"url": server.mcp_url}, lost={"url": "https://${NO_SUCH_HOST}/mcp"})
    fairlead("login", "x", "--yes")
    everybody = fairlead("whoami")
    assert "logged in" in everybody.out
    assert "NO_SUCH_HOST" in everybody.err
    assert fairlead("auth", "list").status == 0


def test_the_end_of_a_login_is_told_in_words() -> None:
    def expiry(seconds: float | None, renews: bool = False, access_token: str = "t") -> str:
        end = None if seconds is None else int((time.time() + seconds) * 1000)
        token = Token(access_token=access_token, expires_at=end)
        client = Client(client_id="c")
        login = Login(
            principal="local",
            account="",
            issuer="i",
            resource="r",
            token_endpoint="t",
            client=client,
            token=token,
        )
        return shown_expiry(login, renews=renews)

    assert expiry(3120.5) == "in 52 min"
    assert expiry(3120.5, renews=True) == "in 52 min, then renews by itself"
    assert expiry(45.5) in ("in 45 s", "in 46 s")
    assert expiry(20 * 86_400) == "in 20 days"
    assert expiry(-1) == "expired; log in again"
    assert expiry(-1, renews=True) == "expired, renews by itself"
    assert expiry(None) == "not known"
    assert expiry(None, access_token="") == "over; log in again"


async def _visit(url: str) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as browser, browser.get(url) as page:
        assert page.status == 200
