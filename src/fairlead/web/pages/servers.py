"""List of all servers, and the page of one server."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from starlette.responses import HTMLResponse, Response

from fairlead.actions.context import Notice
from fairlead.actions.explain import reason_in_short
from fairlead.config.command_lines import command_line
from fairlead.config.edit_scope import EditTarget
from fairlead.config.models import CHILD_TRANSPORTS
from fairlead.errors import ConfigError
from fairlead.events import DOWN
from fairlead.host.elicitation.urls import ShownUrl
from fairlead.host.server_status import ServerStatus
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, join, tag
from fairlead.web.layout import (
    approve_link,
    block,
    build,
    button,
    choice,
    code,
    code_path,
    field,
    file_choice,
    first_line,
    form,
    hint,
    live,
    moment,
    page,
    page_links,
    page_start,
    plural,
    prose,
    server_link,
    server_path,
    state,
    table,
)
from fairlead.web.page_request import Answer, PageRequest, confirm, own_path, see
from fairlead.web.pages.tool import tool_path
from fairlead.web.panel import MOST_EXPLAINED, PendingLogin, ServerDetails, with_notices
from fairlead.wording import without_server

COLUMNS = ("Server", "State", "Transport", "Protocol", "Tools", "Tokens", "Calls", "Last error", "Actions")
PAGE = 100
_URGENCY = (*DOWN, "connecting", "ready", "idle", "disabled")
"""States from what needs attention to what does not."""
SORTS = {
    "": "failures first",
    "name": "by name",
    "tools": "most tools first",
    "tokens": "most tokens first",
    "calls": "most calls first",
}


def overview(panel: HostPanel) -> Answer:
    """Page of all servers."""

    async def answer(request: PageRequest) -> Response:
        servers = panel.status()
        lead = f"{plural(len(servers), 'server')}: {_count_states(servers)}." if servers else _NONE
        costs = await panel.tool_costs()
        shown = _sort_servers(_matching(servers, request), request.query("sort"), costs)
        start = page_start(request)
        unapproved = panel.unapproved()
        rows = [
            _row(request, status, costs.get(status.server_id), is_approved=status.server_id not in unapproved)
            for status in shown[start : start + PAGE]
        ]
        adding = tag(
            "p",
            tag("a", "Add a server", href="/add", class_="button main", id="add-server"),
            " ",
            tag("a", "Import from another agent", href="/import", class_="button", id="import-servers"),
            " ",
            tag("a", "Review tools", href="/reviews", class_="button", id="all-reviews"),
            " ",
            tag("a", "Tokens and bundles", href="/tokens", class_="button", id="all-tokens"),
            class_="toolbar",
        )
        listed = table("Servers", COLUMNS, rows) if rows else None
        none = tag("p", "No server fits.") if servers and not rows else None
        query = {name: request.query(name) for name in ("q", "state", "sort")}
        pages = page_links("servers", request.path, start, len(shown), PAGE, query)
        content = (tag("p", lead, class_="dim"), listed, none, pages)
        search = _search(request, servers) if len(servers) > 1 else None
        return HTMLResponse(page(request, panel, "Servers", adding, search, live("servers", *content)))

    return answer


_NONE = "No MCP servers configured."
_UNAPPROVED = tag("span", "waits for you to approve what it runs", class_="note")


def _count_states(servers: Sequence[ServerStatus]) -> str:
    """Number of servers in each state, those that need attention first."""
    counts = Counter(status.state for status in servers)
    return ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in _URGENCY if counts[name])


def _matching(servers: Sequence[ServerStatus], request: PageRequest) -> list[ServerStatus]:
    words, wanted = request.query("q").lower().split(), request.query("state")

    def fits(status: ServerStatus) -> bool:
        text = f"{status.server_id} {status.transport} {status.source} {status.last_error or ''}".lower()
        return wanted in ("", status.state) and all(word in text for word in words)

    return [status for status in servers if fits(status)]


def _sort_servers(
    servers: Sequence[ServerStatus], sort: str, costs: Mapping[str, int]
) -> Sequence[ServerStatus]:
    keys: dict[str, Callable[[ServerStatus], int]] = {
        "name": lambda status: 0,
        "tools": lambda status: -(status.tools or 0),
        "tokens": lambda status: -costs.get(status.server_id, 0),
        "calls": lambda status: -status.calls,
    }

    def urgency(status: ServerStatus) -> int:
        return _URGENCY.index(status.state) if status.state in _URGENCY else 0

    key = keys.get(sort, urgency)
    return sorted(servers, key=lambda status: (key(status), status.server_id))


def _search(request: PageRequest, servers: Sequence[ServerStatus]) -> Html:
    found = sorted({status.state for status in servers}, key=lambda state: state)
    states = {"": "every state"} | {name: name.replace("_", " ") for name in found}

    return tag(
        "form",
        field("Find", "q", request.query("q"), kind="search"),
        choice("State", "state", request.query("state"), *states.items()),
        choice("Order", "sort", request.query("sort"), *SORTS.items()),
        tag("button", "Show", type="submit"),
        method="get",
        action=request.path,
        role="search",
        class_="search",
    )


def one(panel: HostPanel) -> Answer:
    """Page of one server."""

    async def answer(request: PageRequest) -> Response:
        details = await panel.details(request.step("server"))
        server_id = details.status.server_id
        tokens = (await panel.tool_costs()).get(server_id)
        path = server_path(server_id)
        is_approved = server_id not in panel.unapproved()
        acts = _actions(
            request,
            details.status,
            path,
            can_switch=details.can_switch,
            files=details.files,
            is_approved=is_approved,
        )
        changes, login = _changes(panel, details), panel.login(server_id)
        content = await build(
            lambda: (
                tag("div", live("actions", acts), changes, class_="row"),
                live("facts", _facts(details, tokens, is_approved=is_approved), _notes(details)),
                live("permissions", _permissions(details)),
                live("login", _login(request, details, login)) if details.has_login else None,
                live("log", _log(details)) if details.status.transport in CHILD_TRANSPORTS else None,
            )
        )
        return HTMLResponse(page(request, panel, server_id, content))

    return answer


def act(panel: HostPanel) -> Answer:
    """Handle the buttons of a server."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        notices: Sequence[Notice] = ()
        match request.field("do"):
            case "restart":
                notices = await panel.restart(server_id, principal=request.principal)
            case "enable" | "disable" as word:
                scope = request.field("scope") or None
                is_on = word == "enable"
                notices = await panel.switch(server_id, on=is_on, principal=request.principal, scope=scope)
            case "log_in":
                await panel.begin_login(server_id, principal=request.principal)
            case "finish_login":
                if problem := panel.finish_login(server_id, request.field("address").strip()):
                    raise ConfigError(f"that is not the address: {problem}")
            case _:
                raise ConfigError("there is no such action")
        path = own_path(request.field("back"), server_path(server_id))
        return confirm(request, path, with_notices("Done.", notices)) if notices else see(path)

    return answer


