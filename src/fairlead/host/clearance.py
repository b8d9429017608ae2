"""Decisions that calls may be sent, renewed when what they went by changes while a call waits.

A call waits for many things after it was decided about: a queue, a start, a login, a list, a token, a full
pipe, the user's answer to an elicitation. Each time that anything of it is to be sent, the transport asks its
clearance, when there is nothing left to wait for, and the connection renews one that no longer stands.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from fairlead.errors import CallDenied
from fairlead.host.permission import (
    CallPermission,
    CallToDecide,
    Permit,
    ProposedCall,
    approval_of,
    denial,
)
from fairlead.policy.decision import CallPolicy
from fairlead.policy.quarantine import ScreenedListing

FIRST_FRESH_SECONDS: Final = 1.0
"""How long an earlier answer holds without a look into the store, where another process may withdraw it."""
FRESHER: Final = 10.0
"""How many times as long it holds after each look, for a connection that always takes longer than that."""


class CallClearance:
    """The decision that one call may be sent.

    Args:
        proposal: The call.
        arguments: Its arguments as they are sent.
        policy: The policy that decided about it.
        screened: The listing whose definition was decided about.
        permit: Who permitted it; None where policy allows the tool with any arguments.
        permission: Decides about calls.
        look_into: Checks consent, a listing of this run and quarantine, as before a first call.
    """

    __slots__ = (
        "_arguments",
        "_decided_at",
        "_fresh_seconds",
        "_look_into",
        "_permission",
        "_permit",
        "_policy",
        "_proposal",
        "_screened",
    )

    def __init__(  # noqa: PLR0913 - what a decision goes by
        self,
        proposal: ProposedCall,
        arguments: Mapping[str, Any] | msgspec.Raw,
        policy: CallPolicy | None,
        screened: ScreenedListing | None,
        permit: Permit | None,
        permission: CallPermission,
        look_into: Callable[[ProposedCall], Awaitable[None]],
    ) -> None:
        self._proposal = proposal
        self._arguments = arguments
        self._policy = policy
        self._screened = screened
        self._permit = permit
        self._permission = permission
        self._look_into = look_into
        self._fresh_seconds = FIRST_FRESH_SECONDS
        self._decided_at = 0.0 if permit is None else time.monotonic()

    def stands(self) -> bool:
        """Whether nothing has changed that the decision went by."""
        managed = self._proposal.managed
        return (
            managed.policy is self._policy
            and managed.screened is self._screened
            and not (managed.is_retired or managed.awaits_consent or managed.is_unchecked)
            and (self._permit is None or self._permit.by != "earlier answer" or self._is_fresh)
        )

    @property
    def _is_fresh(self) -> bool:
        return time.monotonic() - self._decided_at < self._fresh_seconds

    async def renew(self) -> None:
        """Decide again, by what is in force now.

        Raises:
            CallDenied: It may not be made any more, or what permitted it does not hold any more.
            UnknownTool: Its definition cannot be used.
            ServerError: Its server cannot be listed, and needs to be before a call.
        """
        permit, managed = self._permit, self._proposal.managed
        self._require_current()
        proposal = self._proposal = self._permission.current(self._proposal)
        if managed.awaits_consent or managed.is_unchecked:
            await self._look_into(proposal)
        approval = permit.approval if permit is not None else None
        is_answer = permit is not None and permit.by == "earlier answer"
        holds = not is_answer or await self._permission.is_still_approved(approval)
        sent = self._arguments
        call = CallToDecide(proposal, msgspec.json.decode(sent) if isinstance(sent, msgspec.Raw) else sent)
        now = await call.decide()
        self._require_current()
        if now.verdict == "deny":
            raise denial(proposal, now)
        if now.verdict == "ask":
            if permit is None or permit.by == "policy":
                raise self._denied(f"it came to need approval ({now.reason})")
            if not holds or (is_answer and now.every_time):
                raise self._denied("its approval was withdrawn")
            if approval is not None and approval != approval_of(proposal):
                raise self._denied("the definition that was approved has changed")
        self._policy, self._screened = call.policy, call.screened
        self._decided_at = time.monotonic()
        self._fresh_seconds *= FRESHER

    def _require_current(self) -> None:
        """Raise `CallDenied` if its server is no longer there as it was."""
        if self._proposal.managed.is_retired:
            error = self._denied("its server was disabled or changed")
            error.hint = "check it with `fairlead status`, then call it again"
            raise error

    def _denied(self, reason: str) -> CallDenied:
        return CallDenied(
            f"`{self._proposal.name}` was not called: while it waited, {reason}", hint="call it again"
        )
