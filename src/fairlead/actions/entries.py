"""Add servers to a configuration file, and remove them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.actions.config_edits import (
    EditOutcome,
    forget_entry_secrets,
    servers_in,
    settle,
    write_entries,
)
from fairlead.actions.context import ActionContext, Notice
from fairlead.config.command_lines import command_line
from fairlead.config.document.edit import edit_file, remove_value
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret
from fairlead.config.untyped import as_object
from fairlead.config.validate import suggestion
from fairlead.errors import UnknownServer


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedServers:
    """What became of entries that were added."""

    edit: EditOutcome
    forgotten: list[ForgottenSecrets]
    """The secrets of entries that were replaced."""


def add_servers(
    context: ActionContext,
    target: EditTarget,
    entries: Mapping[str, dict[str, Any]],
    *,
    replace: bool,
    bundles: Mapping[str, dict[str, Any]] | None = None,
    stashed: Iterable[StoredSecret] = (),
) -> AddedServers:
    """Write entries into a file, all or none, and have them take effect.

    Args:
        context: Who adds them.
        target: The file.
        entries: The entries by server id, their secrets as references.
        replace: May an entry of the same id be replaced?
        bundles: Bundles to write beside them.
        stashed: The secrets that were put away for them; deleted if the entries cannot be written.

    Raises:
        ConfigError: The file has one of the ids already.
    """
    replaced = write_entries(target, entries, replace=replace, bundles=bundles, stashed=stashed)
    edit = settle(context, target, entries)
    found = [forget_entry_secrets(target, earlier, edit.loaded) for earlier in replaced]
    for server_id in entries:
        edit.notices.extend(_record(context, edit, "add", server_id))
    return AddedServers(edit=edit, forgotten=[each for each in found if each is not None])


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedServer:
    """What became of an entry that was removed."""

    edit: EditOutcome
    forgotten: ForgottenSecrets | None
    """Its secrets."""
    remaining: LoadedServer | None
    """The server as another file defines it, which is in effect now."""


def remove_server(context: ActionContext, server_id: str, target: EditTarget) -> RemovedServer:
    """Remove the entry of a server from one file. A definition in another file stays.

    Raises:
        UnknownServer: The file has no such entry; the hint says which has.
    """
    before = context.loaded
    removed: dict[str, Any] = {}

    def change(text: str) -> str:
        present = servers_in(text, target)
        if server_id not in present:
            raise _not_there(server_id, target, before)
        removed.clear()
        removed.update(as_object(present[server_id]))
        return remove_value(text, ("servers", server_id))

    edit_file(target.path, change, create=EMPTY_FILE)
    edit = settle(context, target, [])
    edit.notices.extend(_record(context, edit, "remove", server_id))
    return RemovedServer(
        edit=edit,
        forgotten=forget_entry_secrets(target, removed, edit.loaded),
        remaining=edit.loaded.servers.get(server_id) if edit.loaded else None,
    )


def _record(context: ActionContext, edit: EditOutcome, kind: str, server_id: str) -> list[Notice]:
    # The configuration after the edit says where the store is; one that does not load says nothing.
    if edit.loaded is None:
        return [Notice(message="this is not in the audit log, since the configuration does not load")]
    return replace(context, before=edit.loaded).record(kind, server_id)


def _not_there(server_id: str, target: EditTarget, loaded: LoadedConfig) -> UnknownServer:
    other = loaded.servers.get(server_id)
    hint = suggestion(server_id, loaded.servers) or "run `fairlead list` to see the configured servers"
    if other and other.source in ("user", "project"):
        hint = f"it is in the {other.source} file: add `--scope {other.source}`"
    elif other and other.is_built_in:
        hint = f"it is built in: run `{command_line('disable', server_id)}` to be without it"
    return UnknownServer(f"there is no server `{server_id}` in {target.path}", hint=hint)
