"""Cancel a call that is under way."""

from functools import partial
from typing import TYPE_CHECKING

from fairlead.actions.context import ActionContext, Notice
from fairlead.errors import ConfigError

if TYPE_CHECKING:
    from fairlead.host.host import Host


async def cancel_call(
    context: ActionContext, host: "Host", call_id: int, *, server_id: str, tool: str, principal: str
) -> list[Notice]:
    """Cancel a call. Its caller gets an error, its server a notification; it may have had its effect by then.

    Args:
        context: Who cancels it.
        host: The host that makes it, or one above that.
        call_id: Its id in events.
        server_id: Its server, for the audit record.
        tool: Its tool, for the audit record.
        principal: The identity it is made for, for the audit record.

    Returns:
        What the user should know: that the audit record could not be written.

    Raises:
        ConfigError: It is over.
    """
    from anyio import to_thread

    who = "the user" if context.principal == principal else f"`{context.principal}`"
    if not host.calls.running.cancel(call_id, f"{who} did so in the {context.surface}"):
        raise ConfigError("that call is over", hint="load the page again")
    record = partial(context.record, "cancel_call", server_id, tool=tool, **{"for": principal})
    return await to_thread.run_sync(record)
