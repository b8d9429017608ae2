"""`/approve`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from anyio import to_thread

from fairlead.actions.approvals import (
    ANSWERS,
    answers_to,
    equal_calls,
    gateways_running,
    give_answer,
    pending_calls,
)
from fairlead.console.session import ConsoleSession
from fairlead.console.verb import Suggestion, Verb, fitting
from fairlead.errors import ArgumentsInvalid
from fairlead.policy.approvals import by_tool
from fairlead.terminal.decisions import lines_of_calls

HOW = {
    "once": "allowed once",
    "session": "allowed for this session",
    "always": "always allowed",
    "no": "not allowed",
    "cancel": "cancelled",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedAnswer:
    """A yes that holds for later calls, and can be taken back."""

    keys: Sequence[str]
    server_id: str
    tool: str
    lasts: str
    principal: str


async def _run(session: ConsoleSession, rest: str) -> None:
    match rest.split():
        case []:
            await _show(session)
        case ["revoke", *numbers]:
            await _revoke(session, " ".join(numbers))
        case [call, word] if word in ANSWERS:
            await _answer(session, call, word)
        case _:
            hint = f"/approve, /approve CALL {'|'.join(ANSWERS)}, or /approve revoke N"
            raise ArgumentsInvalid(f"`{rest}` is not understood here", hint=hint)


async def _answer(session: ConsoleSession, call: str, word: str) -> None:
    """Answer a call of an agent that waits at a gateway."""
    gateways = await to_thread.run_sync(gateways_running, session.env)
    is_taken, failures = await to_thread.run_sync(give_answer, gateways, call, word)
    for failure in failures:
        session.screen.warn(str(failure))
    if not is_taken:
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
        rows = [
            (f"{question.server_id}/{question.tool}", HOW[answer], question.reason)
            for question, answer in session.person.answers
        ]
        session.screen.say("you answered, in this session:")
        session.screen.table(("call", "answer", "asked because"), rows)
    holding = await _holding(session)
    if not holding:
        session.screen.say("nothing is allowed beyond the call that was asked about")
        return
    session.screen.say("not asked about any more:")
    numbered = enumerate(holding, start=1)
    rows = [
        (str(number), f"{one.server_id}/{one.tool}", one.lasts, one.principal) for number, one in numbered
    ]
    session.screen.table(("", "tool", "how long", "for"), rows)
    session.screen.say("`/approve revoke N` has you asked again")


async def _revoke(session: ConsoleSession, number: str) -> None:
    holding = await _holding(session)
    if not number.isdecimal() or not 1 <= int(number) <= len(holding):
        raise ArgumentsInvalid(f"there is no approval `{number}`", hint="`/approve` shows them with numbers")
    gone = holding[int(number) - 1]
    for key in gone.keys:
        await session.host.approvals.forget(key)
    record = partial(session.actions.record, "forget approval", gone.server_id, tool=gone.tool)
    await to_thread.run_sync(record)
    session.screen.say(f"`{gone.server_id}/{gone.tool}` is asked about again")


async def _holding(session: ConsoleSession) -> list[RememberedAnswer]:
    """What need not be asked about: for this session first, then for good."""
    approvals = session.host.approvals
    now = [
        RememberedAnswer(
            keys=(one.key,),
            server_id=one.server_id,
            tool=one.tool,
            lasts="this session",
            principal=one.principal,
        )
        for one in approvals.of_session()
    ]
    for_good = [
        RememberedAnswer(
            keys=keys,
            server_id=kept.server_id,
            tool=kept.tool,
            lasts=f"since {datetime.fromtimestamp(kept.approved_at).astimezone():%Y-%m-%d %H:%M}",
            principal=kept.principal,
        )
        for keys, kept in by_tool(await approvals.kept())
    ]
    return now + for_good


def _complete(session: ConsoleSession, typed: str) -> Iterable[Suggestion]:
    return fitting(typed, [("revoke ", "ask about it again")])


VERB = Verb(
    name="approve",
    usage="/approve [call once|session|always|no | revoke N]",
    summary="calls that wait at a gateway, your answers, and what is not asked about any more",
    run=_run,
    complete=_complete,
)
