"""`/call`."""

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import clean_tool
from fairlead.catalog.tools import ToolEntry, find_tool
from fairlead.config.untyped import as_list, as_object
from fairlead.config.validate import suggestion
from fairlead.console.render import AnswerOrigin, show_blocks
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, suggest, words_of
from fairlead.console.verbs.tools import tools_of
from fairlead.errors import ArgumentsInvalid, UnknownTool
from fairlead.policy.tool_names import owners_of
from fairlead.terminal.arguments import read_argument, read_document
from fairlead.terminal.output import noting_delivery, printable

USAGE = "/call server.tool [name=value … | {json}]"


MOST_COMPARED: Final = 500
"""How many tools are looked at for one of a similar name."""
MOST_TITLE_BYTES: Final = 200
"""Longest title of a tool, next to a suggestion."""


async def _run(session: ConsoleSession, rest: str) -> None:
    server_id, _, rest = rest.partition(" ")
    if server_id not in session.loaded.servers and (owners := owners_of(server_id, session.loaded.servers)):
        server_id, name = owners[0]
        typed = rest
    else:
        name, _, typed = rest.strip().partition(" ")
    if not server_id or not name:
        raise ArgumentsInvalid("say which tool of which server", hint=USAGE)
    with noting_delivery():
        entry = await _tool(session, server_id, name)
    schema = as_object(entry.read().get("inputSchema"))
    arguments = _parse_arguments(typed.strip(), schema)
    shown = as_object(entry.derive(clean_tool).entry.read().get("inputSchema"))
    if not await _complete_arguments(session, schema, shown, arguments):
        return
    with noting_delivery():
        result = await session.host.call(
            server_id, entry.key.tool, arguments, confirmed=True, full_result=True
        )
    await show_blocks(session, AnswerOrigin(server_id=server_id, what=entry.key.tool), result.content)
    if not result.content and result.structured is not None:
        session.screen.data(json.dumps(result.structured, indent=2, ensure_ascii=False))
    if result.is_error:
        session.screen.warn("the tool returned an error")


async def _tool(session: ConsoleSession, server_id: str, name: str) -> ToolEntry:
    """The tool of that name. Its server is listed again where the listing may be old."""
    session.loaded.server(server_id)  # raises where there is none
    entry = find_tool(name, await session.host.tools_of(server_id))
    if entry is None:
        entry = find_tool(name, (await session.host.list_now(server_id)).tools)
    if entry is None:
        some = islice(tools_of(session, server_id), MOST_COMPARED)  # each takes some 20 µs to compare
        hint = suggestion(name, [each.key.shown_tool for each in some])
        raise UnknownTool(f"`{server_id}` has no tool `{name}`", hint=hint or f"`/tools {server_id}`")
    return entry


def _parse_arguments(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    try:
        if text.startswith("{"):
            return read_document(text)
        return dict(read_argument(pair, schema) for pair in words_of(text))
    except ValueError as exc:
        raise ArgumentsInvalid(str(exc), hint=USAGE) from None


async def _complete_arguments(
    session: ConsoleSession, schema: dict[str, Any], shown: dict[str, Any], arguments: dict[str, Any]
) -> bool:
    """Ask for what is required and missing. False where the person does not want to say.

    `shown` is the schema with nothing hidden in it and secrets masked: what is said of the arguments.
    """
    properties = as_object(shown.get("properties"))
    for name in as_list(schema.get("required")):
        if not isinstance(name, str) or name in arguments:
            continue
        wanted = as_object(properties.get(name))
        if isinstance(description := wanted.get("description"), str):
            session.screen.words_of(description)
        if choices := as_list(wanted.get("enum")):
            session.screen.say(f"  one of {', '.join(map(str, choices))}")
        typed = await session.person.ask_line(printable(name))
        if typed is None:
            return False
        arguments[name] = read_argument(f"{name}={typed}", schema)[1]
    return True


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    """Servers, then tools, then the names of arguments and the values that are listed for them."""
    *before, last = typed.split(" ")
    if not before:
        return suggest(last, [(f"{status.server_id} ", status.state) for status in session.host.status()])
    tools = tools_of(session, before[0])
    if len(before) == 1:
        names = ((f"{tool.key.shown_tool} ", tool) for tool in tools)
        found = ((name, tool) for name, tool in names if name.startswith(last))
        return suggest(last, ((name, gate.text(tool.title or "", MOST_TITLE_BYTES)) for name, tool in found))
    entry = find_tool(before[1], tools)
    if entry is None or "{" in typed:
        return ()
    cleaned = entry.derive(clean_tool).entry.read()  # its texts are shown next to the suggestions
    properties = as_object(as_object(cleaned.get("inputSchema")).get("properties"))
    name, equals, value = last.partition("=")
    if equals:
        choices = as_list(as_object(properties.get(name)).get("enum"))
        return suggest(value, [choice for choice in choices if isinstance(choice, str)])
    given = {word.partition("=")[0] for word in before[2:]}
    return suggest(
        last, [(f"{name}=", _note(wanted)) for name, wanted in properties.items() if name not in given]
    )


def _note(wanted: object) -> str:
    described = as_object(wanted)
    return str(described.get("description") or described.get("type") or "")


VERB = Verb(
    name="call",
    usage=USAGE,
    summary="call a tool; it asks for what is missing",
    run=_run,
    complete=_complete,
)
