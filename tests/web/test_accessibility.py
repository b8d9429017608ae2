"""Every page of the dashboard passes axe-core: in both themes, on narrow and wide screens, full and empty."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from fairlead.actions.logins import LoginOffer
from fairlead.host.elicitation.urls import ShownUrl, show_url
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.panel import PendingLogin
from tests.conftest import Machine
from tests.tools import screenshots
from tests.web.browsing import Browser, browsing
from tests.web.demo import demo
from tests.web.pages import OUTLINE, page_paths
from tests.web.support import Dashboard, dashboard

TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS") or Path(__file__).parents[2] / ".test-tools")
AXE = TOOLS.absolute() / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"390": "844", "1440": "900"}

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)
if not AXE.exists():
    pytest.skip("axe-core is not installed: run tests/tools/install", allow_module_level=True)

pytestmark = [pytest.mark.slow]


BROKEN_WORDS = """(() => {
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
    for (const word of node.data.matchAll(/\\S+/g)) {
      const plain = word[0].replace(/^[("`'“]+|[)"`'”.,:;!?…]+$/g, "");
      if (!/^[A-Za-z]{2,24}$/.test(plain)) continue;  // ids, paths and URLs may fold anywhere
      const range = document.createRange();
      const begin = word.index + word[0].indexOf(plain);
      range.setStart(node, begin);
      range.setEnd(node, begin + plain.length);
      const tops = [...range.getClientRects()].map((each) => Math.round(each.top));
      if (new Set(tops).size > 1) found.add(plain);
    }
  }
  return [...found];
})()"""
"""Ordinary words that stand on two lines, in JavaScript."""
NARROW = """(() => {
  const narrow = document.querySelector("main").appendChild(document.createElement("p"));
  narrow.textContent = "whole extraordinary";
  Object.assign(narrow.style, { width: "6ch", overflowWrap: "anywhere" });
})()"""
"""Puts a word that is broken on the page."""


async def faults_of(browser: Browser, name: str) -> list[str]:
    """What is wrong with the page that is open, in each theme and width."""
    found: list[str] = []
    for theme in ("light", "dark"):
        await browser("scheme", theme)
        for width, height in WIDTHS.items():
            await browser("size", width, height)
            found += [f"{name}, {theme}, {width} px: {each}" for each in await browser("axe", str(AXE))]
            if await browser("value", "document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{name}, {theme}, {width} px: it is wider than the screen")
            broken = await browser("value", BROKEN_WORDS)
            found += [f"{name}, {theme}, {width} px: `{word}` is broken" for word in broken]
    return found


@pytest.mark.blocks_loop
async def test_every_page_with_something_on_it_is_accessible(machine: Machine, tmp_path: Path) -> None:
    async with demo(machine, tmp_path) as board, browsing() as browser:
        await browser("open", f"{board.url}/login")
        found = await faults_of(browser, "login")
        await browser("open", f"{board.url}/no/such/page")
        found += await faults_of(browser, "missing, without a login")
        await browser("open", f"{board.url}/login?code={await board.code()}")
        base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
        pages = page_paths(dashboard_routes(board.panel, board.login_sessions))
        assert {
            "overview",
            "servers",
            "tools",
            "calls",
            "approvals",
            "logs",
            "audit",
            "missing",
        } <= pages.keys()
        outlines: dict[str, list[str]] = {}
        for name, path in pages.items():
            await browser("open", f"{board.url}{base}{path}")
            await browser("see", "#live", "live")
            outlines[name] = await browser("value", OUTLINE)
            found += await faults_of(browser, name)
        assert not found, "\n".join(found)
        shot = json.loads((screenshots.FOLDER / screenshots.OUTLINES).read_text())
        old = [name for name in {*outlines, *shot} if outlines.get(name) != shot.get(name)]
        assert not old, f"take the screenshots again, as tests/tools/screenshots.py says: {sorted(old)}"
        quiet = [each for each in await browser("complaints") if "404" not in each]
        assert quiet == []


@pytest.mark.blocks_loop
async def test_every_page_without_anything_on_it_is_accessible(machine: Machine) -> None:
    async with dashboard(machine, {"github": {"command": "no-such-program"}}) as board, browsing() as browser:
        await browser("open", f"{board.url}/login?code={await board.code()}")
        base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
        found: list[str] = []
        await browser("size", "390", "844")
        for name, path in page_paths(dashboard_routes(board.panel, board.login_sessions)).items():
            await browser("open", f"{board.url}{base}{path}")
            found += [f"{name}: {each}" for each in await browser("axe", str(AXE))]
        assert not found, "\n".join(found)


def answer_with(login: PendingLogin, *_: object) -> PendingLogin:
    return login


class Walk:
    """A visitor who looks at pages that no address alone leads to."""

    def __init__(self, browser: Browser, place: str) -> None:
        self.browser = browser
        self.place = place
        self.found: list[str] = []

    async def open(self, path: str) -> None:
        await self.browser("open", f"{self.place}{path}")

    async def look(self, name: str, heading: str) -> None:
        await self.browser("see", "h1", heading)
        self.found += await faults_of(self.browser, name)


async def entered(browser: Browser, board: Dashboard) -> Walk:
    await browser("open", f"{board.url}/login?code={await board.code()}")
    base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
    return Walk(browser, f"{board.url}{base}")


@pytest.mark.blocks_loop
async def test_every_page_that_a_form_leads_to_is_accessible(machine: Machine, tmp_path: Path) -> None:
    async with demo(machine, tmp_path) as board, browsing() as browser:
        walk = await entered(browser, board)
        await browser("value", NARROW)
        assert await browser("value", BROKEN_WORDS) == ["extraordinary"], "the search finds what is broken"

        await walk.open("/tool?server=github&name=search_issues")
        await browser("fill", "[name='arg/query']", "broken link")
        await browser("fill", "[name='arg/repo']", "ada/website")
        await browser("click", "#form-tool")
        await browser("see", "summary", "JSON-RPC frames")
        await browser("value", "for (const each of document.querySelectorAll('details')) each.open = true")
        await walk.look("tool, called", "search_issues")

        await walk.open("/agents")
        await browser("click", "#install-claude")
        await walk.look("agents, to be written", "Install into Claude Code?")

        await walk.open("/tokens")
        await browser("fill", "[name=name]", "no name")
        await browser("click", "#make-token")
        await browser("see", "[role=alert]", "letters, digits")
        await walk.look("tokens, with a problem", "Tokens")
        await browser("fill", "[name=name]", "laptop")
        await browser("click", "#make-token")
        await walk.look("token, shown once", "A new token")

        await walk.open("/add")
        await browser("value", "document.querySelector('[name=id]').form.noValidate = true")
        await browser("fill", "[name=id]", "no id")
        await browser("click", "text=Add the server")
        await browser("see", ".problems", "")
        await walk.look("server, with problems", "Add a server")

        await walk.open("/servers/github")
        await browser("value", "document.querySelector('#disable-github').value = 'dance'")
        await browser("click", "#disable-github")
        await walk.look("refused", "That did not work")
        assert not walk.found, "\n".join(walk.found)


@pytest.mark.blocks_loop
async def test_every_state_of_a_login_and_a_failure_are_accessible(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = show_url("https://id.example/authorize?client_id=fairlead&scope=tools")
    assert isinstance(page, ShownUrl)
    issuer = "Its tokens come from https://id.example."
    offer = LoginOffer(server_id="sentry", account="local", page=page, issuer=issuer, scopes=["tools"])
    states = {
        "asking": PendingLogin(server_id="sentry"),
        "under way": PendingLogin(server_id="sentry", offer=offer),
        "failed": PendingLogin(server_id="sentry", error="the server refused the client"),
        "done": PendingLogin(server_id="sentry", is_done=True, warning="it expires in an hour"),
    }

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    async with demo(machine, tmp_path) as board, browsing() as browser:
        link = board.links.url("token:claude-code", "sentry")
        assert link is not None
        visitor = Walk(browser, board.url)
        await visitor.open(link.removeprefix(board.url))
        await visitor.look("connect", "Log in to a server")
        await visitor.open("/connect/no-such-code")
        await visitor.look("connect, too late", "Log in to a server")
        walk = await entered(browser, board)
        for state, login in states.items():
            monkeypatch.setattr(HostPanel, "login", partial(answer_with, login))
            await walk.open("/servers/sentry")
            await walk.look(f"login, {state}", "sentry")
        monkeypatch.setattr(HostPanel, "login", fail)
        await walk.open("/servers/sentry")
        await walk.look("failed", "That did not work")
        assert not [*visitor.found, *walk.found], "\n".join([*visitor.found, *walk.found])
