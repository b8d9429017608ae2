"""Take the screenshots of docs/screenshots: every page, in both themes, on a narrow and a wide screen.

Run it with `uv run python -m tests.tools.screenshots [FOLDER]` when a page has changed. It needs Chromium.
`outline.json` keeps what each page was made of, by which a test knows whether the screenshots are current.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
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
HIDE_PATHS = """(paths) => {
  const shown = (text) =>
    Object.entries(paths).reduce((all, [own, other]) => all.replaceAll(own, other), text);
  const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (shown(node.data) !== node.data) node.data = shown(node.data);
  }
  for (const code of document.querySelectorAll("code:has(wbr)")) {  // a path that wraps between folders
    if (shown(code.textContent) !== code.textContent) code.textContent = shown(code.textContent);
  }
  for (const field of document.querySelectorAll("input, textarea")) field.value = shown(field.value);
  const written = [...document.querySelectorAll("input, textarea")].map((field) => field.value);
  const all = [document.body.textContent, ...written].join("\\n");
  return Object.keys(paths).filter((own) => all.includes(own));
}"""
"""Shows other folders in place of this machine's, in JavaScript. Returns those that are still there."""


async def take(folder: Path) -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory(prefix="fairlead-demo-") as place:
        machine = new_machine(Path(place))
        shoot = partial(_shoot, folder, shown_paths(machine, Path(place)))
        outlines: dict[str, list[str]] = {}
        async with demo(machine, Path(place)) as board, browsing() as browser:
            await browser("open", f"{board.url}/login")
            await shoot(browser, "login")
            await browser("open", f"{board.url}/login?code={await board.code()}")
            base = "/".join((await browser("value", "location.pathname")).split("/")[:2])
            for name, path in page_paths(dashboard_routes(board.panel, board.login_sessions)).items():
                await browser("open", f"{board.url}{base}{path}")
                await browser("see", "#live", "live")
                outlines[name] = await browser("value", OUTLINE)
                await shoot(browser, name)
        (folder / OUTLINES).write_text(json.dumps(outlines, indent=1, ensure_ascii=False) + "\n")


async def _shoot(folder: Path, paths: Mapping[str, str], browser: Browser, name: str) -> None:
    for theme in THEMES:
        await browser("scheme", theme)
        for width, height in WIDTHS.items():
            await browser("size", width, height)
            left = await browser("value", f"({HIDE_PATHS})({json.dumps(paths)})")
            assert not left, f"{name} shows a folder of this machine: {left}"
            await browser("shoot_small", str(folder / f"{name}-{theme}-{width}.png"), MOST)


def shown_paths(machine: Machine, folder: Path) -> dict[str, str]:
    """The folders of the demo and of this machine, the innermost first, and what is shown in their place."""
    return {
        str(folder / "bin"): "/usr/local/bin",
        str(machine.project): "/home/ada/website",
        str(machine.home): "/home/ada",
        str(folder): "/home/ada",
        sys.prefix: "/home/ada/.venv",
        str(Path(__file__).parents[2]): "/home/ada/fairlead",
    }


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
