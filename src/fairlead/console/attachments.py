"""Resources for the model: attached to the next message, or mentioned in it as `@server:uri`.

Also shared by the commands for resources and prompts: the query, and servers that failed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from secrets import token_hex
from typing import Any, Final, Self

import msgspec

from fairlead.adapters.content import text_of
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ResourceOffer, ResourceTemplate
from fairlead.console.session import Attachment, ConsoleSession
from fairlead.console.typed_words import Suggestion, suggest
from fairlead.errors import ConfigError, FairleadError
from fairlead.host.offers.contents import ResourceContents
from fairlead.host.offers.uri_templates import UriTemplate, read_template
from fairlead.policy.results import ResultSource

Blocks = Sequence[Mapping[str, Any]]

MOST_TEMPLATES: Final = 500
"""How many templates of a server are looked at for one that is being typed."""

_MENTION: Final = re.compile(r"(?<!\S)@([A-Za-z0-9_.-]+):(\S+)")
_BEGUN: Final = re.compile(r"(?<!\S)@(\S*)$")
_PUNCTUATION: Final = ".,;:!?)\"'"


async def say_to_model(session: ConsoleSession, text: str) -> None:
    """Send the model a message with the attached resources and those that it mentions.

    What is attached is used up, unless there is no model to take it or something cannot be read.
    """
    message = await message_with(session, text)
    taken, session.attached = session.attached, []
    try:
        await session.conversation.send(session.screen, message)
    except ConfigError:  # no server was contacted
        session.attached = taken + session.attached
        raise


async def message_with(session: ConsoleSession, text: str) -> str:
    """The message for the model: attached and mentioned resources, then the user's text."""
    mentioned = [await read_attachment(session, server_id, uri) for server_id, uri in mentions(session, text)]
    attached = {one.label: one for one in (*session.attached, *mentioned)}.values()
    return "\n\n".join((*(one.text for one in attached), text))


async def read_attachment(session: ConsoleSession, server_id: str, uri: str) -> Attachment:
    """Read a resource for the model, between random delimiters that it cannot forge."""
    contents = await session.host.resources.read(server_id, uri)
    text = text_of(await for_model(session, server_id, uri, blocks_of(contents)))
    end = f"(end of attachment {token_hex(4)})"
    heading = f"(The user attached `{uri}` of the server `{server_id}`, up to the line `{end}`:)"
    return Attachment(label=f"{server_id}:{uri}", text=f"{heading}\n{text}\n{end}")


async def for_model(session: ConsoleSession, server_id: str, what: str, blocks: Blocks) -> ToolResult:
    """Content of a server for the model: sanitized, and within the result budget.

    Media are stored as artifacts, whose handles the model gets.
    """
    config = session.host.configured(server_id)
    trusted = config.trust == "trusted"
    source = ResultSource(server_id=server_id, tool=what, trusted=trusted, limit=config.max_result_bytes)
    return await session.host.artifacts.deliver(msgspec.json.encode({"content": blocks}), source)


def mentions(session: ConsoleSession, text: str) -> list[tuple[str, str]]:
    """The resources that a message mentions, each once: those of enabled servers."""
    servers = set(_list_enabled_servers(session))
    found = [
        (match[1], _uri(session, match[1], match[2]))
        for match in _MENTION.finditer(text)
        if match[1] in servers
    ]
    return list(dict.fromkeys(found))


def complete_mention(session: ConsoleSession, text: str) -> Iterable[Suggestion]:
    """Completions of an `@` at the end of a message: servers with resources, and their URIs."""
    begun = _BEGUN.search(text)
    if begun is None:
        return []
    server_id, colon, uri = begun[1].partition(":")
    if not colon:
        return suggest(server_id, [(f"{name}:", "") for name in readable_servers(session)])
    return complete_uri(session, server_id, uri)


async def ask_mention(session: ConsoleSession, text: str) -> Iterable[Suggestion]:
    """Completions by the server for the URI that is begun at the end of a message."""
    begun = _BEGUN.search(text)
    server_id, _, uri = begun[1].partition(":") if begun else ("", "", "")
    return await ask_uri(session, server_id, uri) if uri else []


# URIs, which verbs complete too.


