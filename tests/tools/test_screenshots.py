"""The screenshots in docs: every page, in both themes, on a narrow and a wide screen, and nothing else."""

import json
import struct

import pytest

from tests.conftest import Machine
from tests.tools.screenshots import FOLDER, OUTLINES, THEMES, WIDTHS
from tests.web.pages import page_paths
from tests.web.support import dashboard


async def test_there_is_a_screenshot_of_every_page_and_of_none_that_is_gone(machine: Machine) -> None:
    from fairlead.web.app import dashboard_routes

    async with dashboard(machine, {}) as board:
        pages = page_paths(dashboard_routes(board.panel, board.login_sessions))
    names = {f"{page}-{theme}-{width}" for page in ("login", *pages) for theme in THEMES for width in WIDTHS}
    assert {path.stem for path in FOLDER.glob("*.png")} == names
    assert json.loads((FOLDER / OUTLINES).read_text()).keys() == pages.keys()


@pytest.mark.parametrize("width", WIDTHS)
def test_screenshots_are_as_wide_as_their_screen(width: str) -> None:
    for path in FOLDER.glob(f"*-{width}.png"):
        (shown,) = struct.unpack(">I", path.read_bytes()[16:20])
        assert shown == int(width), path
