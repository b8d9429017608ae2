"""Connect an agent: write the gateway into its file, paste an entry, try it, and see who is connected."""

from collections.abc import Sequence
from typing import cast

from starlette.responses import HTMLResponse, Response

from fairlead.actions.agents import AgentFile
from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError, FairleadError
from fairlead.web.agent_panel import ChangeKind
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import block, button, code_path, diff_block, form, hint, live, page, prose, table
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.pages.calls import clients


def show(panel: HostPanel) -> Answer:
    """All agents, entries to paste, and the clients there are."""

    async def answer(visit: PageRequest) -> Response:
        files = await panel.agents.files()
        content = (
            tag("p", _LEAD, class_="dim"),
            table("Agents", ("Agent", "State", "Its file", "Actions"), [_row(visit, file) for file in files]),
            _trial(visit),
            live("clients", clients(panel.sessions()) or tag("p", "No agent is connected.", class_="dim")),
            tag("h2", "To paste"),
            tag("p", "For an agent that is not listed, or whose file you edit yourself.", class_="dim"),
            [_snippets(panel, file) for file in files],
        )
        return HTMLResponse(page(visit, panel, "Agents", *content))

    return answer


def act(panel: HostPanel) -> Answer:
    """Show what would be written, write it, or try the gateway as an agent does."""

    async def answer(visit: PageRequest) -> Response:
        agent = visit.field("agent")
        match visit.field("do"):
            case "install" | "uninstall" as kind:
                return await _ask(visit, panel, agent, kind)
            case "write":
                kind = cast("ChangeKind", visit.field("kind"))
                if kind not in ("install", "uninstall"):
                    raise ConfigError("there is no such action")
                digest = visit.field("digest")
                return confirm(
                    visit,
                    "/agents",
                    await panel.agents.write(agent, kind, digest, principal=visit.principal),
                )
            case "try":
                return await _try(visit, panel)
            case _:
                raise ConfigError("there is no such action")

    return answer


_LEAD = (
    "Each of them gets the same approved tools, through this one gateway. Connecting writes one entry into"
    " the agent's file; you see it first, and the file as it was is kept."
)


def _row(visit: PageRequest, file: AgentFile) -> Sequence[Child]:
    label, kind = ("Disconnect", "uninstall") if file.is_installed else ("Connect", "install")
    is_likely = file.has_file and not file.is_installed
    press = button(label, "do", kind, key=file.agent, kind="main" if is_likely else "")
    return (
        file.title,
        _state(file),
        code_path(file.path),
        None if file.problem else form(visit, "/agents", press, agent=file.agent),
    )


def _state(file: AgentFile) -> Html:
    if file.problem:
        return tag("span", gate.error_text(file.problem), class_="trouble")
    if file.is_installed:
        return tag("span", tag("span", class_="dot", aria_hidden="true"), "connected", class_="good")
    return tag("span", "not connected" if file.has_file else "no file found", class_="dim")


def _trial(visit: PageRequest) -> Html:
    press = button("Try it", "do", "try", key="agents")
    about = tag("span", "Starts the gateway's command as an app of the desktop does.", class_="dim")
    return form(visit, "/agents", tag("div", press, about, class_="row"))


async def _try(visit: PageRequest, panel: HostPanel) -> Response:
    try:
        found = await panel.agents.try_command()
    except FairleadError as exc:
        said = tag("p", gate.error_text(exc), class_="trouble text", role="alert")
        back = tag("p", tag("a", "Back", href="/agents", class_="button"))
        content = tag("div", said, hint(exc.hint), back, class_="card bad")
        return HTMLResponse(page(visit, panel, "It does not work", content), 502)
    tools = "1 tool" if found.tools == 1 else f"{found.tools:,} tools"
    return confirm(visit, "/agents", f"It works: an agent gets {tools}, after {found.seconds:.1f} s.")


async def _ask(visit: PageRequest, panel: HostPanel, agent: str, kind: ChangeKind) -> Response:
    change = await panel.agents.plan(agent, kind)
    if change.is_none:
        return confirm(visit, "/agents", f"{change.path} is as it should be; nothing was changed.")
    verb = "Connect" if kind == "install" else "Disconnect"
    content = tag(
        "div",
        tag("p", "This is written to ", code_path(change.path), ":"),
        diff_block(change.lines, "What changes"),
        form(
            visit,
            "/agents",
            button(f"{verb} {change.title}", "do", "write", key=agent, kind="main"),
            " ",
            tag("a", "Cancel", href="/agents", class_="button"),
            agent=agent,
            kind=kind,
            digest=change.digest,
        ),
        class_="card",
    )
    return HTMLResponse(page(visit, panel, f"{verb} {change.title}?", content))


def _snippets(panel: HostPanel, file: AgentFile) -> Html:
    by_command = panel.agents.snippet(file.agent, by_url=False) or ""
    by_url = panel.agents.snippet(file.agent, by_url=True)
    advice = panel.agents.advice(file.agent)
    return tag(
        "details",
        tag("summary", file.title),
        tag("p", "In ", code_path(file.path), ", as a command:"),
        block(by_command.splitlines(), f"Entry for {file.title}, as a command"),
        (
            tag("p", "Or by its address:"),
            block(by_url.splitlines(), f"Entry for {file.title}, by address"),
            tag("p", "For the token: ", prose(advice), class_="dim") if advice else None,
        )
        if by_url
        else None,
        id=f"paste-{file.agent}",
    )
