"""`/approve`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fairlead.console.session import Session
from fairlead.console.verb import Suggestion, Verb, fitting
from fairlead.errors import ArgumentsInvalid

HOW = {
    "once": "allowed once",
    "session": "allowed for this session",
    "always": "allowed for good",
    "no": "not allowed",
    "cancel": "cancelled",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """A yes that holds for later calls, and can be taken back."""

    key: str
    server_id: str
    tool: str
    lasts: str
    principal: str


async def _run(session: Session, rest: str) -> None:
    word, _, number = rest.partition(" ")
    match word:
        case "":
            await _show(session)
        case "revoke":
            await _revoke(session, number.strip())
        case _:
            raise ArgumentsInvalid(f"`{rest}` is not understood here", hint="/approve, or /approve revoke N")


async def _show(session: Session) -> None:
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


async def _revoke(session: Session, number: str) -> None:
    holding = await _holding(session)
    if not number.isdecimal() or not 1 <= int(number) <= len(holding):
        raise ArgumentsInvalid(f"there is no approval `{number}`", hint="`/approve` shows them with numbers")
    gone = holding[int(number) - 1]
    await session.host.approvals.forget(gone.key)
    session.screen.say(f"`{gone.server_id}/{gone.tool}` is asked about again")


async def _holding(session: Session) -> list[Holding]:
    """What need not be asked about: for this session first, then for good."""
    approvals = session.host.approvals
    now = [
        Holding(
            key=one.key,
            server_id=one.server_id,
            tool=one.tool,
            lasts="this session",
            principal=one.principal,
        )
        for one in approvals.of_session()
    ]
    for_good = [
        Holding(
            key=key,
            server_id=kept.server_id,
            tool=kept.tool,
            lasts=f"since {datetime.fromtimestamp(kept.approved_at).astimezone():%Y-%m-%d %H:%M}",
            principal=kept.principal,
        )
        for key, kept in await approvals.kept()
    ]
    return now + for_good


def _complete(session: Session, typed: str) -> Iterable[Suggestion]:
    return fitting(typed, [("revoke ", "ask about it again")])


VERB = Verb(
    name="approve",
    usage="/approve [revoke N]",
    summary="what you answered about calls, and what is not asked about any more",
    run=_run,
    complete=_complete,
)
