"""Enable, disable and restart a server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fairlead.actions.config_edits import EditOutcome, approved_servers, precedence, settle
from fairlead.actions.context import ActionContext, Notice
from fairlead.config.document.edit import edit_file, set_value
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget, entry_in, entry_to_edit
from fairlead.errors import ConfigError, ConnectFailed

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from fairlead.host.host import Host


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchedServer:
    """Outcome of `switch_server`."""

    target: EditTarget | None
    """The file that was to say so; None where the server was as it should be already."""
    is_written: bool
    """False where nothing had to be edited."""
    edit: EditOutcome
    overridden: str | None = None
    """Which other setting takes precedence, so that the edit has no effect."""

    @property
    def failure(self) -> str | None:
        """The reason why the server is not in the wanted state."""
        if self.overridden is None or self.target is None:
            return None
        done = "this was written to" if self.is_written else "this is already so in"
        return f"{done} {self.target.path}, but {self.overridden}"

    def require_effect(self) -> None:
        """Raise where the server is not in the wanted state."""
        self.edit.require_loaded()
        if self.failure is not None:
            raise ConfigError(self.failure)


def switch_server(
    context: ActionContext, server_id: str, *, on: bool, scope: str | None = None
) -> SwitchedServer:
    """Enable or disable a server.

    Args:
        context: Who does so.
        server_id: The server.
        on: Enable or disable it.
        scope: Whose file to write it into; by default the one whose entry decides about it, and none where
            the server is so already.

    Raises:
        UnknownServer: There is none of that id, or the scope is below the file that defines it.
        ConfigError: There is no such scope.
        ConfigUnwritable: The entry is not in a file that Fairlead edits.
    """
    loaded = context.loaded
    server = loaded.server(server_id)
    target = context.chosen_target(scope)
    if target is None and server.enabled == on:
        return SwitchedServer(target=None, is_written=False, edit=EditOutcome(loaded=loaded))
    entry = entry_in(server, target) if target else entry_to_edit(server, ("enabled",), loaded.layers)
    target = entry.target
    approved = approved_servers(context, [server_id])
    is_new = not target.path.exists()
    is_written = edit_file(
        target.path, lambda text: set_value(text, (*entry.path, "enabled"), on), create=EMPTY_FILE
    )
    edit = settle(context, target, [server_id], approved=approved, is_new=is_new)
    if is_written:
        kind = "enable" if on else "disable"
        edit.notices.extend(context.record(kind, server_id, file=str(target.path.absolute())))
    now = edit.loaded.servers.get(server_id) if edit.loaded else None
    is_off_course = now is not None and now.enabled != on
    overridden = precedence(now.definition.origin(("enabled",))) if now and is_off_course else None
    return SwitchedServer(target=target, is_written=is_written, edit=edit, overridden=overridden)


async def restart_server(
    context: ActionContext,
    host: "Host",
    server_id: str,
    *,
    close: Callable[[str], Awaitable[None]] | None = None,
    tasks: "TaskGroup | None" = None,
) -> list[Notice]:
    """End every connection to a server, and connect it again. Calls of it that are under way fail.

    Args:
        context: Who restarts it.
        host: The host that connects it.
        server_id: The server.
        close: Ends the connections; by default those of the host. A gateway has those of its clients as well.
        tasks: Where to connect in the background; without it, this waits until the server is ready.

    Returns:
        What the user should know: that the audit record could not be written.

    Raises:
        UnknownServer: There is none of that id.
        ConnectFailed: It is disabled; or, where this waits, it does not connect.
    """
    from anyio import to_thread

    server = context.loaded.server(server_id)
    if not server.enabled:
        raise ConnectFailed(server_id, "it is disabled", hint=server.enable_hint)
    await (close or host.close)(server_id)
    notices = await to_thread.run_sync(partial(context.record, "restart", server_id))
    if tasks is not None:
        tasks.start_soon(host.connect, server_id)
        return notices
    for failure in (await host.connect(server_id)).values():
        raise failure
    return notices
