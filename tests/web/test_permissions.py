"""The dashboard shows the table's answer for each tool, and its answers to calls that wait count at once."""

import html
import re
from collections.abc import Callable

import anyio
import pytest

from fairlead.errors import FairleadError
from tests.conftest import Machine, Outcome
from tests.policy.permission_cells import CELLS, Cell, Table, one_of_each, require_alike
from tests.web.support import Client, Dashboard, dashboard_of

SECONDS = 60.0


@pytest.fixture
def table(machine: Machine, fairlead: Callable[..., Outcome]) -> Table:
    table = Table(machine)
    table.prepare(fairlead)
    table.forget_calls()
    return table


def answers_on(page: str) -> dict[str, tuple[str, str, str]]:
    """Of each tool on a server's page: the answer, the reason, and the line that says so."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    found: dict[str, tuple[str, str, str]] = {}
    for row in rows:
        cells = [
            html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)
        ]
        if len(cells) == 4:
            found[cells[0]] = (cells[1], cells[2], cells[3])
    return found


async def test_the_page_of_a_server_shows_the_answer_for_each_tool(table: Table, machine: Machine) -> None:
    async with dashboard_of(machine) as board, board.visited() as client:
        await board.host.connect("t", "u")
        for server in ("t", "u"):
            found = answers_on((await client.get(f"/servers/{server}")).text)
            for cell in (cell for cell in CELLS if cell.server == server):
                answer, reason, place = found[cell.tool]
                assert answer == cell.verdict, cell
                assert reason
                if cell.verdict != "held back" and cell.state in ("allow", "ask", "deny"):
                    assert re.search(r"fairlead\.json:\d+", place), (cell, place)


async def test_the_page_of_a_server_says_what_is_allowed_by_a_remembered_answer(
    table: Table, machine: Machine
) -> None:
    cell = next(cell for cell in CELLS if cell.verdict == "ask" and cell.rule == "none")
    async with dashboard_of(machine) as board, board.visited() as client:
        await board.host.connect(cell.server)
        await board.host.allow(cell.server, cell.tool)
        page = (await client.get(f"/servers/{cell.server}")).text
        reasons = {tool: reason for tool, (_, reason, _) in answers_on(page).items()}
    remembered = [tool for tool, reason in reasons.items() if "remembered answer" in reason]
    assert remembered == [cell.tool]
    assert f"fairlead approvals forget {cell.server} {cell.tool}" in reasons[cell.tool]


async def test_what_waits_is_answered_on_the_dashboard_and_nothing_else_waits(
    table: Table, machine: Machine
) -> None:
    some = one_of_each(CELLS)
    outcomes: dict[Cell, str] = {}
    async with dashboard_of(machine) as board, board.visited() as client:
        await board.host.connect("t", "u")
        for cell in some:
            async with anyio.create_task_group() as tasks:
                if cell.verdict == "ask":
                    tasks.start_soon(answer_next, board, client, cell)
                try:
                    await board.host.call(cell.server, cell.tool)
                    outcomes[cell] = "called"
                except FairleadError as exc:
                    outcomes[cell] = f"{exc}; {exc.hint}"
            assert not board.queue.pending()
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))


async def answer_next(board: Dashboard, client: Client, cell: Cell) -> None:
    """Allow the call that waits, once, with the button on the page."""
    page = await client.sees("/approvals", cell.tool)
    (waiting,) = board.queue.pending()
    assert waiting.id in page.text
    sent = await client.send("/approvals", "/approvals", id=waiting.id, answer="once")
    assert sent.status == 303


async def test_a_review_on_the_dashboard_changes_the_answer_and_lets_go_what_changed(
    table: Table, machine: Machine
) -> None:
    for cell in (
        next(cell for cell in CELLS if (cell.server, cell.state) == (server, state) and cell.rule == "none")
        for server in ("t", "u")
        for state in ("unreviewed", "ask", "deny", "changed")
    ):
        async with dashboard_of(machine) as board, board.visited() as client:
            await board.host.connect(cell.server)
            page = await client.sees(f"/servers/{cell.server}/review", cell.tool)
            card = next(part for part in page.text.split("<article") if f">{cell.tool}<" in part)
            digest = re.search(r'name="digest" value="([^"]+)"', card)
            assert digest is not None
            if cell.state == "changed":
                assert "+Say it to all." in page.text
                assert "changed, held back" in card
            sent = await client.send("/", f"/servers/{cell.server}/review", verdict="allow", digest=digest[1])
            assert sent.status == 303
            with anyio.fail_after(SECONDS):
                result = await board.host.call(cell.server, cell.tool)
            assert not result.is_error
            found = answers_on((await client.get(f"/servers/{cell.server}")).text)
            assert found[cell.tool][0] == "allow"
