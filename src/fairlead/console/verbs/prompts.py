"""`/prompts`."""

from collections.abc import Iterable

from fairlead.catalog.tools import PromptOffer
from fairlead.console.attachments import OfferQuery, server_names, show_failures
from fairlead.console.prompt_verbs import usage_of, verb_name
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, suggest
from fairlead.terminal.output import on_one_line


async def _run(session: ConsoleSession, rest: str) -> None:
    wanted = OfferQuery.read(session, rest)
    gathered = await session.host.prompts.list(wanted.server_id)
    found = [
        prompt for prompt in gathered.items if wanted.fits(prompt.name, prompt.title, prompt.description)
    ]
    if found:
        session.screen.table(("prompt", "arguments", "description"), [_row(prompt) for prompt in found])
    elif not gathered.failures:
        session.screen.say("no prompts" if rest else "no server has prompts")
    show_failures(session, gathered.failures)


def _row(prompt: PromptOffer) -> tuple[str, ...]:
    return f"/{verb_name(prompt)}", usage_of(prompt) or "-", on_one_line(prompt.description or prompt.title)


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    return [] if " " in typed else suggest(typed, [f"{name} " for name in server_names(session)])


VERB = Verb(
    name="prompts",
    usage="/prompts [server] [query]",
    summary="the prompts of all servers, of one, or those that match a query",
    run=_run,
    complete=_complete,
)
