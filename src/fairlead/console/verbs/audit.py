"""`/audit`."""

from pathlib import Path
from typing import Final

from anyio import to_thread

from fairlead.config.paths import store_file
from fairlead.console.session import ConsoleSession, Verb
from fairlead.errors import ArgumentsInvalid
from fairlead.policy.audit import AuditQuery, AuditRecord, latest_calls
from fairlead.store.sqlite import Database
from fairlead.terminal.tables import COLUMNS, audit_row

SHOWN: Final = 10
MOST_SHOWN: Final = 1000


async def _run(session: ConsoleSession, rest: str) -> None:
    if rest and not (rest.isdecimal() and 1 <= int(rest) <= MOST_SHOWN):
        raise ArgumentsInvalid(f"`{rest}` is no number of records", hint=f"/audit N, up to {MOST_SHOWN:,}")
    if session.host.store is not None:
        await session.host.store.flush()  # what has just happened counts too
    path = store_file(session.env, session.loaded.config.store.path)
    calls = await to_thread.run_sync(_latest, path, int(rest or SHOWN))
    if calls:
        session.screen.table(COLUMNS, [audit_row(call) for call in calls])
    else:
        session.screen.say("nothing was recorded yet")


def _latest(path: Path, limit: int) -> list[AuditRecord]:
    if not path.exists():
        return []
    with Database.open(path) as database:
        return latest_calls(database, AuditQuery(), limit)


VERB = Verb(
    name="audit",
    usage="/audit [n]",
    summary="the latest records of the audit log",
    run=_run,
)
