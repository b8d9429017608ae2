"""Pages that clients were given to open, so that they hear when all is done there, and nobody else does."""

from typing import Final
from uuid import uuid4

from fairlead.gateway.turns import Turn
from fairlead.host.operator import UrlQuestion

MAX_PAGES: Final = 1_000
"""How many are remembered; the oldest are forgotten first, for a server need not say that all is done."""


class GivenPages:
    """Which client was given which page of which server, and under which name."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[tuple[str, str], Turn]] = {}

    def given(self, turn: Turn, question: UrlQuestion) -> str:
        """The name under which a client is given a page: one of ours, which no two servers choose alike."""
        name = uuid4().hex
        if question.elicitation_id is not None:
            if len(self._given) == MAX_PAGES:
                del self._given[next(iter(self._given))]
            self._given[name] = ((question.server_id, question.elicitation_id), turn)
        return name

    def completed(self, server_id: str, elicitation_id: str) -> list[tuple[Turn, str]]:
        """Who is to hear that all is done on a page, and by which name. They are told once."""
        page = (server_id, elicitation_id)
        told = [(turn, name) for name, (given, turn) in self._given.items() if given == page]
        for _, name in told:
            del self._given[name]
        return told
