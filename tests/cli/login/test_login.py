"""`fairlead login` where nobody is asked: by a browser, without anybody, and with known clients."""

import json
import time
from typing import Any

import keyring
import pytest

from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.auth.test_vault import SomeKeyring
from tests.cli.login.support import Browser, Fairlead, configure, entry_of, tokens, who
from tests.conftest import Machine

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


def test_a_server_that_is_down_is_not_ready(fairlead: Fairlead, machine: Machine, browser: Browser) -> None:
    browser()
    with authorization_server() as server:
        configure(machine, x={"url": server.mcp_url}, other={"url": server.mcp_url, "account": "other"})
        fairlead("login", "x", "--yes")
    for server_id in ("x", "other"):  # with a login, and without one
        outcome = fairlead("login", server_id, "--yes")
        assert outcome.status == 4, outcome.err
    assert "cannot be reached" in outcome.err
    assert json.loads(fairlead("whoami", "x", "--json").out)["state"] == "logged_in"


def test_a_login_that_is_not_enough_is_no_success(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser()
    server.behaviour.insatiable = True
    configure(machine, x={"url": server.mcp_url})
    outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 3
    assert "logged in to `x`" in outcome.err
    assert "a login with more OAuth scopes is required" in outcome.err


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
    assert outcome.status == 4
    assert "headers.Authorization" in outcome.err


def test_without_metadata_a_call_is_a_connection_error_that_names_the_header_seed_003(
    fairlead: Fairlead, machine: Machine
) -> None:
    nothing: dict[str, Any] = {"resource_metadata": False, "metadata_paths": (), "login_page": False}
    with authorization_server(**nothing, registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("call", "x", "whoami", "--yes")
        shown = fairlead("status")
    assert outcome.status == 4
    assert "headers.Authorization" in outcome.err
    assert "fairlead login" not in outcome.err
    assert "error" in shown.out


_HTML = {"Content-Type": "text/html"}
_JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "page",
    [
        (200, _HTML, "<html>Welcome</html>"),
        (200, _JSON, "<html>Welcome</html>"),
        (200, _JSON, "[1, 2]"),
        (200, _JSON, '{"error": "unauthorized"}'),
        (200, _JSON, ""),
        (200, _HTML, "x" * (3 << 20)),
        (302, {"Location": "/login"}, ""),
        (302, {"Location": "https://sso.example/login"}, ""),
        (400, _JSON, '{"error": "bad request"}'),
        (500, _HTML, "oops"),
    ],
    ids=["page", "garbage", "list", "object", "empty", "huge", "login", "sso", "refusal", "fault"],
)
def test_a_server_with_one_answer_for_every_address_has_no_login_seed_003(
    fairlead: Fairlead, machine: Machine, page: tuple[int, dict[str, str], str]
) -> None:
    nothing: dict[str, Any] = {"resource_metadata": False, "metadata_paths": (), "login_page": False}
    with authorization_server(**nothing, registration=False, every_page=page) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("call", "x", "whoami", "--yes")
    assert outcome.status == 4, outcome.err
    assert "headers.Authorization" in outcome.err
    assert "fairlead login" not in outcome.err


@pytest.mark.parametrize("words", [(), ("--yes",), ("--no-browser",), ("--yes", "--client-id", "known")])
def test_every_form_of_a_login_to_a_server_without_one_ends_alike(
    fairlead: Fairlead, machine: Machine, browser: Browser, words: tuple[str, ...]
) -> None:
    browser()
    nothing: dict[str, Any] = {"resource_metadata": False, "metadata_paths": (), "login_page": False}
    with authorization_server(**nothing, registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("login", "x", *words)
        assert outcome.status == 4, outcome.err
        assert "it has no login: no OAuth metadata was found" in outcome.err
        assert "headers.Authorization" in outcome.err
        assert server.count("/register") == 0
    assert outcome.out == "", "there is no page to open"


def test_a_login_without_a_terminal_says_what_is_really_missing(fairlead: Fairlead, machine: Machine) -> None:
    nothing: dict[str, Any] = {"resource_metadata": False, "metadata_paths": (), "login_page": False}
    with authorization_server(**nothing, registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("login", "x")
    assert outcome.status == 4
    assert "it has no login: no OAuth metadata was found" in outcome.err
    assert "headers.Authorization" in outcome.err
    with authorization_server(registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        unregistered = fairlead("login", "x")
    assert unregistered.status == 3
    assert "oauth.client_id" in unregistered.err
    for said in (outcome.err, unregistered.err):
        assert "terminal" not in said


def test_a_server_that_registers_no_clients_says_so_in_call_and_status_seed_004(
    fairlead: Fairlead, machine: Machine
) -> None:
    with authorization_server(registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        outcome = fairlead("call", "x", "whoami", "--yes")
        (status,) = json.loads(fairlead("status", "--json").out)["servers"]
    assert outcome.status == 3
    for said in (outcome.err, status["last_error"] + status["hint"]):
        assert "http://127.0.0.1:33418/callback" in said
        assert "oauth.client_id" in said
    assert status["state"] == "needs_client_registration"


# By browser.


def test_a_login_holds_in_every_process_and_shows_no_token(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
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
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
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
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser()
    monkeypatch.setenv("FAIRLEAD_VAULT", "keyring")  # which this machine has not
    configure(machine, x={"url": server.mcp_url})
    outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 1
    assert "could not be kept" in outcome.err


def test_it_is_said_that_a_login_is_in_the_keyring(
    fairlead: Fairlead,
    machine: Machine,
    server: AuthorizationServer,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser()
    monkeypatch.setenv("FAIRLEAD_VAULT", "keyring")
    configure(machine, x={"url": server.mcp_url})
    before = keyring.get_keyring()
    keyring.set_keyring(SomeKeyring())
    try:
        assert fairlead("login", "x", "--yes").status == 0
        assert "kept in  keyring" in fairlead("whoami", "x").out
        assert json.loads(fairlead("auth", "list", "--json").out)["logins"][0]["kept_in"] == "keyring"
    finally:
        keyring.set_keyring(before)


def test_who_refuses_on_the_page_is_not_logged_in(
    fairlead: Fairlead, machine: Machine, server: AuthorizationServer, browser: Browser
) -> None:
    browser("")
    configure(machine, x={"url": server.mcp_url})
    server.add_client("known")
    outcome = fairlead("login", "x", "--yes", "--client-id", "known")
    assert outcome.status == 3
    assert "the person said no" in outcome.err
    assert "oauth" not in entry_of(machine)
    assert json.loads(fairlead("auth", "list", "--json").out)["logins"] == []


# Clients that are known beforehand.


@pytest.mark.requirement("NEED-13")
def test_a_client_that_works_is_remembered(fairlead: Fairlead, machine: Machine, browser: Browser) -> None:
    browser()
    with authorization_server(registration=False) as server:
        server.add_client("known", auth="client_secret_basic", client_secret="hush")
        configure(machine, x={"url": server.mcp_url})
        without = fairlead("login", "x", "--yes")
        assert without.status == 3
        assert "fairlead login x --client-id ID --callback-port " in without.err
        assert fairlead("login", "x", "--yes", "--client-secret", "hush").status == 2
        wrong = fairlead("login", "x", "--yes", "--client-id", "known", "--client-secret", "wrong")
        assert wrong.status == 3
        assert "oauth" not in entry_of(machine)
        # The hint, followed literally: the port that it named is the one the login comes back to.
        port = without.err.partition("--callback-port ")[2].partition("`")[0]
        client = ("--client-id", "known", "--client-secret", "hush", "--callback-port", port)
        right = fairlead("login", "x", "--yes", *client)
        assert right.status == 0, right.err
        oauth = entry_of(machine)["oauth"]
        assert oauth["callback_port"] == int(port)
        assert f"127.0.0.1:{port}/" in without.err
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
    assert "not a file" in outcome.err
    assert server.seen == []
