"""Logs: what servers write to stderr, and what the gateway logs, with search."""

import re
from collections.abc import Sequence
from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.config.models import CHILD_TRANSPORTS
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import build, choice, live, page, plural
from fairlead.web.page_request import Answer, PageRequest
from fairlead.web.watch import FoundLines

COUNTS: Final = ("100", "500", "2000")
GATEWAY: Final = "(gateway)"
_LEVEL: Final = re.compile(r"\b(warn|warning|error|err|fatal|critical)\b", re.IGNORECASE)


def logs(panel: HostPanel) -> Answer:
    """Page of the last lines of one log that contain the searched text."""

    async def answer(request: PageRequest) -> Response:
        servers = [status.server_id for status in panel.status() if status.transport in CHILD_TRANSPORTS]
        chosen, query = request.query("server") or GATEWAY, request.query("q").strip()
        count = request.query("lines") if request.query("lines") in COUNTS else COUNTS[0]
        server_id = None if chosen == GATEWAY else chosen
        found = await panel.watch.find_lines(server_id, query, int(count))
        follows = request.query("follow") != "no"
        content = await build(
            lambda: (
                _search(chosen, query, count, servers, follows=follows),
                live("log", _lines(found, query, chosen, follows=follows)),
            )
        )
        return HTMLResponse(page(request, panel, "Logs", content))

    return answer


def _search(chosen: str, query: str, count: str, servers: Sequence[str], *, follows: bool) -> Html:
    names = [(GATEWAY, "the gateway"), *((name, name) for name in servers)]
    if chosen not in (GATEWAY, *servers):
        names.append((chosen, chosen))
    return tag(
        "form",
        choice("Log of", "server", chosen, *names),
        tag(
            "span",
            tag("label", "Search", for_="q"),
            tag("input", type="search", id="q", name="q", value=query),
            class_="filter",
        ),
        choice("Lines", "lines", count, *((number, number) for number in COUNTS)),
        choice("At the end", "follow", "yes" if follows else "no", ("yes", "follow"), ("no", "stay")),
        tag("button", "Show", type="submit"),
        method="get",
        action="/logs",
        role="search",
        class_="search",
    )


def _lines(found: FoundLines, query: str, chosen: str, *, follows: bool) -> Child:
    whose = "The gateway" if chosen == GATEWAY else chosen
    if not found.total:
        return tag("p", f"{whose} has logged nothing yet.", class_="dim")
    if not found.lines:
        return tag("p", f"None of {plural(found.total, 'line')} contains that.", class_="dim")
    what = "that contain it" if query else "there are"
    text = tag(
        "pre",
        [tag("span", _mark(line, query), "\n", class_=_level(line)) for line in found.lines],
        tabindex="0",
        role="region",
        aria_label=f"Log of {'the gateway' if chosen == GATEWAY else chosen}",
        class_="log",
        data_follow=follows,
        data_poll=True,
    )
    return (
        tag("p", f"The last {len(found.lines):,} of {found.matching:,} lines {what}.", class_="dim"),
        text,
    )


def _level(line: str) -> str | None:
    """The color of a line that names its level as a word."""
    found = _LEVEL.search(line)
    if found is None:
        return None
    return "warn" if found[1].lower().startswith("warn") else "trouble"


def _mark(line: str, query: str) -> Child:
    """A line, with what was searched for marked in it."""
    if not query:
        return line
    parts = re.split(f"({re.escape(query)})", line, flags=re.IGNORECASE)
    return [tag("mark", part) if index % 2 else part for index, part in enumerate(parts)]
