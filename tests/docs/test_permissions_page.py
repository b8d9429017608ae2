"""`docs/permissions.md` says of everything that can be clicked on the dashboard how it is typed."""

import re
from pathlib import Path
from typing import Any, cast

from starlette.routing import Route

from fairlead.cli.main import COMMANDS
from fairlead.web.host_panel import HostPanel
from fairlead.web.layout import PLACES
from fairlead.web.pages.routes import working_pages

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"


def rows() -> list[list[str]]:
    """The rows of the table of clicks: what, on which page, typed."""
    whole = PAGE.read_text().partition("| on the dashboard | page | typed |\n")[2]
    lines = whole.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def route(path: str, get: Any = None, post: Any = None, *, has_arguments: bool = False) -> Route:
    return Route(path, endpoint=post or get)


def test_the_table_has_every_page_of_the_dashboard_and_no_other() -> None:
    named = {path for row in rows() for path in re.findall(r"`(/[^`]*)`", row[1])}
    pages = {each.path for each in working_pages(cast("HostPanel", None), route)}
    assert named == pages | {place.path for place in PLACES} | {"/servers/{server}"}


def test_each_row_has_a_command_that_is_there() -> None:
    verbs = {verb for group in COMMANDS.values() for verb in group}
    for what, _, typed in rows():
        commands = re.findall(r"`fairlead ([a-z]+)", typed)
        assert commands, what
        assert set(commands) <= verbs, what
