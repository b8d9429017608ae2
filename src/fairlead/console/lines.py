"""A line that a person typed: which verb it is, what may follow, and carrying it out."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Final

from fairlead.console.attachments import ask_mention, complete_mention, say_to_model
from fairlead.console.prompt_verbs import known_prompts, summary_of, verb_of
from fairlead.console.session import Session
from fairlead.console.verb import Suggestion, Verb, fitting
from fairlead.errors import ArgumentsInvalid

MOST_COMPARED: Final = 500
"""How many prompts are looked at for one of a similar name."""


async def carry_out(session: Session, line: str) -> None:
    """Do what a line says: a verb, or words for the model."""
    if not line.startswith("/"):
        await session.completions.read_offers(session.host)
        await say_to_model(session, line)
        return
    name, _, rest = line[1:].partition(" ")
    if name not in session.verbs:
        await session.completions.read_offers(session.host)
    await _require_verb(session, name).run(session, rest.strip())


def suggestions(session: Session, line: str) -> Iterable[Suggestion]:
    """What may come next, given the line up to the cursor, as far as it is known. Waits for nothing."""
    if not line.startswith("/"):
        return complete_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    if not blank:
        return fitting(name, _verb_names(session, name))
    verb = _verb(session, name)
    return verb.complete(session, rest) if verb is not None and verb.complete is not None else ()


async def asked_suggestions(session: Session, line: str) -> Iterable[Suggestion]:
    """What may come next besides: what had to be read first, and what a server suggests."""
    before = frozenset(suggestions(session, line))
    has_read = await session.completions.read_offers(session.host)
    read = [each for each in suggestions(session, line) if each not in before] if has_read else []
    return [*read, *await _ask_server(session, line)]


async def _ask_server(session: Session, line: str) -> Iterable[Suggestion]:
    if not line.startswith("/"):
        return await ask_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    verb = _verb(session, name) if blank else None
    return await verb.ask(session, rest) if verb is not None and verb.ask is not None else ()


def _verb_names(session: Session, begun: str) -> Iterator[tuple[str, str]]:
    """Every verb that begins so, ours and the prompts of servers, with what it is for."""
    for name, verb in session.verbs.items():
        yield f"{name} ", verb.summary
    for name, prompt in known_prompts(session).items():
        if name.startswith(begun) and name not in session.verbs:
            yield f"{name} ", summary_of(prompt)


def _verb(session: Session, name: str) -> Verb | None:
    if name in session.verbs:
        return session.verbs[name]
    prompt = known_prompts(session).get(name)
    return verb_of(prompt) if prompt is not None else None


def _require_verb(session: Session, name: str) -> Verb:
    verb = _verb(session, name)
    if verb is None:
        # To compare a name takes some 20 µs.
        names = [*session.verbs, *islice(known_prompts(session), MOST_COMPARED)]
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean `/{close[0]}`?" if close else "`/help` shows what there is"
        raise ArgumentsInvalid(f"there is no command `/{name}`", hint=hint)
    return verb
