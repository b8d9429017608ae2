"""The dashboard in a real browser: it is live, and what a person does there counts."""

import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.catalog.results import ToolResult
from tests.conftest import Machine
from tests.host.test_quarantine import ChangingServer
from tests.web.browsing import Browser, browsing
from tests.web.support import TOKEN, Dashboard, dashboard

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

SCREENSHOTS = os.environ.get("FAIRLEAD_SCREENSHOTS")
"""The folder to keep them in, where somebody wants to look at them."""
ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
CHANGED = {**ECHO, "description": "Say it again, to everybody."}
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


async def enter(browser: Browser, board: Dashboard) -> None:
    """Come by a link, as the command line prints it."""
    await browser("open", f"{board.url}/login?code={await board.code()}")
    await browser("see", "h1", "Overview")
    await browser("see", "#live", "live")


async def shoot(browser: Browser, folder: Path, name: str) -> None:
    """Keep what it looks like, in light and dark, where the tester wants that."""
    folder = Path(SCREENSHOTS or folder)
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("dark", "light"):
        await browser("scheme", scheme)
        await browser("shoot", str(folder / f"{name}-{scheme}.png"))
        assert (folder / f"{name}-{scheme}.png").stat().st_size > 5_000


@pytest.mark.slow
async def test_states_change_while_somebody_looks_and_buttons_work(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO, "received", stderr="hello from the log")
    broken = {"command": "there-is-no-such-program", "args": [EVIL], "allow_tools": ["*"]}
    servers = {"notes": server.entry(), "broken": broken, "off": server.entry(enabled=False)}
    async with dashboard(machine, servers) as board, browsing() as browser:
        await enter(browser, board)
        assert await browser("value", "location.search") == ""
        await browser("click", "#to-Servers")
        await browser("see", "tr:has(#server-notes) .state", "idle")
        await board.host.connect("notes", "broken")
        await browser("see", "tr:has(#server-notes) .state", "ready")
        await browser("see", "tr:has(#server-broken) .state", "error")
        await shoot(browser, tmp_path, "servers")
        await browser("click", "#disable-notes")
        await browser("see", "tr:has(#server-notes) .state", "disabled")
        await browser("click", "#enable-notes")
        await browser("click", "#server-notes")
        await browser("click", "#restart-notes")
        await browser("see", "dd .state", "ready")
        await browser("see", "pre", "hello from the log")
        await shoot(browser, tmp_path, "server")
        base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
        assert base.startswith("/~")
        await browser("open", f"{board.url}{base}/servers/broken")
        await browser("see", "code", EVIL)
        await browser("open", f"{board.url}{base}/tools?q=say+again")
        await browser("see", "td", "Say it again.")
        await shoot(browser, tmp_path, "tools")
        assert await browser("complaints") == []


