"""`fairlead login` and a real browser: what a person sees in either, and how they get back."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.auth import clicking_browser
from tests.auth.authorization_server import authorization_server
from tests.conftest import Machine

if sys.platform == "win32" or shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here, or no pseudo-terminal", allow_module_level=True)

from tests.cli.pty_support import Person, at_terminal

pytestmark = pytest.mark.slow

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]


def test_a_person_logs_in_in_a_browser(machine: Machine) -> None:
    with authorization_server() as server:
        machine.write_user(json.dumps({"servers": {"x": {"url": server.mcp_url}}}))
        env = machine.env | {"TERM": "dumb", "FAIRLEAD_VAULT": "file"}
        with at_terminal("login", "x", "--yes", env=env, cwd=machine.project) as person:
            page = _pressed(person, "ada")
            assert "You are back" in page
            assert "You can close this window" in page
            person.sees("logged in to `x`")
            assert person.waits() == 0
        assert [grant.account for grant in server.access_tokens.values()] == ["ada"]


@pytest.mark.requirement("HARD-32")
def test_what_an_issuer_writes_is_text_in_the_page_and_on_the_terminal(machine: Machine) -> None:
    evil = "<script>document.body.textContent = 'owned'</script><b>bold</b>\x1b]0;owned\x07"
    with authorization_server(answer={"error": "access_denied", "error_description": evil}) as server:
        machine.write_user(json.dumps({"servers": {"x": {"url": server.mcp_url}}}))
        env = machine.env | {"TERM": "dumb", "FAIRLEAD_VAULT": "file"}
        with at_terminal("login", "x", "--yes", env=env, cwd=machine.project) as person:
            page = _pressed(person, "ada")
            assert "The login was refused" in page
            assert "<script>document.body.textContent = 'owned'</script><b>bold</b>" in page
            assert person.waits() == 3
            assert "\x1b]" not in person.seen
        assert server.count("/token") == 0


def _pressed(person: Person, button: str) -> str:
    """Press a button on the login page that is shown, and return what the page after it says."""
    person.sees("address: ")
    url = next(line for line in person.seen.splitlines() if line.startswith("http://"))
    command = clicking_browser.command(url, button)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=ROOT)
    return done.stdout