def _row(
    request: PageRequest, status: ServerStatus, tokens: int | None, *, is_approved: bool
) -> Sequence[Child]:
    return (
        server_link(status.server_id),
        state(status.state),
        status.transport or "?",
        status.version or "-",
        _tool_count(status),
        "-" if tokens is None else f"{tokens:,}",
        f"{status.calls:,}",
        (
            _error(status) if status.last_error else None,
            None if is_approved else _UNAPPROVED,
            [tag("span", prose(first_line(note)), class_="note") for note in status.notes],
        ),
        _actions(
            request,
            status,
            "/servers",
            can_switch=status.transport != "in_process",
            is_approved=is_approved,
        ),
    )


def _tool_count(status: ServerStatus) -> Child:
    if status.tools is None:
        return tag("span", "?", title="Not connected yet: it starts at the first use.")
    old = tag("span", "as last seen", class_="note") if status.stale else None
    return (f"{status.tools:,}", old)


def _error(status: ServerStatus) -> Html:
    """The last error: its first line, and the whole of it on demand where there is more."""
    error = without_server(status.last_error or "", status.server_id)
    first = first_line(error)
    if first == error and not status.hint:
        return tag("span", prose(first), class_="trouble")
    whole = (tag("div", error, class_="text"), hint(status.hint))
    summary = tag("summary", prose(first), class_="trouble")
    return tag("details", summary, *whole, id=f"error-{status.server_id}")


def _actions(
    request: PageRequest,
    status: ServerStatus,
    back: str,
    *,
    can_switch: bool,
    is_approved: bool,
    files: Sequence[EditTarget] = (),
) -> Html:
    server_id = status.server_id
    buttons: list[Child] = []
    if not is_approved:
        buttons.append(approve_link(server_id))  # before that, starting it would only fail
    elif status.enabled:
        word = "Start" if status.state == "idle" else "Restart"
        buttons.append(button(word, "do", "restart", key=server_id))
    if can_switch:
        label, value = ("Disable", "disable") if status.enabled else ("Enable", "enable")
        buttons.append(button(label, "do", value, key=server_id, kind="quiet"))
        buttons.append(file_choice(files, key=server_id))
    return tag("div", form(request, server_path(server_id), buttons, back=back), class_="actions")


def _changes(panel: HostPanel, details: ServerDetails) -> Child:
    """The pages where its entry is changed, and its tools are reviewed."""
    if not details.can_switch:
        return None
    server_id = details.status.server_id
    held = panel.held_back().get(server_id, 0)
    label = f"Review {plural(held, 'tool')} that changed" if held else "Review its tools"
    kind = "button main" if held else "button"
    return (
        tag("a", label, href=server_path(server_id, "review"), class_=kind, id="review-tools"),
        tag("a", "Edit", href=server_path(server_id, "edit"), class_="button", id="edit-server"),
        tag("a", "Remove", href=server_path(server_id, "remove"), class_="button danger", id="remove-server"),
    )


