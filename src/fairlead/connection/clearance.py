"""The decision that a call may be sent, as the connection that sends it sees it."""

from typing import Final, Protocol

MAX_DECISIONS: Final = 10
"""How often a request is decided again before it counts as one that cannot be sent."""


class Clearance(Protocol):
    """The decision that a call may be sent. It is asked about each time that anything of it is to be sent.

    So whatever a call waited for (a start, a login, an elicitation, a full pipe), what is sent was decided
    since the last wait.
    """

    def stands(self) -> bool:
        """Whether nothing has changed that the decision went by."""
        ...

    async def renew(self) -> None:
        """Decide again. Raises if it may not be sent any more."""
        ...
