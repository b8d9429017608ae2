"""What a user does is in the audit log, the same from the command line, the console and the dashboard."""

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.audit import AuditQuery, latest_records
from fairlead.store.opening import open_database
from fairlead.testing import ScriptedServer
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.cli.gateway_support import gateway
from tests.cli.login.support import BROWSER
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.web.support import dashboard_of
from tests.web.test_pages import review_form

ACTIONS = {"add", "remove", "approve", "enable", "disable", "review", "restart", "lock", "login", "logout"}
SWITCHED_AND_REVIEWED: list[tuple[str, str, dict[str, Any]]] = [
    ("disable", "x", {}),
    ("enable", "x", {}),
    ("review", "x", {"allowed": ["echo"], "asked": [], "denied": []}),
    ("review", "x", {"allowed": [], "asked": [], "denied": ["delete"]}),
]


def recorded(machine: Machine, surface: str) -> list[tuple[str, str, dict[str, Any]]]:
    """What the user did, the oldest first; each record says where."""
    with open_database(store_file(machine.env)) as database:
        records = [each for each in latest_records(database, AuditQuery(), 100) if each.kind in ACTIONS]
    found: list[tuple[str, str, dict[str, Any]]] = []
    for record in records:
        details = dict(record.details or {})
        assert details.pop("in") == surface
        if record.kind in ("enable", "disable"):
            assert details.pop("file") == str(machine.user_file)
        assert record.principal == "local"
        found.append((record.kind, record.server, details))
    return found


def configure(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "delete"])
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))


def configure_project(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_project(json.dumps({"servers": {"p": server.entry()}}))


@pytest.mark.requirement("NEED-30")
def test_what_the_command_line_does_is_recorded(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    configure(machine, tmp_path)
    for words in (
        ("disable", "x"),
        ("enable", "x"),
        ("enable", "x"),  # it is enabled already: nothing is done, and nothing recorded
        ("review", "x", "--allow", "echo"),
        ("review", "x", "--deny", "delete"),
    ):
        outcome = fairlead(*words)
        assert outcome.status == 0, outcome.err
    assert recorded(machine, "command line") == SWITCHED_AND_REVIEWED


@pytest.mark.requirement("NEED-30")
async def test_what_the_console_does_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with session_on(machine) as console:
        await console.does("/mcp disable x")
        await console.does("/mcp enable x")
        await console.does("/mcp review x --allow echo")
        await console.does("/mcp review x --deny delete")
    assert recorded(machine, "console") == SWITCHED_AND_REVIEWED


@pytest.mark.requirement("NEED-30")
async def test_what_the_dashboard_does_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with dashboard_of(machine) as board, board.visited() as client:
        assert (await client.send("/", "/servers/x", do="disable")).status == 303
        assert (await client.send("/", "/servers/x", do="enable")).status == 303
        await board.host.connect("x")
        for tool, answer in (("echo", "allow"), ("delete", "deny")):
            await client.sees("/servers/x/review", tool)
            form = await review_form(client, tool)
            assert (await client.send("/", "/servers/x/review", verdict=answer, **form)).status == 303
    assert recorded(machine, "dashboard") == SWITCHED_AND_REVIEWED


@pytest.mark.requirement("NEED-30")
async def test_what_another_administrator_does_in_the_dashboard_is_recorded_under_their_name(
    machine: Machine, tmp_path: Path
) -> None:
    configure(machine, tmp_path)
    async with dashboard_of(machine) as board, board.visited(logged_in=False) as client:
        token = board.tokens.add("bob", scopes=("decide", "admin"), principal="bob")
        assert (await client.log_in(token)).status == 303
        assert (await client.send("/", "/servers/x", do="disable")).status == 303
        assert (await client.send("/", "/servers/x", do="enable")).status == 303
        assert (await client.send("/", "/servers/x", do="restart")).status == 303
    with open_database(store_file(machine.env)) as database:
        records = [each for each in latest_records(database, AuditQuery(), 100) if each.kind in ACTIONS]
    assert [(each.kind, each.principal) for each in records] == [
        ("disable", "token:bob"),
        ("enable", "token:bob"),
        ("restart", "token:bob"),
    ]


@pytest.mark.requirement("NEED-30")
def test_tokens_and_forgotten_approvals_are_recorded(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry(approval="ask")}}))
    for words in (
        ("gateway", "token", "add", "ci"),
        ("gateway", "token", "remove", "ci"),
        ("call", "x", "echo", "--yes", "--always"),
        ("approvals", "forget", "x", "echo"),
    ):
        outcome = fairlead(*words)
        assert outcome.status == 0, outcome.err
    with open_database(store_file(machine.env)) as database:
        records = [each for each in latest_records(database, AuditQuery(), 100) if each.kind != "call"]
    assert [(each.kind, each.server, each.details) for each in records] == [
        ("add token", "", {"in": "command line", "name": "ci", "scopes": ["mcp"]}),
        ("remove token", "", {"in": "command line", "name": "ci"}),
        ("always allow", "x", {"tool": "echo"}),
        ("forget approval", "x", {"in": "command line", "tool": "echo"}),
    ]
    machine.write_user("{")
    assert fairlead("gateway", "token", "remove", "other").status == 1


