"""A line that a person typed: which verb it is, what may follow, and carrying it out."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from fairlead.console.attachments import ask_mention, complete_mention, say_to_model
from fairlead.console.prompt_verbs import prompt_verbs
from fairlead.console.session import Session
from fairlead.console.verb import Suggestion, Verb, fitting
from fairlead.errors import ArgumentsInvalid


async def carry_out(session: Session, line: str) -> None:
    """Do what a line says: a verb, or words for the model."""
    if not line.startswith("/"):
        await say_to_model(session, line)
        return
    name, _, rest = line[1:].partition(" ")
    await _verb(session, name).run(session, rest.strip())


def suggestions(session: Session, line: str) -> Iterable[Suggestion]:
    """What may come next, given the line up to the cursor. Waits for nobody."""
    if not line.startswith("/"):
        return complete_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    verbs = verbs_of(session)
    if not blank:
        return fitting(name, [(f"{name} ", verb.summary) for name, verb in verbs.items()])
    verb = verbs.get(name)
    return verb.complete(session, rest) if verb is not None and verb.complete is not None else ()


async def asked_suggestions(session: Session, line: str) -> Iterable[Suggestion]:
    """What a server suggests may come next."""
    if not line.startswith("/"):
        return await ask_mention(session, line)
    name, blank, rest = line[1:].partition(" ")
    verb = verbs_of(session).get(name) if blank else None
    return await verb.ask(session, rest) if verb is not None and verb.ask is not None else ()


def verbs_of(session: Session) -> Mapping[str, Verb]:
    """Every verb there is just now: ours, and the prompts of servers."""
    return {**prompt_verbs(session), **session.verbs}


def _verb(session: Session, name: str) -> Verb:
    verbs = verbs_of(session)
    verb = verbs.get(name)
    if verb is None:
        close = get_close_matches(name, verbs, n=1)
        hint = f"did you mean `/{close[0]}`?" if close else "`/help` shows what there is"
        raise ArgumentsInvalid(f"there is no command `/{name}`", hint=hint)
    return verb
