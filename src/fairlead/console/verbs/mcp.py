"""`/mcp`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from anyio import to_thread

from fairlead.actions.switch import restart_server, switch_server
from fairlead.catalog.catalog import usable_tool
from fairlead.config.paths import state_folder
from fairlead.connection.process.stderr import log_tail
from fairlead.console.mcp_actions import log_in, review
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, option_of, suggest, words_of
from fairlead.console.verbs.tools import tools_of
from fairlead.errors import ArgumentsInvalid, ConfigError
from fairlead.host.background import run_off_loop
from fairlead.host.server_status import ServerStatus
from fairlead.terminal.output import display_path, plural, print_edit

USAGE: Final = (
    "/mcp [server | reload | restart, login server | enable, disable server [--scope project, user]"
    " | review server [--allow, --ask, --deny NAMES] [--scope …]]"
)
LOG_LINES: Final = 15


async def _run(session: ConsoleSession, rest: str) -> None:
    word, _, argument = rest.partition(" ")
    argument = argument.strip()
    if not word:
        await _show_all(session)
    elif word == "reload":
        await _reload(session)
    elif word not in _ACTIONS:
        await _show_one(session, rest)
    elif not argument:
        raise ArgumentsInvalid(f"`/mcp {word}` which server?", hint=f"/mcp {word} ID")
    else:
        await _ACTIONS[word](session, argument)


async def _show_all(session: ConsoleSession) -> None:
    statuses = session.host.status()
    total = sum(status.tools or 0 for status in statuses)
    refused = await run_off_loop(partial(_count_refused, session, statuses), total)
    if not statuses:
        session.screen.say("no MCP servers configured")
        session.screen.say(
            "hint: `fairlead add` adds one, `fairlead import` takes over what other agents have"
        )
        return
    rows = [
        (
            status.server_id,
            status.transport or "?",
            status.source,
            "yes" if status.enabled else "no",
            status.state,
            _tools(status, refused.get(status.server_id, 0)),
        )
        for status in statuses
    ]
    session.screen.table(("id", "transport", "source", "enabled", "state", "tools"), rows)
    for managed in session.host.servers:
        server_id = managed.server.server_id
        broken = next((each for each in managed.server.problems if each.severity == "error"), None)
        if managed.awaits_consent and broken is None:
            session.screen.warn(
                f"`{server_id}` waits for your approval", f"`/mcp review {server_id}` shows it"
            )
        for problem in managed.server.problems:
            if problem.severity == "warning":
                session.screen.warn(str(problem), problem.hint)
    for status in statuses:
        if status.enabled and status.last_error and status.state != "ready":
            session.screen.warn(_first_line(status.last_error), status.hint)


async def _show_one(session: ConsoleSession, server_id: str) -> None:
    server = session.loaded.servers.get(server_id)
    status = _status(session, server_id)
    config = server.config if server else None
    connected = status.last_connected_at
    details = {
        "target": server.target if server else "part of this program",
        "description": config.description if config else None,
        "transport": status.transport,
        "source": str(server.definition.origin(())) if server else status.source,
        "enabled": "yes" if status.enabled else "no",
        "state": status.state,
        "protocol": status.version,
        "tools": _tools(status),
        "calls": str(status.calls),
        "connects": str(status.connects),
        "last_connected_at": _format_time(connected) if connected else "never",
        "last_error": status.last_error or "none",
        "hint": status.hint,
        "notes": "\n".join(status.notes) or None,
    }
    for name, value in details.items():
        if value:
            session.screen.say(f"{name:<18} {value.replace(chr(10), chr(10) + ' ' * 19)}")
    log = await to_thread.run_sync(
        log_tail, state_folder(session.env) / "logs" / f"{server_id}.log", LOG_LINES
    )
    if log:
        session.screen.say("it said last, on its stderr:")
        session.screen.words_of("\n".join(log))


async def _reload(session: ConsoleSession) -> None:
    await session.configuration.reload()
    session.screen.say(f"the configuration is in effect: {plural(len(session.loaded.servers), 'server')}")
    for problem in session.loaded.problems:
        session.screen.warn(str(problem), problem.hint)


async def _restart(session: ConsoleSession, server_id: str) -> None:
    for notice in await restart_server(session.actions, session.host, server_id):
        session.screen.warn(notice.message, notice.hint)
    _show_ready(session, server_id)


async def _switch(session: ConsoleSession, typed: str, *, on: bool) -> None:
    words, scope = option_of(words_of(typed), "--scope")
    if len(words) != 1:
        raise ArgumentsInvalid(f"`{typed}` is not understood here", hint=USAGE)
    server_id = words[0]
    switch = partial(switch_server, session.actions, server_id, on=on, scope=scope)
    switched = await to_thread.run_sync(switch)
    print_edit(switched.edit)
    switched.require_effect()
    word = "enabled" if on else "disabled"
    where = f", in {display_path(switched.target.path)}" if switched.target else " already"
    session.screen.say(f"`{server_id}` is {word}{where}")
    if on:
        await _connect(session, server_id)


async def _connect(session: ConsoleSession, server_id: str) -> None:
    for failure in (await session.host.connect(server_id)).values():
        raise failure
    _show_ready(session, server_id)


def _show_ready(session: ConsoleSession, server_id: str) -> None:
    status = _status(session, server_id)
    session.screen.say(f"`{server_id}` is {status.state}: {plural(status.tools or 0, 'tool')}")


_ACTIONS: Final[dict[str, Callable[[ConsoleSession, str], Awaitable[None]]]] = {
    "restart": _restart,
    "enable": partial(_switch, on=True),
    "disable": partial(_switch, on=False),
    "login": log_in,
    "review": review,
}


def _status(session: ConsoleSession, server_id: str) -> ServerStatus:
    status = next((each for each in session.host.status() if each.server_id == server_id), None)
    if status is None:
        session.loaded.server(server_id)  # which raises, with the id that may be meant
        raise ConfigError(f"there is no server `{server_id}`")
    return status


def _count_refused(session: ConsoleSession, statuses: Sequence[ServerStatus]) -> dict[str, int]:
    """How many of the tools that each server lists are never offered, for their definitions."""
    counts: dict[str, int] = {}
    for status in statuses:
        if status.tools and (known := tools_of(session, status.server_id)):
            usable = sum(entry.derive(usable_tool).rejected is None for entry in known)
            counts[status.server_id] = (status.tools or 0) - usable
    return counts


def _tools(status: ServerStatus, refused: int = 0) -> str:
    if status.tools is None:
        return "?"
    notes = [*(["old"] if status.stale else []), *([f"{refused} refused"] if refused > 0 else [])]
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"{status.tools - max(refused, 0)}{noted}"


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    word, blank, rest = typed.partition(" ")
    servers = [(status.server_id, status.state) for status in session.host.status()]
    if not blank:
        return suggest(
            word, [*servers, ("reload", "read the files again"), *(f"{action} " for action in _ACTIONS)]
        )
    return suggest(rest, servers) if word in _ACTIONS else ()


VERB = Verb(
    name="mcp",
    usage=USAGE,
    summary="the state of all servers, the details of one, and actions on it",
    run=_run,
    complete=_complete,
)
