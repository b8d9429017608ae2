"""What a host is doing and has done since it started, gathered from its events."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from fairlead.events import CallFinished, CallProgressed, CallStarted, Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningCall:
    """A call that its server has not answered yet."""

    server_id: str
    tool: str
    since: float
    progress: str = ""


class Activity:
    """The calls under way, and how many went how. This hears of every call, so it does little."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[CallStarted, float]] = {}
        self._progressed: dict[int, CallProgressed] = {}
        self.finished: Counter[tuple[str, str]] = Counter()
        """How many calls to a server ended in what: `ok`, `tool_error`, or the code of an error."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long the calls to a server took, all together."""

    @property
    def running(self) -> tuple[RunningCall, ...]:
        """The calls under way, the oldest first."""
        return tuple(
            RunningCall(
                server_id=call.server_id,
                tool=call.tool,
                since=since,
                progress=_progress(self._progressed.get(call.call_id)),
            )
            for call, since in self._started.values()
        )

    def note(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case CallStarted():
                self._started[event.call_id] = (event, time.time())
            case CallFinished():
                self._started.pop(event.call_id, None)
                self._progressed.pop(event.call_id, None)
                outcome = event.error or ("tool_error" if event.is_error else "ok")
                self.finished[event.server_id, outcome] += 1
                self.seconds[event.server_id] += event.seconds
            case CallProgressed() if event.call_id in self._started:
                self._progressed[event.call_id] = event
            case _:
                pass


def _progress(event: CallProgressed | None) -> str:
    if event is None:
        return ""
    share = f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
    return f"{share}: {event.message}" if event.message else share
