"""`/tools`."""

from collections.abc import Iterable
from functools import partial

from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, suggest
from fairlead.errors import FairleadError
from fairlead.host.background import run_off_loop
from fairlead.terminal.output import on_one_line, plural

MOST_HITS = 20


async def _run(session: ConsoleSession, query: str) -> None:
    toolset = await session.conversation.toolset.ready()
    catalog = toolset.catalog
    known = await run_off_loop(partial(list_known_tools, session), len(catalog))
    if query in {entry.key.server_id for entry in known.values()}:
        known = {key: entry for key, entry in known.items() if key.server_id == query}
    elif query:
        hits = (await toolset.search(query, limit=MOST_HITS)).hits
        known = await run_off_loop(
            partial(_find_matching, known, [hit.key for hit in hits], query), len(known)
        )
    if not known:
        session.screen.say("no tool fits that" if query else "no tools known")
    else:
        rows = [
            (
                key.server_id,
                key.shown_tool,
                "yes" if catalog.of(key) else "no",
                on_one_line(entry.description or entry.title),
            )
            for key, entry in known.items()
        ]
        session.screen.table(("server", "tool", "agents", "what it is for"), rows)
        session.screen.say(plural(len(rows), "tool"))
        if any(row[2] == "no" for row in rows):
            session.screen.say("agents may use what `/mcp review ID` allows; you may call any tool yourself")
    for server_id, reason in toolset.unavailable.items():
        session.screen.warn(f"without `{server_id}`: {reason}")


def _find_matching(
    known: dict[ToolKey, ToolEntry], hits: Iterable[ToolKey], query: str
) -> dict[ToolKey, ToolEntry]:
    """Hits of a search, the best first, then other known tools with these words."""
    found = {key: known[key] for key in hits if key in known}
    words = query.casefold().split()
    for key, entry in known.items():
        text = f"{key.tool} {entry.title} {entry.description}".casefold()
        if len(found) < MOST_HITS and all(word in text for word in words):
            found.setdefault(key, entry)
    return found


def list_known_tools(session: ConsoleSession) -> dict[ToolKey, ToolEntry]:
    """All tools that are known, sanitized. Contacts no server."""
    return {
        entry.key: entry.derive(clean_tool).entry
        for status in session.host.status()
        if status.enabled
        for entry in tools_of(session, status.server_id)
    }


def tools_of(session: ConsoleSession, server_id: str) -> tuple[ToolEntry, ...]:
    """The tools that a server is known to have. Contacts no server."""
    try:
        listing = session.host.listing(server_id)
    except FairleadError:  # there is no such server, or its entry is not sound
        return ()
    return listing.tools if listing is not None else ()


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    return suggest(typed, [status.server_id for status in session.host.status()])


VERB = Verb(
    name="tools",
    usage="/tools [query | server]",
    summary="the tools of all servers, of one, or those that match a query",
    run=_run,
    complete=_complete,
)
