"""`/resources` and `/attach`."""

import re
from collections.abc import Iterable, Mapping, Sequence

from fairlead.catalog.tools import ResourceOffer, ResourceTemplate
from fairlead.console.attachments import (
    OfferQuery,
    ask_uri,
    blocks_of,
    complete_uri,
    read_attachment,
    readable_servers,
    show_examples,
    show_failures,
    templates_of,
)
from fairlead.console.render import AnswerOrigin, show_blocks
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, pairs_of, suggest, words_of
from fairlead.errors import ArgumentsInvalid
from fairlead.host.offers.uri_templates import read_template
from fairlead.terminal.output import on_one_line

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


async def _run(session: ConsoleSession, rest: str) -> None:
    if not _names_a_resource(rest):
        await _list(session, rest)
        return
    meant = await _resolve_uri(session, rest)
    if meant is not None:
        server_id, uri = meant
        contents = await session.host.resources.read(server_id, uri)
        await show_blocks(session, AnswerOrigin(server_id=server_id, what=uri), blocks_of(contents))


async def _list(session: ConsoleSession, rest: str) -> None:
    wanted = OfferQuery.read(session, rest)
    resources = await session.host.resources.list(wanted.server_id)
    templates = await session.host.resources.templates(wanted.server_id)
    items = [
        item
        for item in (*resources.items, *templates.items)
        if wanted.fits(_uri(item), item.name, item.title, item.description)
    ]
    failures = resources.failures | templates.failures
    if items:
        session.screen.table(("server", "uri", "type", "description"), [_row(item) for item in items])
        session.screen.say("`/resources SERVER URI` reads one, `/attach SERVER URI` shows it to the model")
    elif not failures:
        session.screen.say("no resources" if rest else "no server has resources")
    show_failures(session, failures)


def _uri(item: ResourceOffer | ResourceTemplate) -> str:
    return item.uri if isinstance(item, ResourceOffer) else item.uri_template


def _row(item: ResourceOffer | ResourceTemplate) -> tuple[str, ...]:
    return item.server_id, _uri(item), item.mime_type or "-", on_one_line(item.description or item.label)


async def _attach(session: ConsoleSession, rest: str) -> None:
    if rest == "none":
        session.attached.clear()
    elif rest:
        if not _names_a_resource(rest):
            raise ArgumentsInvalid(f"`{rest}` is no resource", hint="/attach SERVER URI, as in `/resources`")
        meant = await _resolve_uri(session, rest)
        if meant is None:
            return
        session.attached.append(await read_attachment(session, *meant))
    if not session.attached:
        session.screen.say("nothing is attached")
        return
    session.screen.say("your next message to the model takes along:")
    for attachment in session.attached:
        session.screen.say(f"  {attachment.label}, {len(attachment.text):,} characters")


# Which resource is meant.


def _names_a_resource(rest: str) -> bool:
    """Whether it is `server uri …`, rather than something to look for."""
    words = rest.split(maxsplit=2)
    return len(words) > 1 and _URI.fullmatch(words[1]) is not None


async def _resolve_uri(session: ConsoleSession, rest: str) -> tuple[str, str] | None:
    """The server and the URI, its blanks filled in. None where the person would not say what is in one."""
    server_id, uri, *more = rest.split(maxsplit=2)
    session.loaded.server(server_id)  # raises where there is none
    blanks = _blanks(uri)
    values = pairs_of(words_of(" ".join(more)), blanks)
    for blank in blanks:
        if blank not in values:
            answer = await _ask_variable(session, server_id, uri, blank, values)
            if answer is None:
                return None
            values[blank] = answer
    return server_id, session.host.resources.expand(uri, values) if blanks else uri


def _blanks(uri: str) -> Sequence[str]:
    if "{" not in uri:
        return ()
    try:
        return read_template(uri).variables
    except ValueError as exc:
        raise ArgumentsInvalid(f"`{uri}` cannot be filled in: {exc}") from exc


async def _ask_variable(
    session: ConsoleSession, server_id: str, uri: str, blank: str, others: Mapping[str, str]
) -> str | None:
    """Ask the person for a blank, with what the server suggests for it."""
    for template in templates_of(session, server_id):
        if template.uri_template == uri:
            values = await session.completions.of_template(session.host, template, blank, "", others)
            show_examples(session, values)
    return await session.person.ask_line(blank)


# What may follow.


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    server_id, blank, uri = typed.partition(" ")
    if not blank:
        return suggest(server_id, [f"{name} " for name in readable_servers(session)])
    return [] if " " in uri else complete_uri(session, server_id, uri)


async def _ask(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    server_id, _, uri = typed.partition(" ")
    return await ask_uri(session, server_id, uri) if uri and " " not in uri else []


VERB = Verb(
    name="resources",
    usage="/resources [server] [query | uri]",
    summary="the resources of servers; with a URI, read it",
    run=_run,
    complete=_complete,
    ask=_ask,
)

VERB_ATTACH = Verb(
    name="attach",
    usage="/attach [server uri | none]",
    summary="attach a resource to your next message; `@server:uri` in it does too",
    run=_attach,
    complete=_complete,
    ask=_ask,
)
