"""Logging in is one action: every surface shows the same before, stores the same, and records the same."""

import html
import json
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.audit import AuditQuery, AuditRecord, latest_records
from fairlead.store.opening import open_database
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.cli.login.support import BROWSER
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.web.support import Client, dashboard_of

Fairlead = Callable[..., Outcome]


@pytest.fixture
def issuer(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Generator[AuthorizationServer]:
    """A server that wants a login, on a machine that keeps logins in a file, with a browser."""
    program = machine.home / "browser.py"
    program.write_text(BROWSER)
    for name, value in {
        "FAIRLEAD_VAULT": "file",
        "BROWSER": f"{sys.executable} {program} 'ada' %s",
    }.items():
        machine.env[name] = value
        monkeypatch.setenv(name, value)
    with authorization_server(scope="mcp:read") as issuer:
        machine.write_user(json.dumps({"servers": {"x": {"url": issuer.mcp_url, "trust": "trusted"}}}))
        yield issuer


@pytest.fixture
def without_vault(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins belong into a keyring, which this machine has not."""
    machine.env["FAIRLEAD_VAULT"] = "keyring"
    monkeypatch.setenv("FAIRLEAD_VAULT", "keyring")


def records(machine: Machine, *kinds: str) -> list[AuditRecord]:
    with open_database(store_file(machine.env)) as database:
        return [each for each in latest_records(database, AuditQuery(), 100) if each.kind in kinds]


async def finish(client: Client) -> str:
    """Log in at the page that the dashboard shows. Returns what was shown before, and what after."""
    shown = (await client.sees("/servers/x", 'id="login-page"')).text
    page = shown.split('id="login-page"')[0].rsplit('href="', 1)[1].split('"')[0]
    address = await Clicking("ada").visit(html.unescape(page))
    done = await client.send("/servers/x", "/servers/x", do="finish_login", address=address)
    assert done.status == 303, done.text
    after = (await client.sees("/servers/x", "You are logged in.")).text
    return f"{shown}\n{after}"


async def log_in_everywhere(machine: Machine, fairlead: Fairlead) -> dict[str, str]:
    """What each surface shows of a login."""
    shown: dict[str, str] = {}
    outcome = await _in_thread(fairlead, "login", "x", "--yes", "--force")
    shown["command line"] = outcome.out + outcome.err
    async with session_on(machine, "yes") as console:
        shown["console"] = await console.does("/mcp login x")
    async with dashboard_of(machine) as board, board.visited() as client:
        assert (await client.send("/", "/servers/x", do="log_in")).status == 303
        shown["dashboard"] = html.unescape(await finish(client))
    return shown


async def _in_thread(fairlead: Fairlead, *words: str) -> Outcome:
    from anyio import to_thread

    return await to_thread.run_sync(lambda: fairlead(*words))


@pytest.mark.requirement("NEED-14")
async def test_every_surface_shows_page_issuer_and_scopes_before_a_login(
    machine: Machine, issuer: AuthorizationServer, fairlead: Fairlead
) -> None:
    shown = await log_in_everywhere(machine, fairlead)
    assert [*shown] == ["command line", "console", "dashboard"]
    for surface, text in shown.items():
        before = text.split("logged in")[0]
        for words in (
            f"{issuer.url}/authorize?",
            "mcp:read",
            "Its tokens are issued and renewed by 127.0.0.1",
        ):
            assert words in before, surface


@pytest.mark.requirement("NEED-30")
async def test_every_surface_records_a_login_the_same(
    machine: Machine, issuer: AuthorizationServer, fairlead: Fairlead
) -> None:
    surfaces = [*await log_in_everywhere(machine, fairlead)]
    found = records(machine, "login")
    details: dict[str, Any] = {"issuer": issuer.url, "account": "", "scope": "mcp:read"}
    assert [each.details for each in found] == [{**details, "in": surface} for surface in surfaces]
    assert {each.principal for each in found} == {"local"}


@pytest.mark.usefixtures("issuer", "without_vault")
async def test_every_surface_says_that_a_login_could_not_be_stored(
    machine: Machine, fairlead: Fairlead
) -> None:
    shown = await log_in_everywhere(machine, fairlead)
    for surface, text in shown.items():
        assert "the login to `x` worked, but could not be kept" in text, surface


@pytest.mark.requirement("NEED-30")
async def test_a_login_that_another_administrator_makes_is_recorded_under_their_name(
    machine: Machine, issuer: AuthorizationServer
) -> None:
    async with dashboard_of(machine) as board, board.visited(logged_in=False) as client:
        token = board.tokens.add("bob", scopes=("decide", "admin"), principal="bob")
        assert (await client.log_in(token)).status == 303
        assert (await client.send("/", "/servers/x", do="log_in")).status == 303
        await finish(client)
    (record,) = records(machine, "login")
    assert record.principal == "token:bob"
    assert record.details == {
        "issuer": issuer.url,
        "account": "",
        "scope": "mcp:read",
        "in": "dashboard",
        "for": "local",
    }


@pytest.mark.requirement("NEED-30")
def test_the_client_that_a_login_writes_is_recorded_as_an_edit(
    machine: Machine, issuer: AuthorizationServer, fairlead: Fairlead
) -> None:
    issuer.add_client("known")
    for _ in range(2):  # the second time the file has it already
        outcome = fairlead("login", "x", "--yes", "--client-id", "known")
        assert outcome.status == 0, outcome.err
    (record,) = records(machine, "edit")
    assert (record.server, record.principal) == ("x", "local")
    assert record.details == {
        "in": "command line",
        "file": str(machine.user_file),
        "fields": ["oauth.client_id"],
    }