@pytest.mark.slow
@pytest.mark.requirement("HARD-47")
async def test_a_call_that_waits_is_shown_whole_and_goes_on_with_a_yes(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    results: list[ToolResult] = []
    async with dashboard(machine, {"notes": server.entry(approval="ask")}) as board, browsing() as browser:
        await enter(browser, board)
        await browser("click", "#to-Approvals")
        await browser("see", "p", "No call waits for you.")
        await browser("see", "#live", "live")

        async def call() -> None:
            results.append(await board.host.call("notes", "echo", {"what": EVIL, "rest": "x" * 500}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await browser("see", ".card", EVIL)
            await browser("see", ".card", "x" * 500)
            await browser("see", ".badge", "1")
            await shoot(browser, tmp_path, "approvals")
            await browser("click", "text=Allow once")
        await browser("see", "p", "No call waits for you.")
        assert EVIL in results[0].text.replace("\\", "")
        await browser("click", "#to-Calls")
        await browser("see", "td", "notes.echo")
        await browser("see", "td", "ok")
        await shoot(browser, tmp_path, "calls")
        assert await browser("complaints") == []


@pytest.mark.slow
async def test_what_was_chosen_and_not_sent_survives_what_changes_meanwhile(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    machine.write_project("{}")
    async with dashboard(machine, {"notes": server.entry()}) as board, browsing() as browser:
        await enter(browser, board)
        await browser("click", "#to-Servers")
        await browser("click", "#server-notes")
        await browser("see", "#live", "live")
        await browser("see", "#restart-notes", "Start")
        value = "document.querySelector('#scope-notes').value"
        before = await browser("value", value)
        options = await browser(
            "value", "[...document.querySelector('#scope-notes').options].map(o => o.value)"
        )
        other = next(each for each in options if each != before)
        await browser("choose", "#scope-notes", other)
        await browser("value", "document.activeElement.blur()")
        await board.host.connect("notes")
        await browser("see", "dd .state", "ready")  # the rest of the page is fresh
        assert await browser("value", value) == other
        await browser("see", "#restart-notes", "Start")
        assert await browser("complaints") == []


NOTIFICATIONS = """
window.notes = [];
window.Notification = class extends EventTarget {
  static permission = sessionStorage.getItem("permission") ?? "default";
  static requestPermission() {
    sessionStorage.setItem("permission", "granted");
    return Promise.resolve((Notification.permission = "granted"));
  }
  constructor(title, options) {
    super();
    window.notes.push({ title, ...options });
    window.last = this;
  }
};
document.hasFocus = () => false;
"""


@pytest.mark.slow
async def test_the_browser_notifies_of_what_waits_if_that_was_switched_on(
    machine: Machine, tmp_path: Path
) -> None:
    servers: dict[str, Any] = {}
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        servers[name] = ChangingServer(tmp_path / name, ECHO).entry(approval="ask")
    async with dashboard(machine, servers) as board, browsing() as browser:
        await browser("prepare", NOTIFICATIONS)
        await enter(browser, board)
        await browser("click", "#to-Approvals")
        await browser("see", "#live", "live")
        await browser("see", "#notify", "Notify me in this browser")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(board.host.call, "a", "echo", {"what": "one"})
            await browser("see", ".badge", "1")
            assert await browser("value", "notes") == [], "it was not switched on"
            await browser("click", "#notify")
            await browser("see", "#notify", "Stop notifications")
            tasks.start_soon(board.host.call, "b", "echo", {"what": "two"})
            await browser("see", ".badge", "2")
            expected = {
                "title": "Fairlead",
                "body": "2 approvals and reviews wait for you",
                "tag": "fairlead-waiting",
            }
            assert await browser("value", "notes") == [expected]
            await browser("click", "#to-Calls")
            await browser("see", "#live", "live")
            tasks.start_soon(board.host.call, "c", "echo", {"what": "three"})
            await browser("see", ".badge", "3")
            assert len(await browser("value", "notes")) == 1
            await browser("value", "last.dispatchEvent(new Event('click'))")
            await browser("see", "h1", "Approvals")
            await browser("see", "#live", "live")
            await browser("click", "#notify")
            await browser("see", "#notify", "Notify me in this browser")
            tasks.start_soon(board.host.call, "d", "echo", {"what": "four"})
            await browser("see", ".badge", "4")
            assert await browser("value", "notes") == [], "it was switched off again"
            tasks.cancel_scope.cancel()
        assert await browser("complaints") == []


@pytest.mark.slow
@pytest.mark.requirement("HARD-40", "NEED-32")
async def test_a_tool_that_changes_is_held_back_shown_as_a_diff_and_let_go_by_a_review(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO, "change_tools")
    # What the review will say is there already: a changed entry has its server started again, as it was.
    allowed = {"tools": {"echo": "allow", "change_tools": "allow"}}
    async with dashboard(machine, {"notes": server.entry(approval=allowed)}) as board, browsing() as browser:
        await enter(browser, board)
        await board.host.connect("notes")
        await browser("click", "#to-Approvals")
        await browser("see", "#live", "live")
        await board.host.call("notes", "change_tools", {"tools": [CHANGED, "change_tools"]})
        await browser("click", "#review-notes")
        await browser("see", ".diff .went", "-Say it again.")
        await browser("see", ".diff .came", "+Say it again, to everybody.")
        await shoot(browser, tmp_path, "review")
        await browser("click", ".card:has-text('changed') >> text=Allow as it is")
        await browser("gone", ".diff", "Say it again")
        while board.panel.held_back():  # noqa: ASYNC110 - the host is told, sooner or later
            await anyio.sleep(0.01)
        assert (await board.host.call("notes", "echo", {"what": "a"})).text
        assert await browser("complaints") == []


@pytest.mark.slow
async def test_it_can_be_used_with_the_keyboard_alone(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"notes": server.entry()}) as board, browsing() as browser:
        await browser("open", f"{board.url}/login")
        await browser("see", "#secret:focus", "")
        await browser("fill", "#secret", TOKEN)
        await browser("press", "Enter")
        await browser("see", "h1", "Overview")
        await browser("click", "#to-Servers")
        await browser("see", "h1", "Servers")
        await browser("value", "document.activeElement.blur()")
        await browser("press", "Tab")
        assert await browser("value", "document.activeElement.textContent") == "Skip to the content"
        await browser("press", "Enter")
        await browser("press", "Tab")
        while await browser("value", "document.activeElement.id") != "server-notes":
            await browser("press", "Tab")
        await browser("press", "Tab")
        assert await browser("value", "document.activeElement.id") == "restart-notes"
        await browser("press", "Enter")
        await browser("see", ".state", "ready")
        unnamed = (
            "[...document.querySelectorAll('input:not([type=hidden]),select')].filter(e => !e.labels.length)"
        )
        base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
        for path in ("/", "/servers", "/tools", "/calls", "/logs", "/audit", "/approvals", "/servers/notes"):
            await browser("open", f"{board.url}{base}{path}")
            await browser("see", "#live", "live")
            assert await browser("value", f"{unnamed}.length") == 0
