"""Take the screenshots of docs/screenshots: every page, in both themes, on a narrow and a wide screen.

Run it with `uv run python -m tests.tools.screenshots [FOLDER]` when a page has changed. It needs Chromium.
`outline.json` keeps what each page was made of, by which a test knows whether the screenshots are current.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import anyio

from fairlead.web.app import dashboard_routes
from tests.conftest import Machine
from tests.web.browsing import Browser, browsing
from tests.web.demo import demo
from tests.web.pages import OUTLINE, page_paths

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
WIDTHS = {"390": "844", "1440": "900"}
MOST = "1300"
"""How much of a long page is shown, in pixels."""
THEMES = ("light", "dark")
OUTLINES = "outline.json"


async def take(folder: Path) -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory(prefix="fairlead-demo-") as place:
        machine = new_machine(Path(place))
        outlines: dict[str, list[str]] = {}
        async with demo(machine, Path(place)) as board, browsing() as browser:
            await browser("open", f"{board.url}/login")
            await _shoot(browser, folder, "login")
            await browser("open", f"{board.url}/login?code={await board.code()}")
            base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
            for name, path in page_paths(dashboard_routes(board.panel, board.login_sessions)).items():
                await browser("open", f"{board.url}{base}{path}")
                await browser("see", "#live", "live")
                outlines[name] = await browser("value", OUTLINE)
                await _shoot(browser, folder, name)
        (folder / OUTLINES).write_text(json.dumps(outlines, indent=1, ensure_ascii=False) + "\n")


async def _shoot(browser: Browser, folder: Path, name: str) -> None:
    for theme in THEMES:
        await browser("scheme", theme)
        for width, height in WIDTHS.items():
            await browser("size", width, height)
            await browser("shoot_small", str(folder / f"{name}-{theme}-{width}.png"), MOST)


def new_machine(folder: Path) -> Machine:
    """A machine with nothing on it, which is also what the current environment points at."""
    home, project = folder / "home", folder / "website"
    home.mkdir()
    project.mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    for name in [name for name in os.environ if name.startswith(("XDG_", "FAIRLEAD_"))]:
        del os.environ[name]
    os.environ.update(env)
    os.chdir(project)
    return Machine(home=home, project=project, env=env)


if __name__ == "__main__":
    chosen = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else FOLDER
    chosen.mkdir(parents=True, exist_ok=True)
    anyio.run(take, chosen)
