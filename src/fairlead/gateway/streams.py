"""Streams that are open, and the tokens they were opened with: they end when that token is refused."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from fairlead.gateway.access import Revoking


class OpenStreams:
    """The requests of a gateway that may last longer than the token they were let in with."""

    def __init__(self) -> None:
        self._open: dict[anyio.CancelScope, str] = {}

    @contextmanager
    def opened(self, token: str | None) -> Generator[None]:
        """Have what is done in the block end when the token is refused. Without a token it ends by itself."""
        with anyio.CancelScope() as scope:
            if token:
                self._open[scope] = token
            try:
                yield
            finally:
                self._open.pop(scope, None)

    async def end_revoked(self, access: Revoking) -> None:
        """End those whose token is refused by now."""
        refused = {token for token in {*self._open.values()} if await access.identify(token) is None}
        for scope in [scope for scope, token in self._open.items() if token in refused]:
            scope.cancel()
