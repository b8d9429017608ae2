"""Catalog: every tool that agents get, searchable, with its cost in tokens."""

from starlette.responses import HTMLResponse, Response

from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    build,
    choice,
    code,
    field,
    first_line,
    live,
    page,
    page_links,
    page_start,
    plural,
    server_link,
    table,
)
from fairlead.web.page_request import Answer, PageRequest
from fairlead.web.pages.tool import tool_path
from fairlead.web.panel import ListedTool, ToolPage

PAGE = 100
MAX_HIDDEN = 200
SORTS = {"": "best match", "name": "by name", "server": "by server", "tokens": "by cost, most tokens first"}


def catalog(panel: HostPanel) -> Answer:
    """Page of the tools that match a search, or of all."""

    async def answer(request: PageRequest) -> Response:
        query, server_id = request.query("q").strip(), request.query("server")
        start = page_start(request)
        sort = request.query("sort") if request.query("sort") in SORTS else ""
        found = await panel.tools(query, server_id or None, start=start, limit=PAGE, sort=sort)
        servers = [status.server_id for status in panel.status()]
        query_fields = {"q": query, "server": server_id, "sort": sort}
        content = await build(
            lambda: (
                _search(query, server_id, servers, sort),
                live(
                    "tools",
                    _summary(found),
                    _render_tools(found),
                    page_links("tools", "/tools", start, found.matching, PAGE, query_fields),
                    _render_hidden(found),
                ),
            )
        )
        return HTMLResponse(page(request, panel, "Tools", content))

    return answer


def _search(query: str, server_id: str, servers: list[str], sort: str) -> Html:
    return tag(
        "form",
        field("Search", "q", query, placeholder="what it is for", kind="search"),
        choice("Server", "server", server_id, ("", "all servers"), *((name, name) for name in servers)),
        choice("Order", "sort", sort, *SORTS.items()),
        tag("button", "Search", type="submit"),
        method="get",
        action="/tools",
        role="search",
        class_="search",
    )


def _summary(found: ToolPage) -> Html:
    way = "as they are" if found.is_direct else "through search, to save tokens"
    cost = f"about {found.total_tokens:,} tokens"
    return tag(
        "p", f"{plural(found.total, 'tool')}, {cost} of definitions. Agents get them {way}.", class_="dim"
    )


def _render_tools(found: ToolPage) -> Html:
    if not found.tools:
        return tag("p", "No tool fits.")
    rows = [
        (
            _name(each),
            server_link(each.tool.key.server_id),
            _about(each),
            f"{each.tokens:,}",
        )
        for each in found.tools
    ]
    return table("Tools", ("Tool", "Server", "What it does", "Tokens"), rows)


def _name(each: ListedTool) -> Child:
    """Name of a tool at its server, and its name for agents."""
    key = each.tool.key
    link = tag(
        "a", code(key.revealed_tool), href=tool_path(key.server_id, key.tool), id=f"tool-{each.tool.name}"
    )
    return (link, tag("span", code(each.tool.name), class_="note"))


def _about(each: ListedTool) -> Child:
    entry = each.tool.entry
    text = (entry.description or entry.title or "-").strip()
    if text == first_line(text):
        return text
    whole = tag("div", text, class_="text")
    return tag("details", tag("summary", first_line(text)), whole, id=f"about-{each.tool.name}")


def _render_hidden(found: ToolPage) -> Child:
    if not found.hidden:
        return None
    rows = [
        (code(key.revealed_tool), server_link(key.server_id), hidden.absence, hidden.reason)
        for key, hidden in [*found.hidden.items()][:MAX_HIDDEN]
    ]
    return tag(
        "details",
        tag("summary", f"{plural(len(found.hidden), 'tool')} not offered"),
        table("Tools that are not offered", ("Tool", "Server", "Why", "Reason"), rows),
        id="not-offered",
    )
