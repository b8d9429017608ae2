"""Limits for the connections of an HTTP server: deadlines for requests, and room for those with credentials.

A connection counts as unauthenticated until a request on it was let in. Those are few at a time, for each
address and in all; of more, the oldest is closed, so that whoever holds connections open keeps nobody out.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import anyio

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None

HEAD_SECONDS: Final = 10.0
"""How long a connection may take until the head of its first, or next, request is there."""
BODY_SECONDS: Final = 30.0
"""How long a request's body may take."""
STRANGER_IDLE_SECONDS: Final = 10.0
"""How long a connection without credentials may lie idle after an answer."""
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_PER_ADDRESS: Final = 128
MAX_UNAUTHENTICATED: Final = 256

_CONNECTION: Final = "fairlead.connection"
_SWEEP_SECONDS: Final = 1.0
_SHARE_OF_FILES: Final = 4
"""Unauthenticated connections get a quarter of the file descriptors, all together three quarters."""


class OpenConnection:
    """One connection: since when it waits for what."""

    __slots__ = ("_abort", "_limits", "address", "deadline", "is_authenticated", "is_idle")

    def __init__(self, limits: "ConnectionLimits", address: str, abort: Callable[[], None]) -> None:
        self._limits = limits
        self._abort = abort
        self.address = address
        self.is_authenticated = False
        self.is_idle = True
        """Is no request on it being answered?"""
        self.deadline = limits.clock() + HEAD_SECONDS

    def begin_head(self) -> None:
        """The first bytes of a request came."""
        self.deadline = self._limits.clock() + HEAD_SECONDS

    def begin_body(self) -> None:
        """The head of a request is there."""
        self.is_idle = False
        self.deadline = self._limits.clock() + BODY_SECONDS

    def begin_answer(self) -> None:
        """The whole request is there: from now on it waits for us."""
        self.deadline = math.inf

    def end_answer(self) -> None:
        """It may send the next request."""
        self.is_idle = True
        # Who has credentials is left to the server's own keep-alive limit.
        self.deadline = math.inf if self.is_authenticated else self._limits.clock() + STRANGER_IDLE_SECONDS

    def authenticate(self) -> None:
        """A request on it was let in."""
        if not self.is_authenticated:
            self.is_authenticated = True
            self._limits.trust(self)

    def abort(self) -> None:
        """Close it now."""
        self._abort()


class ConnectionLimits:
    """All open connections of one server."""

    def __init__(
        self,
        *,
        max_per_address: int = MAX_PER_ADDRESS,
        max_unauthenticated: int = MAX_UNAUTHENTICATED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        files = _max_open_files()
        self.clock = clock
        self._max_unauthenticated = max(8, min(max_unauthenticated, files // _SHARE_OF_FILES))
        self._max_per_address = min(max_per_address, self._max_unauthenticated)
        self._max_open = max(16, files * (_SHARE_OF_FILES - 1) // _SHARE_OF_FILES)
        self._strangers: dict[OpenConnection, None] = {}
        """Unauthenticated ones, the oldest first."""
        self._trusted: dict[OpenConnection, None] = {}
        self._by_address: Counter[str] = Counter()

    def open(self, address: str, abort: Callable[[], None]) -> OpenConnection:
        """Count a new connection; where there are too many, close the oldest of those without credentials."""
        if self._by_address[address] >= self._max_per_address:
            self._close_oldest(address)
        elif len(self._strangers) >= self._max_unauthenticated:
            self._close_oldest(None)
        if len(self._strangers) + len(self._trusted) >= self._max_open:
            self._close_idle()
        connection = OpenConnection(self, address, abort)
        self._strangers[connection] = None
        self._by_address[address] += 1
        return connection

    def trust(self, connection: OpenConnection) -> None:
        """Count a connection among those with credentials."""
        if self._forget_stranger(connection):
            self._trusted[connection] = None

    def close(self, connection: OpenConnection) -> None:
        """Count a connection no more."""
        self._forget_stranger(connection)
        self._trusted.pop(connection, None)

    async def sweep(self) -> None:
        """Close connections whose time is up, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            now = self.clock()
            for connection in [*self._strangers, *self._trusted]:
                if connection.deadline < now:
                    self._abort(connection)

    def _close_oldest(self, address: str | None) -> None:
        oldest = next((one for one in self._strangers if address is None or one.address == address), None)
        if oldest is not None:
            self._abort(oldest)

    def _close_idle(self) -> None:
        idle = next((one for one in (*self._strangers, *self._trusted) if one.is_idle), None)
        if idle is not None:
            self._abort(idle)

    def _abort(self, connection: OpenConnection) -> None:
        self.close(connection)
        connection.abort()

    def _forget_stranger(self, connection: OpenConnection) -> bool:
        if connection not in self._strangers:
            return False
        del self._strangers[connection]
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        return True


def attach(scope: MutableMapping[str, Any], connection: OpenConnection) -> None:
    """Say in an ASGI scope which connection its request came on."""
    scope[_CONNECTION] = connection


def mark_authenticated(scope: MutableMapping[str, Any]) -> None:
    """Note that a request was let in: its connection is not closed to make room for strangers."""
    connection: OpenConnection | None = scope.get(_CONNECTION)
    if connection is not None and not connection.is_authenticated:
        connection.authenticate()


def _max_open_files() -> int:
    if resource is None:
        return 8192
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
