"""Connect an agent: write the gateway into its configuration, take it out, test the entry, or copy one."""

from typing import Final
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, Response

from fairlead.actions.agents import AgentInstallation
from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError
from fairlead.gateway.install import AGENTS, GatewayRoute, render_snippet
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import block, button, code, code_path, diff_block, form, page, prose, table
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.panel import with_notices

_TOKEN: Final = "TOKEN"  # noqa: S105 - stands for one
_STATES: Final = {"installed": "good", "unreadable": "trouble"}


def show(panel: HostPanel) -> Answer:
    """Page of all agents, with entries to paste."""

    async def answer(request: PageRequest) -> Response:
        agents = await panel.edits.agents(request.principal)
        lead = (
            "An agent with this entry has the tools of all servers. It starts the gateway where none runs, "
            "and works for apps of the desktop too."
        )
        rows = [
            (each.title, _state(each), code_path(each.path), _clients(panel, each), _actions(request, each))
            for each in agents
        ]
        columns = ("Agent", "Gateway", "Its file", "Connected now", "Actions")
        content = (
            tag("p", lead, class_="dim"),
            table("Agents", columns, rows),
            tag("h2", "On another machine, or by hand"),
            _snippets(request, agents),
        )
        return HTMLResponse(page(request, panel, "Agents", *content))

    return answer


def act(panel: HostPanel) -> Answer:
    """Handle the forms: show a change of an agent's file, write it, or test its entry."""

    async def answer(request: PageRequest) -> Response:
        agent, digest = request.field("agent"), request.field("digest")
        if agent not in AGENTS:
            raise ConfigError(f"there is no agent `{agent}`", hint=f"choose one of {', '.join(AGENTS)}")
        match request.field("do"):
            case "test":
                test = await panel.edits.try_agent(agent, principal=request.principal)
                return confirm(request, "/agents", f"The entry of `{agent}` works: {test}.")
            case "install" | "uninstall" as kind if not digest:
                change = await panel.edits.plan_agent(agent, kind, principal=request.principal)
                if change.is_none:
                    return confirm(request, "/agents", f"{change.path} is as it should be.")
                # Of the rest of the file nothing is shown: other servers may have secrets next to the entry.
                lines = [f"  {line}" for line in change.diff().splitlines() if line[:1] in ("+", "-")]
                fields = form(
                    request,
                    "/agents",
                    button("Write it", "do", kind, key="agent", kind="main"),
                    " ",
                    tag("a", "Leave it as it is", href="/agents", class_="button"),
                    agent=agent,
                    digest=change.digest,
                )
                warned = [
                    tag("p", prose(with_notices("", [notice]).strip()), class_="trouble")
                    for notice in panel.edits.notices_of(kind)
                ]
                shown = diff_block(lines, "The change")
                content = (tag("p", code_path(change.path)), warned, shown, fields)
                title = f"{'Install into' if kind == 'install' else 'Remove from'} {change.title}?"
                return HTMLResponse(page(request, panel, title, *content))
            case "install" | "uninstall" as kind:
                by = request.principal
                change, notices = await panel.edits.change_agent(agent, kind, digest, principal=by)
                done = "Restart it, and it has the tools." if kind == "install" else "Restart it."
                said = with_notices(f"Changed {change.path}. {change.title}: {done}", notices)
                return confirm(request, "/agents", said)
            case _:
                raise ConfigError("there is no such action")

    return answer


def _state(each: AgentInstallation) -> Child:
    word = tag("span", each.state, class_=f"outcome {_STATES.get(each.state, '')}".strip())
    return (word, tag("p", gate.error_text(each.problem), class_="trouble")) if each.problem else word


def _clients(panel: HostPanel, each: AgentInstallation) -> str:
    """Number of clients whose name begins like the agent's."""
    named = (session.client or "" for session in panel.sessions())
    count = sum(name.lower().startswith((each.agent, each.title.lower())) for name in named)
    return str(count) if count else "-"


def _actions(request: PageRequest, each: AgentInstallation) -> Child:
    if each.problem is not None:
        return "-"
    if each.entry is None:
        buttons = [button("Install", "do", "install", key=each.agent, kind="main")]
    else:
        buttons = [
            button("Test", "do", "test", key=each.agent),
            button("Remove", "do", "uninstall", key=each.agent, kind="danger"),
        ]
    return form(request, "/agents", *buttons, agent=each.agent)


def _snippets(request: PageRequest, agents: list[AgentInstallation]) -> Child:
    route = GatewayRoute(url=_endpoint(request), token=_TOKEN)
    lead = tag(
        "p",
        "The endpoint is ",
        code(route.url or ""),
        ". Put a token of the agent's own in place of ",
        code(_TOKEN),
        ": make one under ",
        tag("a", "Tokens", href="/tokens"),
        ".",
    )
    return (lead, [_snippet(each, route) for each in agents])


def _snippet(each: AgentInstallation, route: GatewayRoute) -> Html:
    text = render_snippet(each.agent, route).splitlines()
    return tag("details", tag("summary", each.title), block(text, f"The entry for {each.title}"))


def _endpoint(request: PageRequest) -> str:
    """The gateway's endpoint as the visitor's machine reaches it."""
    url = urlsplit(str(request.http.base_url))
    # The dashboard's own name is for browsers alone.
    host = "localhost" if (url.hostname or "").endswith(".localhost") else url.hostname or "localhost"
    address = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{address}{f':{url.port}' if url.port else ''}/mcp"
