"""Calls that wait for a person's word: asked here, answered wherever a person looks."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from fairlead.errors import ApprovalRequired
from fairlead.host.operator import ApprovalAnswer, ApprovalQuestion

PATIENCE_SECONDS = 120.0
"""How long a call waits for a person who may not be looking."""


@dataclass(eq=False, kw_only=True, slots=True)
class Pending:
    """A call that waits."""

    id: str
    question: ApprovalQuestion
    created: float
    """In seconds since 1970."""
    answer: ApprovalAnswer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event, repr=False)


class PendingApprovals:
    """The calls of a gateway that wait for a person's word."""

    def __init__(
        self, seconds: float = PATIENCE_SECONDS, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.seconds = seconds
        self.on_change = on_change
        """Called whenever a call begins to wait, or waits no more."""
        self.is_watched = True
        """Is there a way to see what waits: a dashboard, or a gateway that commands can ask?"""
        self._waiting: dict[str, Pending] = {}

    def pending(self, principal: str | None = None) -> Sequence[Pending]:
        """Those that wait, the oldest first: all, or those made for one principal."""
        return [call for call in self._waiting.values() if principal in (None, call.question.principal)]

    def answer(self, id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:  # noqa: A002 - what it is called everywhere
        """Give the word. False where nobody waits for it any more, or it is another's to give."""
        call = self._waiting.get(id)
        if call is None or principal not in (None, call.question.principal):
            return False
        call.answer = answer
        call.answered.set()
        return True

    async def ask(self, question: ApprovalQuestion) -> ApprovalAnswer:
        """Wait for a person's word. Raises `ApprovalRequired` where it does not come in time, or cannot."""
        if not self.is_watched:
            message = f"must be approved, and there is no one to ask: {question.reason}"
            raise ApprovalRequired(f"`{question.server_id}/{question.tool}` {message}", hint=question.hint)
        call = Pending(id=secrets.token_hex(8), question=question, created=time.time())
        self._waiting[call.id] = call
        self.on_change()
        try:
            with anyio.move_on_after(self.seconds):
                await call.answered.wait()
        finally:
            del self._waiting[call.id]
            self.on_change()
        if call.answer is None:
            name = f"{question.server_id}/{question.tool}"
            message = f"`{name}` was not called: no one approved it in {self.seconds:g} s: {question.reason}"
            raise ApprovalRequired(message, hint=_hint(question))
        return call.answer


def _hint(question: ApprovalQuestion) -> str:
    """How the user approves the next such call, and what settles it for good."""
    ways = "its user can approve it in the gateway's dashboard, or with `fairlead approvals`"
    return f"{ways}; {question.hint}" if question.hint else ways
