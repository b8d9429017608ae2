"""No page of the dashboard shows a secret that a server wrote into its definitions."""

import pytest

from tests.conftest import Machine
from tests.host.test_stored_secrets import FORMS, SECRET, forget, leaking, secrets_in
from tests.web.support import dashboard

pytestmark = pytest.mark.requirement("HARD-62")


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
async def test_no_page_shows_a_secret_of_a_definition(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    forget(monkeypatch)
    machine.env["LEAKED"] = SECRET
    entry = leaking(*FORMS.values(), trust=trust)
    async with dashboard(machine, {"s": entry}) as board, board.visited() as client:
        await board.host.connect("s")
        for path in (
            "/",
            "/servers",
            "/servers/s",
            "/servers/s/review",
            "/tools",
            "/tools?q=says",
            "/calls",
            "/logs?server=s",
        ):
            page = await client.get(path)
            assert page.status == 200, path
            assert secrets_in(page.text) == [], path
        assert "•••" in (await client.get("/servers/s/review")).text


async def test_what_a_reviewer_is_shown_still_names_what_is_hidden(machine: Machine) -> None:
    entry = leaking("hid\u200bden", trust="untrusted")
    machine.env["LEAKED"] = SECRET
    async with dashboard(machine, {"s": entry}) as board, board.visited() as client:
        await board.host.connect("s")
        assert "hid⟨U+200B⟩den" in (await client.get("/servers/s/review")).text
