"""A machine whose logins are in a file, on which a browser can be had, and a server that wants a login."""

import sys
from collections.abc import Generator

import pytest

from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.cli.login.support import BROWSER, Browser
from tests.conftest import Machine


@pytest.fixture(autouse=True)
def vault(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.env["FAIRLEAD_VAULT"] = "file"
    monkeypatch.setenv("FAIRLEAD_VAULT", "file")
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def browser(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Browser:
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
