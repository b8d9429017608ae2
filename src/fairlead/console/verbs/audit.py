"""`/audit`."""

from typing import Final

from fairlead.actions.audit_log import read_audit_log
from fairlead.config.store_location import store_location
from fairlead.console.session import ConsoleSession, Verb
from fairlead.errors import ArgumentsInvalid
from fairlead.policy.audit import AuditQuery
from fairlead.terminal.tables import COLUMNS, audit_row

SHOWN: Final = 10
MOST_SHOWN: Final = 1000


async def _run(session: ConsoleSession, rest: str) -> None:
    if rest and not (rest.isdecimal() and 1 <= int(rest) <= MOST_SHOWN):
        raise ArgumentsInvalid(f"`{rest}` is no number of records", hint=f"/audit N, up to {MOST_SHOWN:,}")
    location = store_location(session.env, session.loaded.config.store)
    calls = await read_audit_log(session.host, location, AuditQuery(), int(rest or SHOWN))
    if calls:
        session.screen.table(COLUMNS, [audit_row(call) for call in calls])
    else:
        session.screen.say("nothing was recorded yet")


VERB = Verb(
    name="audit",
    usage="/audit [n]",
    summary="the latest records of the audit log",
    run=_run,
)
