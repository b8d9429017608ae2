"""States of servers and clients in the other workers, so that each worker can report the whole gateway."""

import logging
import time
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from fairlead.gateway.client_session import SessionInfo
from fairlead.gateway.workers.member import PoolMember
from fairlead.host.server_status import ServerStatus, combine_processes

STATE: Final = "state"
"""The question for the state of a worker."""
CLOSE_SERVER: Final = "close server"
"""The request to end all connections to a server."""
FRESH_SECONDS: Final = 5.0
"""How long what a worker said of itself is shown."""

logger = logging.getLogger(__name__)


class OwnState(Protocol):
    """The gateway of this worker."""

    def status(self) -> list[ServerStatus]:
        """The state of every server."""
        ...

    def sessions(self) -> list[SessionInfo]:
        """All client sessions."""
        ...

    async def close_server_here(self, server_id: str) -> None:
        """End every connection that this process has to a server."""
        ...


class _WorkerState(msgspec.Struct, frozen=True):
    """State of one worker, as it reports it."""

    servers: tuple[ServerStatus, ...]
    sessions: tuple[SessionInfo, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_WorkerState).decode


class PeerStates:
    """The states of the other workers, as of the last refresh."""

    def __init__(self, own: OwnState, member: PoolMember) -> None:
        self._own = own
        self._member = member
        self._states: list[_WorkerState] = []
        self._asked_at = 0.0
        self._is_answering = False
        member.answer(STATE, self._describe)
        member.answer(CLOSE_SERVER, self._close_server)

    async def refresh(self) -> None:
        """Request the states of the other workers again."""
        answers = await self._member.ask_peers(STATE)
        self._states = [_decode(answer) for answer in answers if answer]
        self._asked_at = time.monotonic()

    async def close_server(self, server_id: str) -> None:
        """Have them end every connection to a server."""
        await self._member.ask_peers(CLOSE_SERVER, server_id)

    def combine(self, own: list[ServerStatus]) -> list[ServerStatus]:
        """The state of every server over all workers."""
        if not self._current:
            return own
        others = [{status.server_id: status for status in state.servers} for state in self._current]
        return [
            combine_processes(each, [known[each.server_id] for known in others if each.server_id in known])
            for each in own
        ]

    @property
    def sessions(self) -> Sequence[SessionInfo]:
        """The client sessions of the others."""
        return [session for state in self._current for session in state.sessions]

    @property
    def _current(self) -> list[_WorkerState]:
        is_fresh = time.monotonic() - self._asked_at < FRESH_SECONDS
        return self._states if is_fresh and not self._is_answering else []

    async def _describe(self, _: str) -> str:
        self._is_answering = True  # what this worker says is its own alone
        try:
            state = _WorkerState(servers=tuple(self._own.status()), sessions=tuple(self._own.sessions()))
        finally:
            self._is_answering = False
        return _encode(state).decode()

    async def _close_server(self, server_id: str) -> str:
        await self._own.close_server_here(server_id)
        return ""
