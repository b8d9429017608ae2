"""Load of this process, measured when it announces itself: processor time, memory, requests, connections."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fairlead.gateway.cluster.replicas import ReplicaDetails

MINUTE: Final = 60.0
CPU_SECONDS: Final = 10.0
"""Over how long processor time is measured."""
MOST_SERVERS: Final = 200
"""How many owned servers are named: an announcement is written every other second."""

_STATM: Final = Path("/proc/self/statm")


class LoadMeter:
    """Load of this process lately. It is measured only on demand, and requests are counted as they end.

    Args:
        name: What the process is called among others; the name of its machine if not given.
        clock: Seconds that only grow.
        cpu_clock: Processor time of this process, in seconds.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.name = name or socket.gethostname()
        self.ended = 0
        """Requests that ended so far: increased with each."""
        self.count_connections: Callable[[], int] = lambda: 0
        """Returns how many connections are open. Set by what listens."""
        self.has_required: Callable[[], bool] = lambda: True
        """Returns whether every required server is ready. Set by what knows the configuration."""
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._samples: deque[tuple[float, int, float]] = deque([(clock(), 0, cpu_clock())])

    def measure(self, servers: Sequence[str] = ()) -> ReplicaDetails:
        """Measure the load, to be announced.

        Args:
            servers: The ids of the servers that this process owns.
        """
        now, cpu = self._clock(), self._cpu_clock()
        # The first sample that stays is the last one that is a minute old: what came after it counts.
        while len(self._samples) > 1 and self._samples[1][0] <= now - MINUTE:
            self._samples.popleft()
        before = self._samples[0][1]
        recent = next((each for each in reversed(self._samples) if each[0] <= now - CPU_SECONDS), None)
        then, _, cpu_then = recent or self._samples[0]
        share = 100 * (cpu - cpu_then) / (now - then) if now > then else 0.0
        self._samples.append((now, self.ended, cpu))
        return ReplicaDetails(
            name=self.name,
            pid=os.getpid(),
            is_ready=self.has_required(),
            connections=self.count_connections(),
            requests_in_minute=self.ended - before,
            cpu_percent=round(share, 1),
            memory_bytes=_resident_bytes(),
            servers=tuple(servers[:MOST_SERVERS]),
        )


def _resident_bytes() -> int | None:
    """The memory of this process that is in RAM; None where there is no `/proc`."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
