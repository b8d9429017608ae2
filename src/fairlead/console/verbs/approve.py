"""`/approve`."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial

from anyio import to_thread

from fairlead.actions.approvals import (
    APPROVAL_ANSWERS,
    RememberedAnswer,
    answers_in_effect,
    answers_to,
    equal_calls,
    forget_approvals,
    gateways_running,
    give_answer,
    pending_calls,
)
from fairlead.console.session import ConsoleSession, Verb
from fairlead.console.typed_words import Suggestion, suggest
from fairlead.errors import ArgumentsInvalid
from fairlead.terminal.decisions import lines_of_calls

HOW = {
    "once": "allowed once",
    "session": "allowed for this session",
    "always": "always allowed",
    "no": "not allowed",
    "cancel": "cancelled",
}


async def _run(session: ConsoleSession, rest: str) -> None:
    match rest.split():
        case []:
            await _show(session)
        case ["revoke", *numbers]:
            await _revoke(session, " ".join(numbers))
        case [call, word] if word in APPROVAL_ANSWERS:
            await _answer(session, call, word)
        case _:
            hint = f"/approve, /approve CALL {'|'.join(APPROVAL_ANSWERS)}, or /approve revoke N"
            raise ArgumentsInvalid(f"`{rest}` is not understood here", hint=hint)


async def _answer(session: ConsoleSession, call: str, word: str) -> None:
    """Answer a call of an agent that waits at a gateway."""
    gateways = await to_thread.run_sync(gateways_running, session.env)
    given = await to_thread.run_sync(give_answer, session.actions, gateways, call, word)
    for failure in given.failures:
        session.screen.warn(str(failure))
    for notice in given.notices:
        session.screen.warn(notice.message, notice.hint)
    if not given.is_taken:
        raise ArgumentsInvalid(f"no call `{call}` is waiting", hint="`/approve` shows those that are")
    session.screen.say(f"{call}: {HOW[word]}")


async def _show_waiting(session: ConsoleSession) -> None:
    gateways = await to_thread.run_sync(gateways_running, session.env)
    waiting, failures = await to_thread.run_sync(pending_calls, gateways)
    for failure in failures:
        session.screen.warn(str(failure))
    for same in equal_calls(waiting):
        session.screen.say("\n".join(lines_of_calls(same)))
    if waiting:
        words = "|".join(answers_to(waiting))
        session.screen.say(f"waiting at a gateway; `/approve {waiting[0]['id']} {words}` answers")


async def _show(session: ConsoleSession) -> None:
    await _show_waiting(session)
    if session.person.answers:
        rows = [(request.name, HOW[answer], request.reason) for request, answer in session.person.answers]
        session.screen.say("you answered, in this session:")
        session.screen.table(("call", "answer", "reason"), rows)
    holding = await answers_in_effect(session.host.approvals)
    if not holding:
        session.screen.say("no approvals beyond single calls")
        return
    session.screen.say("approved without asking again:")
    numbered = enumerate(holding, start=1)
    rows = [(str(number), one.name, _format_duration(one), one.principal) for number, one in numbered]
    session.screen.table(("", "tool", "how long", "for"), rows)
    session.screen.say("`/approve revoke N` revokes an approval")


async def _revoke(session: ConsoleSession, number: str) -> None:
    holding = await answers_in_effect(session.host.approvals)
    if not number.isdecimal() or not 1 <= int(number) <= len(holding):
        raise ArgumentsInvalid(f"there is no approval `{number}`", hint="`/approve` shows them with numbers")
    gone = holding[int(number) - 1]
    forget = partial(forget_approvals, session.actions, [gone], session.host.approvals)
    for notice in await to_thread.run_sync(forget):
        session.screen.warn(notice.message, notice.hint)
    session.screen.say(f"`{gone.name}` needs approval again")


def _format_duration(answer: RememberedAnswer) -> str:
    if answer.approved_at is None:
        return "this session"
    return f"since {datetime.fromtimestamp(answer.approved_at).astimezone():%Y-%m-%d %H:%M}"


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    return suggest(typed, [("revoke ", "ask about it again")])


VERB = Verb(
    name="approve",
    usage="/approve [call once|session|always|no | revoke N]",
    summary="calls that wait at a gateway, your answers, and remembered approvals",
    run=_run,
    complete=_complete,
)
