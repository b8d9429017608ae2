"""Calls, audit records and logs for pages that are being watched, and cancelling of calls."""

import logging
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from anyio import Lock, to_thread

from fairlead.actions.audit_log import read_audit_log
from fairlead.actions.context import ActionContext, Notice, RunningConfiguration
from fairlead.actions.logs import LogReader, server_log
from fairlead.actions.running_calls import cancel_call
from fairlead.catalog.sanitize import gate
from fairlead.config.store_location import StoreLocation, store_location
from fairlead.errors import ConfigError, StoreError
from fairlead.host.host import Host
from fairlead.policy.audit import AuditQuery, AuditRecord
from fairlead.store.opening import open_database
from fairlead.web.call_history import CallHistory
from fairlead.web.live import Activity

GATEWAY_LINES: Final = 2_000
"""How many lines of the gateway's own log are kept for the dashboard."""
_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundLines:
    """Lines of a log, the oldest first."""

    lines: Sequence[str]
    matching: int
    """How many lines fit what was searched for; the last of them are shown."""
    total: int


class GatewayLog(logging.Handler):
    """Handler that keeps the last lines of this program's log, whose terminal may be closed by now."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[str] = deque(maxlen=GATEWAY_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Store a record as a line."""
        then = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        parts = [f"{then} {record.levelname.lower()}: {record.getMessage()}"]
        parts += [f"{name}={value}" for name, value in vars(record).items() if name not in _OWN_FIELDS]
        if record.exc_info and record.exc_info[1] is not None:
            parts.append(f"error={record.exc_info[1]!r}")
        self.lines.append(gate.log_line(" ".join(parts)))

    @contextmanager
    def keep(self) -> Generator[None]:
        """Keep what is logged for the length of the block."""
        own = logging.getLogger("fairlead")
        own.addHandler(self)
        try:
            yield
        finally:
            own.removeHandler(self)


class Watch:
    """Calls, audit records and logs of one host."""

    def __init__(
        self, host: Host, configuration: RunningConfiguration, env: Mapping[str, str], activity: Activity
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._env = env
        self._activity = activity
        self._history = CallHistory()
        self._reading = Lock()
        self.log = GatewayLog()

    # Calls.

    async def history(self) -> CallHistory:
        """The calls of the last day, up to now."""
        if self._host.store is not None:
            await self._host.store.flush()

            def read() -> None:
                with open_database(self._location) as database:
                    self._history.read(database, time.time())

            async with self._reading:
                await to_thread.run_sync(read)
        return self._history

    async def warm_up(self) -> None:
        """Read the calls of the last day before anyone looks: the first page need not wait for it."""
        try:
            await self.history()
        except StoreError:
            logger.warning("the calls of the last day cannot be read", exc_info=True)

    async def cancel(self, context: ActionContext, call_id: int) -> tuple[str, Sequence[Notice]]:
        """Cancel a call that is under way. Returns its name, and what the user should know."""
        call = next((each for each in self._activity.running if each.call_id == call_id), None)
        if call is None:
            raise ConfigError("that call is over", hint="load the page again")
        notices = await cancel_call(
            context,
            self._host,
            call_id,
            server_id=call.server_id,
            tool=call.tool,
            principal=call.principal,
        )
        for notice in notices:
            logger.warning("after an action in the dashboard", extra={"notice": notice.message})
        return f"{call.server_id}.{call.tool}", notices

    # Audit records.

    async def audit(self, wanted: AuditQuery, limit: int, *, every: bool = False) -> Sequence[AuditRecord]:
        """The last records, the newest first: one for each call, or with `every` each stored one."""
        if self._host.store is None:
            return ()
        return (await read_audit_log(self._host, self._location, wanted, limit, every=every))[::-1]

    # Logs.

    async def find_lines(self, server_id: str | None, query: str, limit: int) -> FoundLines:
        """The last lines of a server's log, or the gateway's, that contain a text; without one, all."""
        if server_id is None:
            return _find([*self.log.lines], query, limit)
        self._configuration.loaded.server(server_id)  # raises where there is none
        path = server_log(self._env, server_id)

        def read() -> FoundLines:
            text = "\n".join(LogReader(path).tail() or ())
            return _find(gate.log_text(text.encode()).splitlines(), query, limit)

        return await to_thread.run_sync(read)

    @property
    def _location(self) -> StoreLocation:
        return store_location(self._env, self._configuration.loaded.config.store)


def _find(lines: Sequence[str], query: str, limit: int) -> FoundLines:
    wanted = query.casefold()
    found = [line for line in lines if wanted in line.casefold()] if wanted else lines
    return FoundLines(lines=found[-limit:], matching=len(found), total=len(lines))
