"""Logging in over SSH: the terminal is on one machine, the browser on another.

The browser reaches the login page, and nothing of the machine that the terminal is on but what is forwarded.
"""

import re
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.auth.authorization_server import AuthorizationServer, authorization_server
from tests.journeys.support.elsewhere import Network, browser_elsewhere
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import Terminal, start_gateway, stop_gateway, terminal

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

SSH = {"SSH_CONNECTION": "192.0.2.7 50000 192.0.2.1 22", "SSH_TTY": "/dev/pts/0"}


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def page_in(shell: Terminal) -> str:
    """The address of the login page that a command shows."""
    shell.sees(re.compile(r"address: *$", re.MULTILINE))
    found = re.search(r"http://\S+/authorize\?\S+", shell.shown)
    assert found, shell.shown
    return found[0]


def reach(network: Network, issuer: AuthorizationServer) -> None:
    """The login page is on the internet."""
    network.forwarded[port_of(issuer.url)] = port_of(issuer.url)


@pytest.mark.slow
@pytest.mark.requirement("NEED-14")
def test_a_person_pastes_the_address_that_their_browser_ends_up_at(journey: Journey) -> None:
    with (
        authorization_server(scope="mcp:read") as issuer,
        terminal(journey, **SSH) as shell,
        browser_elsewhere() as (visitor, network),
    ):
        reach(network, issuer)
        journey.configure(notes={"url": issuer.mcp_url})
        shell.types("fairlead login notes --yes")
        visitor("open", page_in(shell))
        visitor("click", "text=ada")
        visitor("see", "body", "can't be reached")
        assert network.refused, "the browser is not on this machine"
        shell.answers(visitor("value", "location.href"))
        shell.sees("logged in to `notes`")
        assert shell.waits() == 0
        assert "ada mcp:read" in shell.runs("fairlead call notes.whoami")
        assert journey.commands == 2


@pytest.mark.slow
def test_with_the_port_forwarded_the_browser_comes_back_by_itself(journey: Journey) -> None:
    with (
        authorization_server(scope="mcp:read") as issuer,
        terminal(journey, **SSH) as shell,
        browser_elsewhere() as (visitor, network),
    ):
        reach(network, issuer)
        journey.configure(notes={"url": issuer.mcp_url})
        shell.types("fairlead login notes --yes")
        page = page_in(shell)
        command = re.search(r"`ssh -L (\d+):127\.0\.0\.1:(\d+)`", shell.shown)
        assert command, shell.shown
        back = parse_qs(urlsplit(page).query)["redirect_uri"][0]
        assert {*command.groups()} == {str(port_of(back))}
        network.forwarded[int(command[1])] = int(command[2])
        visitor("open", page)
        visitor("click", "text=grace")
        visitor("see", "body", "You are back")
        shell.sees("logged in to `notes`")
        assert shell.waits() == 0
        assert "grace mcp:read" in shell.runs("fairlead call notes.whoami")


@pytest.mark.slow
@pytest.mark.requirement("HARD-82")
def test_the_dashboard_through_a_tunnel_on_another_port_logs_in_as_well(journey: Journey) -> None:
    with (
        authorization_server(scope="mcp:read") as issuer,
        terminal(journey, **SSH) as gateway,
        terminal(journey, **SSH) as shell,
        browser_elsewhere() as (visitor, network),
    ):
        reach(network, issuer)
        journey.configure(notes={"url": issuer.mcp_url, "approval": "allow"})
        url, _ = start_gateway(gateway)
        network.forwarded[9000] = port_of(url)  # ssh -L 9000:localhost:PORT
        code = re.search(r"/login\?code=\S+", shell.runs("fairlead gateway dashboard"))
        assert code
        visitor("open", f"http://localhost:9000{code[0]}")
        visitor("click", "#to-Servers")
        visitor("click", "#server-notes")
        visitor("click", "#log_in-notes")
        visitor("see", "#live-login", "you go to 127.0.0.1")
        visitor("follow", "#login-page")
        visitor("click", "text=ada")
        visitor("see", "body", "can't be reached")
        address = visitor("value", "location.href")
        visitor("leave")
        visitor("click", "text=My browser is on another machine")
        visitor("fill", "#live-login input[name=address]", address)
        visitor("click", "#finish_login-login")
        visitor("see", "#live-login", "You are logged in.")
        assert "ada mcp:read" in shell.runs("fairlead call notes.whoami")
        stop_gateway(gateway)
