"""Logging in to a server from the dashboard: a real browser, a real gateway, a real authorization server."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from fairlead.gateway.access.tokens import decide_token
from tests.auth.authorization_server import authorization_server
from tests.cli.gateway_support import gateway
from tests.conftest import Machine, Outcome
from tests.web.browsing import browsing
from tests.web.test_browser import shoot

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

SECONDS = 120


@pytest.mark.slow
def test_a_person_logs_in_with_the_button_and_agents_may_call(
    machine: Machine, tmp_path: Path, fairlead: Callable[..., Outcome]
) -> None:
    machine.env["FAIRLEAD_VAULT"] = "file"
    with authorization_server() as issuer:
        entry = {"url": issuer.mcp_url, "trust": "trusted", "approval": "allow"}
        machine.write_user(json.dumps({"servers": {"notes": entry}}))
        with gateway(machine) as up:
            token = decide_token(machine.env)
            board = up.url.removesuffix("/mcp")
            anyio.run(_log_in, board, token, tmp_path)
            assert [grant.account for grant in issuer.access_tokens.values()] == ["ada"]
            called = fairlead("call", "notes", "whoami")
            assert (called.status, called.out.strip()) == (0, "ada"), called.err
            assert f"through the gateway at {board}" in called.err


async def _log_in(board: str, token: str, folder: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with browsing() as browser:
            await browser("open", f"{board}/login")
            await browser("fill", "#secret", token)
            await browser("press", "Enter")
            await browser("see", "#live", "live")
            await browser("click", "#to-Servers")
            await browser("see", "#live", "live")
            await browser("click", "#restart-notes")
            await browser("see", ".state", "auth required")
            await browser("click", "#server-notes")
            await browser("click", "#log_in-notes")
            await browser("see", "#live-login", "you go to 127.0.0.1")
            await shoot(browser, folder, "login")
            await browser("follow", "#login-page")
            await browser("click", "text=ada")
            await browser("see", "body", "You are back")
            await browser("leave")
            # Nobody touches the first tab meanwhile: it is told.
            await browser("see", "#live-login", "You are logged in.")
            await browser("see", "dd .state", "ready")
            await shoot(browser, folder, "logged-in")
            assert await browser("complaints") == []
