"""Each prompt of a server as a verb: `/server:prompt name=value`."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from fairlead.adapters.content import text_of
from fairlead.catalog.tools import PromptArgument, PromptOffer
from fairlead.config.untyped import as_object
from fairlead.console.attachments import for_model, show_examples
from fairlead.console.render import AnswerOrigin, is_shown_whole, show_blocks
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, pairs_of, words_of
from fairlead.errors import ArgumentsInvalid
from fairlead.host.offers.contents import PromptResult

_BLANKS = re.compile(r"\s+")


def list_known_prompts(session: ConsoleSession) -> Mapping[str, PromptOffer]:
    """The known prompts, each by the name of its verb. Contacts no server."""
    return session.completions.prompts(session.host, verb_name)


def verb_name(prompt: PromptOffer) -> str:
    """Name of a prompt's verb. It has no blanks, since they end it."""
    return _BLANKS.sub("_", f"{prompt.server_id}:{prompt.name}")


def usage_of(prompt: PromptOffer) -> str:
    """Usage line of a prompt's arguments."""
    shown = (f"{argument.name}=…" for argument in prompt.arguments)
    wanted = (argument.required for argument in prompt.arguments)
    return " ".join(text if required else f"[{text}]" for text, required in zip(shown, wanted, strict=True))


def summary_of(prompt: PromptOffer) -> str:
    """Description of a prompt, in one line."""
    return " ".join((prompt.description or prompt.label).split())


def verb_of(prompt: PromptOffer) -> Verb:
    """The verb that gets a prompt."""
    return Verb(
        name=verb_name(prompt),
        usage=f"/{verb_name(prompt)} {usage_of(prompt)}".rstrip(),
        summary=summary_of(prompt),
        run=partial(_run, prompt),
        complete=partial(_complete, prompt),
        ask=partial(_ask, prompt),
    )


# What it does.


async def _run(prompt: PromptOffer, session: ConsoleSession, rest: str) -> None:
    arguments = pairs_of(words_of(rest), [argument.name for argument in prompt.arguments])
    for argument in prompt.arguments:
        if argument.required and argument.name not in arguments:
            answer = await _ask_argument(session, prompt, argument, arguments)
            if answer is None:
                return
            arguments[argument.name] = answer
    result = await session.host.prompts.get(prompt.server_id, prompt.name, arguments)
    await _show(session, prompt, result)
    if session.conversation.model is not None:
        await _hand_to_model(session, prompt, result)


async def _ask_argument(
    session: ConsoleSession, prompt: PromptOffer, argument: PromptArgument, others: Mapping[str, str]
) -> str | None:
    """Ask the person for an argument, with what the server suggests for it."""
    if argument.description:
        session.screen.words_of(argument.description)
    values = await session.completions.of_prompt(session.host, prompt, argument.name, "", others)
    show_examples(session, values)
    return await session.person.ask_line(argument.name)


async def _show(session: ConsoleSession, prompt: PromptOffer, result: PromptResult) -> None:
    origin = AnswerOrigin(server_id=prompt.server_id, what=prompt.name)
    for message in result.messages:
        session.screen.say(f"[{message.get('role')}]")
        await show_blocks(session, origin, [as_object(message.get("content"))])


async def _hand_to_model(session: ConsoleSession, prompt: PromptOffer, result: PromptResult) -> None:
    """Put the messages into the conversation. What a server wrote that is not trusted is agreed to first."""
    if session.host.configured(prompt.server_id).trust != "trusted":
        if not is_shown_whole(as_object(message.get("content")) for message in result.messages):
            session.screen.warn("only its beginning is shown above; the model would get all of it")
        answer = await session.person.pick("Send this to the model?", ["yes", "no"], "no")
        if answer != "yes":
            return
    messages = [await _convert_message(session, prompt, message) for message in result.messages]
    if messages and messages[-1]["role"] == "user":
        await session.conversation.send(session.screen, messages[-1]["content"], before=messages[:-1])
    else:
        session.conversation.history.extend(messages)
        session.screen.say("this is part of the conversation now; what do you say to it?")


async def _convert_message(
    session: ConsoleSession, prompt: PromptOffer, message: Mapping[str, Any]
) -> dict[str, str]:
    role = "assistant" if message.get("role") == "assistant" else "user"
    blocks = [as_object(message.get("content"))]
    result = await for_model(session, prompt.server_id, prompt.name, blocks)
    result.untrusted = False  # the person has made these words their own
    return {"role": role, "content": text_of(result)}


# What may follow.


def _complete(prompt: PromptOffer, session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    """The names of the arguments that are not there yet."""
    given, last = _split_arguments(prompt, typed)
    if "=" in last:
        return []
    return [
        Suggestion(f"{argument.name}=", len(last), argument.description or "")
        for argument in prompt.arguments
        if argument.name not in given and argument.name.startswith(last)
    ]


async def _ask(prompt: PromptOffer, session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    """Suggestions of the server for the argument at the end."""
    given, last = _split_arguments(prompt, typed)
    name, equals, value = last.partition("=")
    if not equals or not any(argument.name == name for argument in prompt.arguments):
        return []
    values = await session.completions.of_prompt(session.host, prompt, name, value, given)
    return [Suggestion(_quote_value(found), len(value)) for found in values]


def _split_arguments(prompt: PromptOffer, typed: str) -> tuple[dict[str, str], str]:
    """The arguments that are whole, and what is being typed; that is nothing where no word can end yet."""
    before, _, last = typed.rpartition(" ")
    try:
        return pairs_of(words_of(before), [argument.name for argument in prompt.arguments]), last
    except ArgumentsInvalid:
        return {}, "="


def _quote_value(value: str) -> str:
    """A value as it is typed: in quotes where it would end too early."""
    if not _BLANKS.search(value) and '"' not in value and "'" not in value:
        return value
    return f"'{value}'" if "'" not in value else f'"{value}"'
