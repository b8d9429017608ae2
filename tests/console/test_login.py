"""Logging in from the console: nobody is asked at the start, and the browser comes back beside the prompt."""

import re
import sys
from collections.abc import Generator

import pytest
from anyio import to_thread

from fairlead.console.app import servers_line
from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.cli.login.support import BROWSER, clicked, configure
from tests.conftest import Machine
from tests.console.support import session_on
from tests.console.tmux_support import tmux_console


@pytest.fixture
def server(machine: Machine) -> Generator[AuthorizationServer]:
    """A server that wants a login, on a machine that keeps logins in a file."""
    machine.env["FAIRLEAD_VAULT"] = "file"
    with authorization_server(scope="mcp:read") as server:
        configure(machine, x={"url": server.mcp_url})
        yield server


def install_browser(machine: Machine) -> None:
    program = machine.home / "browser.py"
    program.write_text(BROWSER)
    machine.env["BROWSER"] = f"{sys.executable} {program} 'ada' %s"


async def test_a_login_is_begun_by_a_person_and_finished_by_their_browser(
    machine: Machine, server: AuthorizationServer
) -> None:
    install_browser(machine)
    async with tmux_console(machine) as screen:
        await screen.shows("`x` wants a login")
        await screen.shows("1 want a login")
        assert server.count("/register") == 0
        await screen.type("/mcp login x\n")
        shown = await screen.shows("Open it? [yes/NO]:")
        assert f"{server.url}/authorize?" in shown
        assert "leads to a program on this machine" in shown
        await screen.type("no\n")
        await screen.shows("error:")
        await screen.type("/mcp login x\n")
        await screen.shows(re.compile(r"(?s)Open it\?.*Open it\?"))
        await screen.type("yes\n")
        await screen.shows("logged in to `x`")
        await screen.shows("`x` is ready: 2 tools")
        await screen.shows("1 ready")


@pytest.mark.requirement("NEED-14", "HARD-32")
async def test_a_login_is_finished_by_the_address_that_a_browser_elsewhere_ended_at(
    machine: Machine, server: AuthorizationServer
) -> None:
    async with tmux_console(machine, columns=2000) as screen:
        await screen.shows("`x` wants a login")
        await screen.type("/mcp login x\n")
        await screen.shows("Open it?")
        await screen.type("yes\n")
        shown = await screen.shows("please open that address yourself")
        page = re.search(r"http://\S+/authorize\S+", shown)
        assert page is not None
        await screen.type("/mcp login x http://127.0.0.1/nonsense\n")
        await screen.shows("error:")
        await screen.type(f"/mcp login x {await _clicked(page[0])}\n")
        await screen.shows("`x` is ready: 2 tools")
    kept = machine.home / ".local" / "state" / "fairlead" / "console_history"
    assert "http" not in kept.read_text()


async def test_a_server_that_registers_no_clients_says_what_to_register_seed_004(machine: Machine) -> None:
    with authorization_server(registration=False) as server:
        configure(machine, x={"url": server.mcp_url})
        async with session_on(machine) as console:
            await console.session.host.connect("x")
            line = servers_line(console.session.host.status())
            everything, one = await console.does("/mcp"), await console.does("/mcp x")
    assert line == "1 want a client"
    assert "needs_client_registration" in everything
    for shown in (everything, one):
        assert "http://127.0.0.1:33418/callback" in shown
        assert "oauth.client_id" in shown


async def _clicked(url: str) -> str:
    return await to_thread.run_sync(clicked, url)
