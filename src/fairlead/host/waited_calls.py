"""The decision about a call that had to wait for its server, made again before it is sent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.errors import CallDenied
from fairlead.host.permission import CallToDecide, ProposedCall, denial, require_callable
from fairlead.policy.decision import CallPolicy


async def decide_after_wait(
    proposal: ProposedCall, arguments: Mapping[str, Any] | msgspec.Raw, planned_by: CallPolicy | None
) -> None:
    """Decide again on a call that had to wait for its server: a review may have denied it meanwhile.

    `planned_by` is the policy that allowed it with any arguments, if that was why it may be made.

    Raises:
        CallDenied: It may not be made any more, or policy alone allowed it and now wants it approved.
        UnknownTool: Its definition cannot be used.
    """
    managed = proposal.managed
    name = f"`{proposal.name}`"
    if managed.is_retired:
        raise CallDenied(
            f"{name} was not called: while it waited, its server was disabled or changed",
            hint="check it with `fairlead status`, then call it again",
        )
    require_callable(proposal)
    if planned_by is managed.policy:
        return  # nothing about its permission has changed
    sent = msgspec.json.decode(arguments) if isinstance(arguments, msgspec.Raw) else arguments
    now = await CallToDecide(proposal, sent).decide()
    if now.verdict == "deny":
        raise denial(proposal, now)
    if planned_by is not None and now.verdict == "ask":
        raise CallDenied(
            f"{name} was not called: while it waited, it came to need approval ({now.reason})",
            hint="call it again",
        )
