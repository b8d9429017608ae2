"""How a connection has somebody log in, and how often."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fairlead.errors import AuthRequired

MAX_STEP_UPS = 2

LogIn: TypeAlias = Callable[[AuthRequired], Awaitable[None]]
"""Has somebody log in, as a server wants it, or raises."""


class LoginCount:
    """How often somebody was asked to log in for one purpose: once, and for more rights twice more."""

    def __init__(self) -> None:
        self._logins = self._step_ups = 0

    def add(self, error: AuthRequired) -> None:
        """Count what a server asks for. Raises it where it was asked for often enough."""
        if error.wants_more:
            self._step_ups += 1
        else:
            self._logins += 1
        if self._logins > 1 or self._step_ups > MAX_STEP_UPS:
            raise error