def readable_servers(session: ConsoleSession) -> list[str]:
    """The servers that are known to have resources."""
    return [
        server_id
        for server_id in _list_enabled_servers(session)
        if resources_of(session, server_id) or templates_of(session, server_id)
    ]


def resources_of(session: ConsoleSession, server_id: str) -> tuple[ResourceOffer, ...]:
    """The resources that a server is known to have."""
    return session.completions.offers(session.host, ResourceOffer, server_id)


def templates_of(session: ConsoleSession, server_id: str) -> tuple[ResourceTemplate, ...]:
    """The templates that a server is known to have."""
    return session.completions.offers(session.host, ResourceTemplate, server_id)


def complete_uri(session: ConsoleSession, server_id: str, begun: str) -> list[Suggestion]:
    """The URIs of a server that begin so, and the literal beginnings of its templates."""
    uris = (
        (resource.uri, resource.label)
        for resource in resources_of(session, server_id)
        if resource.uri.startswith(begun)
    )
    templates = ((offer, offer.uri_template.partition("{")[0]) for offer in templates_of(session, server_id))
    starts = ((start, offer.label) for offer, start in templates if len(start) > len(begun))
    return suggest(begun, chain(uris, starts))


async def ask_uri(session: ConsoleSession, server_id: str, begun: str) -> list[Suggestion]:
    """Completions by the server for the variable of a template that is being typed."""
    suggestions: list[Suggestion] = []
    for offer, template in _read_templates(session, server_id):
        typing = template.typed_variable(begun)
        if typing is None:
            continue
        values = await session.completions.of_template(
            session.host, offer, typing.variable, typing.text, typing.before
        )
        uris = (template.expand({**typing.before, typing.variable: value}) for value in values)
        suggestions += [Suggestion(uri, len(begun), offer.label) for uri in uris]
    return suggestions


def _read_templates(
    session: ConsoleSession, server_id: str
) -> Iterator[tuple[ResourceTemplate, UriTemplate]]:
    for offer in islice(templates_of(session, server_id), MOST_TEMPLATES):
        try:
            yield offer, read_template(offer.uri_template)
        except ValueError:  # which cannot be filled in
            continue


def _list_enabled_servers(session: ConsoleSession) -> list[str]:
    return [status.server_id for status in session.host.status() if status.enabled]


def _uri(session: ConsoleSession, server_id: str, written: str) -> str:
    """The URI that is meant. What ends a sentence is no part of it, unless the server says so."""
    if any(resource.uri == written for resource in resources_of(session, server_id)):
        return written
    return written.rstrip(_PUNCTUATION) or written


def blocks_of(contents: ResourceContents) -> list[dict[str, Any]]:
    """The parts of a resource as blocks of content."""
    return [
        {"type": "text", "text": part["text"]}
        if isinstance(part.get("text"), str)
        else {"type": "resource", "resource": part}
        for part in contents.parts
    ]


MOST_EXAMPLES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferQuery:
    """Filter of offers: by server, and by words."""

    server_id: str | None
    words: tuple[str, ...]

    @classmethod
    def read(cls, session: ConsoleSession, typed: str) -> Self:
        """Parse `[server] [query]`. A first word that is no server belongs to the query."""
        first, *others = typed.split() or [""]
        if first in server_names(session):
            return cls(server_id=first, words=tuple(word.casefold() for word in others))
        return cls(server_id=None, words=tuple(word.casefold() for word in typed.split()))

    def fits(self, *texts: str | None) -> bool:
        """Whether all the words are somewhere in these texts."""
        whole = "\n".join(text for text in texts if text).casefold()
        return all(word in whole for word in self.words)


def server_names(session: ConsoleSession) -> list[str]:
    """The enabled servers."""
    return [status.server_id for status in session.host.status() if status.enabled]


def show_failures(session: ConsoleSession, failures: Mapping[str, FairleadError]) -> None:
    """Show which servers failed, and why."""
    for failure in failures.values():
        session.screen.warn(str(failure), failure.hint)


def show_examples(session: ConsoleSession, values: Sequence[str]) -> None:
    """Show a server's suggestions before the user is prompted."""
    if values:
        more = " …" if len(values) > MOST_EXAMPLES else ""
        session.screen.say(f"  for example: {', '.join(values[:MOST_EXAMPLES])}{more}")
