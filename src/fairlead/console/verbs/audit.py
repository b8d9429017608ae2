"""`/audit`."""

from typing import Final

from anyio import to_thread

from fairlead.config.store_location import StoreLocation, store_location
from fairlead.console.session import ConsoleSession, Verb
from fairlead.errors import ArgumentsInvalid
from fairlead.policy.audit import AuditQuery, AuditRecord, latest_calls
from fairlead.store.opening import open_database
from fairlead.terminal.tables import COLUMNS, audit_row

SHOWN: Final = 10
MOST_SHOWN: Final = 1000


async def _run(session: ConsoleSession, rest: str) -> None:
    if rest and not (rest.isdecimal() and 1 <= int(rest) <= MOST_SHOWN):
        raise ArgumentsInvalid(f"`{rest}` is no number of records", hint=f"/audit N, up to {MOST_SHOWN:,}")
    if session.host.store is not None:
        await session.host.store.flush()  # what has just happened counts too
    location = store_location(session.env, session.loaded.config.store)
    calls = await to_thread.run_sync(_latest, location, int(rest or SHOWN))
    if calls:
        session.screen.table(COLUMNS, [audit_row(call) for call in calls])
    else:
        session.screen.say("nothing was recorded yet")


def _latest(location: StoreLocation, limit: int) -> list[AuditRecord]:
    if not location.exists():
        return []
    with open_database(location) as database:
        return latest_calls(database, AuditQuery(), limit)


VERB = Verb(
    name="audit",
    usage="/audit [n]",
    summary="the latest records of the audit log",
    run=_run,
)
