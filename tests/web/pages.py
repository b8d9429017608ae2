"""Every page of the dashboard, from its own routes."""

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute, Mount, Route

from fairlead.web.page_request import AccessCheck

EXAMPLES = {"server": "github", "tool": "search_issues", "path": "no-such-page"}
"""What stands for the parts of a path, in the demo."""
SERVERS = {"/servers/{server}/approve": "deploy"}
"""What stands for the server where a page is about another than most."""
QUERIES = {
    "/logs": "?server=github",
    "/calls": "?window=6h",
    "/tool": "?server=github&name=search_issues",
}
OUTLINE = """[...new Set([...document.querySelectorAll("nav a span:not(.badge, .hidden), h1, h2, thead th")]
  .map((each) => each.textContent.trim()))].sort()"""
"""What a page is made of, in JavaScript: it changes with the page and not with what is on it."""
NOT_PAGES = {"/events", "/audit.csv", "/audit.jsonl"}


def page_paths(routes: Sequence[BaseRoute]) -> Mapping[str, str]:
    """The pages that people see with a login: a name for each, and its path below that of the session."""
    found: dict[str, str] = {}
    mounted = next(route for route in routes if isinstance(route, Mount))  # below the path of a session
    for route in mounted.routes:
        if not isinstance(route, Route) or route.path in NOT_PAGES:
            continue
        check = route.endpoint
        if isinstance(check, AccessCheck) and check.is_for_people and check.is_shown:
            path = route.path
            examples = {**EXAMPLES, "server": SERVERS.get(path, EXAMPLES["server"])}
            for name, value in examples.items():
                path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
            assert "{" not in path, f"say in EXAMPLES what stands for the parts of {route.path}"
            found[_name_of(route.path)] = path + QUERIES.get(path, "")
    return found


def _name_of(path: str) -> str:
    words = [word.strip("{}").partition(":")[0] for word in path.strip("/").split("/")]
    if words == [""]:
        return "overview"
    return "missing" if words == ["path"] else "-".join(words)