@pytest.mark.requirement("NEED-30")
def test_consent_of_the_command_line_is_recorded(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    configure_project(machine, tmp_path)
    assert fairlead("approve", "p", "--yes").status == 0
    assert recorded(machine, "command line") == [("approve", "p", {})]


@pytest.mark.requirement("NEED-30")
async def test_consent_of_the_console_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure_project(machine, tmp_path)
    async with session_on(machine, "yes", "quit") as console:
        await console.does("/mcp review p")
    assert recorded(machine, "console") == [("approve", "p", {})]


@pytest.mark.requirement("NEED-30")
def test_a_restart_by_the_command_line_is_recorded(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    configure(machine, tmp_path)
    with gateway(machine):
        outcome = fairlead("gateway", "restart", "x")
        assert outcome.status == 0, outcome.err
    assert recorded(machine, "command line") == [("restart", "x", {})]


@pytest.mark.requirement("NEED-30")
async def test_a_restart_by_the_console_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with session_on(machine) as console:
        await console.does("/mcp restart x")
    assert recorded(machine, "console") == [("restart", "x", {})]


@pytest.mark.requirement("NEED-30")
async def test_a_restart_by_the_dashboard_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with dashboard_of(machine) as board, board.visited() as client:
        assert (await client.send("/", "/servers/x", do="restart")).status == 303
        await client.sees("/servers", "1 ready")
    assert recorded(machine, "dashboard") == [("restart", "x", {})]


@pytest.fixture
def issuer(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Generator[AuthorizationServer]:
    """A server that wants a login, on a machine that keeps logins in a file, with a browser."""
    program = machine.home / "browser.py"
    program.write_text(BROWSER)
    settings = {"FAIRLEAD_VAULT": "file", "BROWSER": f"{sys.executable} {program} 'ada' %s"}
    for name, value in settings.items():
        machine.env[name] = value
        monkeypatch.setenv(name, value)
    with authorization_server(scope="mcp:read") as issuer:
        machine.write_user(json.dumps({"servers": {"x": {"url": issuer.mcp_url, "trust": "trusted"}}}))
        yield issuer


def login_record(issuer: AuthorizationServer) -> tuple[str, str, dict[str, Any]]:
    return "login", "x", {"issuer": issuer.url, "account": "", "scope": "mcp:read"}


@pytest.mark.requirement("NEED-30")
def test_a_login_and_a_logout_by_the_command_line_are_recorded(
    machine: Machine, issuer: AuthorizationServer, fairlead: Callable[..., Outcome]
) -> None:
    outcome = fairlead("login", "x", "--yes")
    assert outcome.status == 0, outcome.err
    assert fairlead("logout", "x").status == 0
    gone = {"issuer": issuer.url, "account": "", "revocation": "not_offered"}
    assert recorded(machine, "command line") == [login_record(issuer), ("logout", "x", gone)]


@pytest.mark.requirement("NEED-30")
async def test_a_login_by_the_console_is_recorded(machine: Machine, issuer: AuthorizationServer) -> None:
    async with session_on(machine, "yes") as console:
        await console.does("/mcp login x")
    assert recorded(machine, "console") == [login_record(issuer)]


@pytest.mark.requirement("NEED-30")
async def test_a_login_by_the_dashboard_is_recorded(machine: Machine, issuer: AuthorizationServer) -> None:
    async with dashboard_of(machine) as board, board.visited() as client:
        assert (await client.send("/", "/servers/x", do="log_in")).status == 303
        shown = (await client.sees("/servers/x", 'id="login-page"')).text
        page = shown.split('id="login-page"')[0].rsplit('href="', 1)[1].split('"')[0]
        address = await Clicking("ada").visit(page.replace("&amp;", "&"))
        done = await client.send("/servers/x", "/servers/x", do="finish_login", address=address)
        assert done.status == 303, done.text
        await client.sees("/servers/x", "You are logged in.")
    assert recorded(machine, "dashboard") == [login_record(issuer)]


@pytest.mark.requirement("NEED-30")
def test_a_lockfile_that_is_written_is_recorded(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    configure(machine, tmp_path)
    assert fairlead("lock").status == 0
    assert fairlead("lock", "--check").status == 0  # which changes nothing
    file = str(machine.user_file.with_name("fairlead.lock"))
    assert recorded(machine, "command line") == [("lock", "x", {"file": file})]


@pytest.mark.requirement("NEED-30")
def test_a_server_that_is_added_and_removed_is_recorded(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    assert fairlead("add", "a", "--later", "--scope", "user", "--", "no-such-program").status == 0
    assert fairlead("remove", "a", "--scope", "user").status == 0
    assert recorded(machine, "command line") == [("add", "a", {}), ("remove", "a", {})]


def test_nothing_is_recorded_where_the_audit_is_off(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    server = ScriptedServer(tmp_path / "record")
    document = {"servers": {"x": server.entry()}, "audit": {"enabled": False}}
    machine.write_user(json.dumps(document))
    assert fairlead("disable", "x").status == 0
    assert recorded(machine, "command line") == []
