"""One request to a server on its way: whether it may be sent, its progress and its outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mcp.shared.dispatcher import ProgressFnT
from mcp_types import RequestId

from fairlead.connection.deadlines import Deadline
from fairlead.connection.outcomes import DecisionOutdated, NotSent, RequestExpired, RequestFailed
from fairlead.connection.transport.messages import Progress
from fairlead.errors import Delivery
from fairlead.jsonrpc.frames import Frame

logger = logging.getLogger(__name__)

MAX_WAITING_REPORTS = 32
MAX_REPORTING_SECONDS = 1.0
"""How long an answer waits for a callback that is still busy with the progress before it."""


class ProgressReports:
    """One request's progress on its way to the callback: one report at a time, in order, the latest kept."""

    def __init__(self, callback: ProgressFnT) -> None:
        self._callback = callback
        self._waiting: deque[Progress] = deque(maxlen=MAX_WAITING_REPORTS)
        self._delivered: asyncio.Future[None] | None = None  # of the delivery under way

    def put(self, report: Progress) -> bool:
        """Add a report. True means that `deliver` is to be started."""
        self._waiting.append(report)
        if self._delivered is not None:
            return False
        self._delivered = asyncio.get_running_loop().create_future()
        return True

    async def deliver(self) -> None:
        """Hand the waiting reports to the callback, whose errors stay its own."""
        try:
            while self._waiting:
                report = self._waiting.popleft()
                try:
                    await self._callback(report.progress, report.total, report.message)
                except Exception:
                    logger.exception("a progress callback raised")
        finally:
            assert self._delivered is not None
            self._delivered.set_result(None)
            self._delivered = None

    async def finish(self) -> None:
        """Wait until the callback has had all reports, or hangs. Afterwards it is given no more."""
        if self._delivered is not None:
            await asyncio.wait((self._delivered,), timeout=MAX_REPORTING_SECONDS)
            self._waiting.clear()


@dataclass(slots=True, eq=False)
class Call:
    """One of our requests in flight. `answer` is done once there is a result or an error."""

    id: RequestId
    method: str
    answer: asyncio.Future[Frame | RequestFailed]
    on_progress: ProgressFnT | None = None
    reports: ProgressReports | None = None
    """There once there is something to report."""
    deadline: Deadline | None = None
    may_send: Callable[[], bool] | None = None
    """Whether the decision that it may be sent still holds; None for what nothing decides about."""
    sent: bool = False

    @property
    def delivery(self) -> Delivery:
        """The delivery of the request while it has no answer."""
        return "unknown" if self.sent else "not_sent"

    def begin_sending(self) -> None:
        """Note that the server may see the request from now on.

        Raises:
            NotSent: The call is over. Its caller was told that nothing was sent, and may send it again.
            DecisionOutdated: What decided about it has changed.
        """
        if self.answer.done():
            raise NotSent("the call ended before it was sent")
        self.require_decision()
        self.sent = True

    def require_decision(self) -> None:
        """Raise `DecisionOutdated` if what decided that it may be sent has changed.

        Every transport asks this when it has nothing more to wait for: a full pipe, a connection, a token.
        """
        if self.may_send is not None and not self.may_send():
            raise DecisionOutdated

    def settle(self, outcome: Frame | RequestFailed) -> None:
        """End the call; the first outcome counts."""
        if not self.answer.done():
            self.answer.set_result(outcome)

    def expire(self, seconds: float) -> None:
        """End the call because its time is up."""
        self.settle(RequestExpired(self.method, seconds, self.delivery))
