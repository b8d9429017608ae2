"""Every page of the dashboard passes axe-core: in both themes, on narrow and wide screens, full and empty."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fairlead.web.app import dashboard_routes
from tests.conftest import Machine
from tests.tools import screenshots
from tests.web.browsing import Browser, browsing
from tests.web.demo import demo
from tests.web.pages import OUTLINE, page_paths
from tests.web.support import dashboard

TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS") or Path(__file__).parents[2] / ".test-tools")
AXE = TOOLS.absolute() / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"390": "844", "1440": "900"}

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)
if not AXE.exists():
    pytest.skip("axe-core is not installed: run tests/tools/install", allow_module_level=True)

pytestmark = [pytest.mark.slow]


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
