"""Let the servers of a project's file start."""

from collections.abc import Iterable

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.consent import ConsentKey


def approve_server(context: ActionContext, server_id: str, key: ConsentKey) -> list[Notice]:
    """Record the user's consent that a project's server runs.

    Args:
        context: Who consents.
        server_id: The server.
        key: What the user was shown, whatever became of the files meanwhile.

    Returns:
        What the user should know about it.
    """
    from fairlead.policy.consent import record_consent

    record_consent(context.store, [key])
    return [*context.tell_gateways(), *context.record("approve", server_id)]


def approved_servers(context: ActionContext, server_ids: Iterable[str]) -> set[str]:
    """Which servers may start as they are now: to be asked before a part of their entries is edited."""
    from fairlead.policy.consent import has_consent

    servers = context.loaded.servers
    keys = {name: servers[name].consent for name in server_ids if name in servers}
    return {name for name, key in keys.items() if key is None or has_consent(context.store, key)}