def _facts(details: ServerDetails, tokens: int | None, *, is_approved: bool) -> Html:
    status = details.status
    facts: list[tuple[str, Child]] = [
        ("State", (state(status.state), None if is_approved else _UNAPPROVED)),
        ("What it is", code(details.target)),
        ("Transport", status.transport or "?"),
        ("Protocol", status.version or "not known yet"),
        ("Comes from", status.source),
        (
            "Tools",
            "not known yet"
            if status.tools is None
            else tag("a", plural(status.tools, "tool"), href=f"/tools?server={status.server_id}"),
        ),
        ("Cost of their definitions", "-" if tokens is None else f"about {tokens:,} tokens"),
        ("Last connected", moment(status.last_connected_at)),
        ("Connections, calls", f"{status.connects:,}, {status.calls:,}"),
        ("Open in sessions", f"{status.session_connections:,}"),
    ]
    if details.description:
        facts.insert(0, ("Description", details.description))
    if status.last_error:
        error = without_server(status.last_error, status.server_id)
        facts.append(("Last error", tag("div", error, class_="trouble text")))
    if status.hint and status.state in DOWN:  # what was wrong needs no more advice
        facts.append(("Hint", prose(status.hint)))
    return tag("dl", [(tag("dt", name), tag("dd", value)) for name, value in facts])


def _permissions(details: ServerDetails) -> Child:
    """Permission of each tool, and the configuration line that sets it."""
    if not details.tools:
        return None

    # Most tools of a server share these, and looking for secrets in each took most of the table's time.
    @cache
    def because(reason: str) -> Html:
        return tag("div", prose(reason))

    @cache
    def set_by(place: str | None) -> Html:
        return code_path(place) if place else join("the default")

    rows = [
        (
            tag("a", code(tool.key.revealed_tool), href=tool_path(tool.key.server_id, tool.key.tool)),
            tool.answer,
            because(reason_in_short(tool)),
            set_by(tool.decided_by.place),
        )
        for tool in details.tools
    ]
    command = command_line("explain server", details.status.server_id)
    whole = tag("p", prose(f"The first {len(rows)}; `{command}` shows all."))
    return (
        tag("h2", "What its tools may do"),
        table("What its tools may do", ("Tool", "Answer", "Because", "Set by"), rows),
        whole if len(rows) == MOST_EXPLAINED else None,
    )


def _log(details: ServerDetails) -> Child:
    said = block(details.log, "Log") if details.log else tag("p", "It has said nothing yet.", class_="dim")
    return (tag("h2", "Log"), said)


def _notes(details: ServerDetails) -> Child:
    notes = [tag("li", prose(note), class_="note") for note in details.status.notes]
    return tag("ul", notes) if notes else None


def _login(request: PageRequest, details: ServerDetails, login: PendingLogin | None) -> Child:
    return (tag("h2", "Login"), _login_state(request, details, login))


def _login_state(request: PageRequest, details: ServerDetails, login: PendingLogin | None) -> Child:
    server_id = details.status.server_id

    def begin(label: str, kind: str = "") -> Html:
        return form(request, server_path(server_id), button(label, "do", "log_in", key=server_id, kind=kind))

    if login is None:
        return begin("Log in", "main" if details.status.state == "auth_required" else "")
    if login.is_done:
        return (done_login(login, "You are logged in."), begin("Log in again", "quiet"))
    if login.error:
        return (tag("p", login.error, class_="trouble", role="alert"), begin("Try again", "main"))
    if login.offer is None:
        return tag("p", "Asking the server how to log in …", role="status")
    return (login_link(request, login, server_path(server_id)), begin("Begin again", "quiet"))


def login_link(request: PageRequest, login: PendingLogin, path: str) -> Child:
    """Link to the login page, and a field for the redirect URL of a browser on another machine."""
    offer = login.offer
    assert offer is not None, "it is shown once it is known"
    scopes = tag("p", "It asks for: ", code(offer.asked_for))
    return (_login_page(offer.page), tag("p", offer.issuer), scopes, _elsewhere(request, path))


def done_login(login: PendingLogin, text: str) -> Child:
    """Description of a login that succeeded."""
    warning = tag("p", f"Warning: {login.warning}", class_="trouble") if login.warning else None
    return (tag("p", text, role="status"), warning)


def _login_page(shown: ShownUrl) -> Child:
    link = tag(
        "a",
        "Open its login page",
        href=shown.url,
        target="_blank",
        rel="noopener noreferrer",
        class_="button main",
        id="login-page",
    )
    return (
        tag("p", "To log in you go to ", tag("strong", shown.readable_host or shown.host), "."),
        [tag("p", f"Warning: {warning}.", class_="trouble") for warning in shown.warnings],
        tag("p", link),
        tag("p", code(shown.url), class_="dim"),
    )


def _elsewhere(request: PageRequest, path: str) -> Html:
    asked = "In the end it shows a page that cannot be reached. The address of that page:"
    return tag(
        "details",
        tag("summary", "My browser is on another machine"),
        form(
            request,
            path,
            tag("label", asked, for_="address"),
            tag("input", id="address", name="address", autocomplete="off", required=True),
            button("Finish", "do", "finish_login", key="login"),
        ),
        id="elsewhere",
    )
