"""Restart a server: end every connection to it, and begin another."""

from collections.abc import Awaitable, Callable
from functools import partial

from anyio import to_thread
from anyio.abc import TaskGroup

from fairlead.actions.context import ActionContext
from fairlead.errors import ConnectFailed
from fairlead.host.host import Host


async def restart_server(
    context: ActionContext,
    host: Host,
    server_id: str,
    *,
    close: Callable[[str], Awaitable[None]] | None = None,
    tasks: TaskGroup | None = None,
) -> None:
    """End every connection to a server, and connect it again. Calls of it that are under way fail.

    Args:
        context: Who restarts it.
        host: The host that connects it.
        server_id: The server.
        close: Ends the connections; by default those of the host. A gateway has those of its clients as well.
        tasks: Where to connect in the background; without it, this waits until the server is ready.

    Raises:
        UnknownServer: There is none of that id.
        ConnectFailed: It is switched off; or, where this waits, it does not connect.
    """
    server = context.loaded.server(server_id)
    if not server.enabled:
        raise ConnectFailed(server_id, "it is switched off", hint=server.enable_hint)
    await (close or host.close)(server_id)
    await to_thread.run_sync(partial(context.record, "restart", server_id))
    if tasks is not None:
        tasks.start_soon(host.connect, server_id)
        return
    for failure in (await host.connect(server_id)).values():
        raise failure
