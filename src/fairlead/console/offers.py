"""What the verbs for resources and prompts share: which of them are wanted, and who could not say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fairlead.console.session import Session
from fairlead.errors import FairleadError

MOST_EXAMPLES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a person wants to see: of one server or of all, with these words in it or any."""

    server_id: str | None
    words: tuple[str, ...]

    @classmethod
    def read(cls, session: Session, typed: str) -> Self:
        """Read `[server] [query]`. A first word that is no server belongs to the query."""
        first, *others = typed.split() or [""]
        if first in server_names(session):
            return cls(server_id=first, words=tuple(word.casefold() for word in others))
        return cls(server_id=None, words=tuple(word.casefold() for word in typed.split()))

    def fits(self, *texts: str | None) -> bool:
        """Are all the words somewhere in these texts?"""
        whole = "\n".join(text for text in texts if text).casefold()
        return all(word in whole for word in self.words)


def server_names(session: Session) -> list[str]:
    """The servers that are switched on."""
    return [status.server_id for status in session.host.status() if status.enabled]


def show_failures(session: Session, failures: Mapping[str, FairleadError]) -> None:
    """Say which servers could not be asked, and why."""
    for failure in failures.values():
        session.screen.warn(str(failure), failure.hint)


def show_examples(session: Session, values: Sequence[str]) -> None:
    """Say what a server suggests for something that is about to be asked for."""
    if values:
        more = " …" if len(values) > MOST_EXAMPLES else ""
        session.screen.say(f"  for example: {', '.join(values[:MOST_EXAMPLES])}{more}")
