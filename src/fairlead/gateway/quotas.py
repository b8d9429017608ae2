"""Quotas of a gateway: how many sessions and streams each token and each principal may have."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

from fairlead.gateway.client_session import ClientSession
from fairlead.gateway.options import GatewayOptions
from fairlead.gateway.services import TokenKey


class Quotas:
    """Counts sessions and streams, and makes room for new sessions.

    Args:
        options: How the gateway runs: they have the quotas.
        live_clients: Returns the clients that count.
    """

    def __init__(self, options: GatewayOptions, live_clients: Callable[[], list[ClientSession]]) -> None:
        self._options = options
        self._live_clients = live_clients
        self._listen_streams: Counter[TokenKey] = Counter()
        """Open streams of `subscriptions/listen`, by principal and token."""
        self._begun: Counter[TokenKey] = Counter()
        """Sessions that are being opened, by principal and token."""

    @asynccontextmanager
    async def room_for_session(self, principal: str, credential: str | None) -> AsyncGenerator[bool]:
        """Make room for a session of a token, to be opened in the block. Yields False where there is none.

        At a quota, idle sessions that count towards it make room: the token's own first, then the principal's
        other ones, the oldest first. Where the gateway is full, other principals lose stateless clients only,
        which come back with their next request.
        """
        own = (principal, credential)
        ended = self._find_room(own)
        if ended is None:
            yield False
            return
        # Counted before anything is awaited: no other task may take the room meanwhile.
        self._begun[own] += 1
        try:
            for client in ended:
                await client.endpoint.end(client)
            yield True
        finally:
            self._begun[own] -= 1
            if not self._begun[own]:
                del self._begun[own]

    def _find_room(self, own: TokenKey) -> list[ClientSession] | None:
        """Return which idle clients to end so that one more fits into every quota; None where none does."""
        clients, options = self._live_clients(), self._options
        ended: list[ClientSession] = []
        quotas: tuple[tuple[int, Callable[[TokenKey], bool]], ...] = (
            (options.max_sessions_of_token, lambda key: key == own),
            (options.max_sessions_of_principal, lambda key: key[0] == own[0]),
            (options.max_sessions, lambda _: True),
        )
        for limit, counts in quotas:
            counted = [client for client in clients if counts(client.token_key) and client not in ended]
            # Sessions that are just being opened count: many at once would otherwise all find the same room.
            opening = sum(number for key, number in self._begun.items() if counts(key))
            excess = len(counted) + opening + 1 - limit
            if excess <= 0:
                continue
            idle = [
                client
                for client in counted
                if client.is_idle
                and not client.is_streaming
                and (client.principal == own[0] or client.family == "stateless")
            ]
            idle.sort(key=lambda client: (client.token_key != own, client.last_used))
            if len(idle) < excess:
                return None
            ended += idle[:excess]
        return ended

    @contextmanager
    def listening_stream(self, owner: TokenKey) -> Generator[bool]:
        """Count a stream of `subscriptions/listen` during the block. Yields False at a quota."""
        streams = self._listen_streams
        of_principal = sum(number for key, number in streams.items() if key[0] == owner[0])
        if (
            streams[owner] >= self._options.max_streams_of_token
            or of_principal >= self._options.max_streams_of_principal
        ):
            yield False
            return
        streams[owner] += 1
        try:
            yield True
        finally:
            streams[owner] -= 1
            if not streams[owner]:
                del streams[owner]
