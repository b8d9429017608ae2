"""Confirmations: what was done, said once, on the next page that the same session opens."""

from collections import OrderedDict
from typing import Final, Protocol

MAX_KEPT: Final = 1000


class Visitor(Protocol):
    """What tells one session from another."""

    @property
    def form_token(self) -> str:
        """A secret that only pages of the session have."""
        ...


class Messages:
    """The messages that no page has shown yet, the latest for each session."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, str] = OrderedDict()

    def put(self, visit: Visitor, text: str) -> None:
        """Have the next page of the session say this."""
        self._waiting[visit.form_token] = text
        if len(self._waiting) > MAX_KEPT:
            self._waiting.popitem(last=False)

    def take(self, visit: Visitor) -> str | None:
        """What the page that is made now has to say."""
        return self._waiting.pop(visit.form_token, None)
