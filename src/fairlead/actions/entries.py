"""Add servers to a configuration file, edit them there, and remove them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.actions.config_edits import (
    EditOutcome,
    WrittenEntry,
    approved_servers,
    existing_servers,
    forget_entry_secrets,
    lifted_in,
    record_edit,
    require_free,
    require_sound,
    servers_in,
    settle,
    without_entry,
    write_entries,
    written_entries,
)
from fairlead.actions.context import ActionContext
from fairlead.config.command_lines import command_line
from fairlead.config.document.edit import edit_file, remove_value, set_value
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.secrets.references import references, strings
from fairlead.config.secrets.storage import ForgottenSecrets, StoredSecret, discard, stash_secrets
from fairlead.config.untyped import as_object, is_list, is_object
from fairlead.config.validate import suggestion
from fairlead.errors import ConfigError, Remedy, UnknownServer


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedServers:
    """Outcome of adding entries."""

    edit: EditOutcome
    forgotten: list[ForgottenSecrets]
    """The secrets of entries that were replaced."""
    stashed: list[StoredSecret] = field(default_factory=list[StoredSecret])
    """The secrets that were put away for them."""


def add_server(
    context: ActionContext, target: EditTarget, server_id: str, entry: dict[str, Any], *, replace: bool
) -> AddedServers:
    """Check the entry of a server, store its plain-text secrets, and write it into a file.

    Args:
        context: Who adds it.
        target: The file.
        server_id: The id of the server.
        entry: The entry as the user wrote it.
        replace: May an entry of the same id be replaced?

    Raises:
        ConfigInvalid: Loading would refuse the entry. Nothing was written.
        ConfigError: The file, or a built-in server, has the id already.
    """
    require_sound(context, {"servers": {server_id: entry}})
    require_free([server_id], target, replace=replace)  # before a secret is put away for it
    entry, stashed = stash_secrets(server_id, entry, context.env, file=target.path)
    return add_servers(context, target, {server_id: entry}, replace=replace, stashed=stashed)


def add_servers(
    context: ActionContext,
    target: EditTarget,
    entries: Mapping[str, dict[str, Any]],
    *,
    replace: bool,
    bundles: Mapping[str, dict[str, Any]] | None = None,
    stashed: Iterable[StoredSecret] = (),
) -> AddedServers:
    """Write entries into a file, all or none, and apply them.

    Args:
        context: Who adds them.
        target: The file.
        entries: The entries by server id, their secrets as references.
        replace: May an entry of the same id be replaced?
        bundles: Bundles to write together with them.
        stashed: The secrets that were put away for them; deleted if the entries cannot be written.

    Raises:
        ConfigError: The file has one of the ids already.
    """
    put_away = [*stashed]
    is_new = not target.path.exists()
    replaced = write_entries(target, entries, replace=replace, bundles=bundles, stashed=put_away)
    edit = settle(context, target, entries, is_new=is_new)
    found = [forget_entry_secrets(target, earlier, edit.loaded) for earlier in replaced]
    for server_id in entries:
        record_edit(context, edit, "add", server_id)
    return AddedServers(edit=edit, forgotten=[each for each in found if each is not None], stashed=put_away)


@dataclass(frozen=True, kw_only=True, slots=True)
class EditedServer:
    """Outcome of editing an entry."""

    edit: EditOutcome
    is_written: bool
    """False where the file said so already."""
    forgotten: ForgottenSecrets | None
    """The secrets that it refers to no longer."""
    stashed: list[StoredSecret]
    """The secrets that were put away for it."""


def edit_server(
    context: ActionContext, server_id: str, target: EditTarget, changes: Mapping[str, Any]
) -> EditedServer:
    """Change fields of a server's entry in one file. All other bytes of the file stay as they are.

    A project's entry that was approved is approved as it is then; one that was not still has to be.

    Args:
        context: Who edits it.
        server_id: The id of the server.
        target: The file.
        changes: The new values of fields; None removes a field.

    Raises:
        UnknownServer: The file has no such entry; the hint says which has.
        ConfigInvalid: Loading would refuse the entry. Nothing was written.
    """
    loaded = context.loaded
    before = as_object(_require_entry(server_id, existing_servers(target), target, loaded))
    given = {name: value for name, value in changes.items() if value is not None}
    after = {name: before[name] for name in before if name not in changes} | given
    require_sound(context, {"servers": {server_id: after}})
    approved = approved_servers(context, [server_id])
    wanted, stashed = stash_secrets(server_id, given, context.env, file=target.path)

    def change(text: str) -> str:
        written = written_entries(text, target)
        _require_entry(server_id, written, target, loaded)
        now = written[server_id]
        before.clear()
        before.update(as_object(now.entry))
        for name, value in _values_to_write(now, changes, wanted).items():
            path = now.path_of(name)
            text = set_value(text, path, value) if value is not None else remove_value(text, path)
        return text

    try:
        is_written = edit_file(target.path, change)
    except BaseException:
        discard(stashed)
        raise
    edit = settle(context, target, [server_id], approved=approved)
    if is_written:
        record_edit(context, edit, "edit", server_id, fields=sorted(changes))
    forgotten = forget_entry_secrets(target, before, edit.loaded)
    return EditedServer(edit=edit, is_written=is_written, forgotten=forgotten, stashed=stashed)


def _values_to_write(
    written: WrittenEntry, changes: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """The new values of an entry's fields as its shape has them; None removes a field.

    Raises:
        ConfigError: A value refers to a secret or a variable, and the entry's shape has no references.
    """
    values = {name: wanted.get(name) for name in changes}
    if written.is_nested and {"command", "url", "transport"} & values.keys():
        after = {**as_object(written.entry), **values}
        kind = values.get("transport") or ("stdio" if after.get("command") is not None else "http")
        values["transport"] = kind
    if written.is_literal:
        if any(references(text) for _, text in strings(values)):
            raise ConfigError(
                f"`{'.'.join(written.path_of())}` cannot refer to a variable or a stored secret:"
                " below `mcp`, `${…}` stays as it is",
                hint=f"move the entry to `servers`: run `{_command_to_move(written)}`",
            )
        values = {name: _unescape(value) for name, value in values.items()}
    return values


def _command_to_move(written: WrittenEntry) -> str:
    target = "URL" if "url" in as_object(written.entry) else "-- COMMAND"
    return f"{command_line('add', written.server_id, options=('--replace',))} {target}"


def _unescape(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A value whose texts mean themselves: the inverse of what reading does to it."""
    if isinstance(value, str):
        return value.replace("$${", "${")
    if is_object(value):
        return {name: _unescape(item) for name, item in value.items()}
    return [_unescape(item) for item in value] if is_list(value) else value


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedServer:
    """Outcome of removing an entry."""

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
        removed.clear()
        removed.update(as_object(present.get(server_id)))
        _require_entry(server_id, {**lifted_in(text), **present}, target, before)
        return without_entry(text, server_id)

    edit_file(target.path, change, create=EMPTY_FILE)
    edit = settle(context, target, [])
    record_edit(context, edit, "remove", server_id)
    return RemovedServer(
        edit=edit,
        forgotten=forget_entry_secrets(target, removed, edit.loaded),
        remaining=edit.loaded.servers.get(server_id) if edit.loaded else None,
    )


def _require_entry(
    server_id: str, present: Mapping[str, Any], target: EditTarget, loaded: LoadedConfig
) -> object:
    if server_id not in present:
        raise _not_there(server_id, target, loaded)
    return present[server_id]


def _not_there(server_id: str, target: EditTarget, loaded: LoadedConfig) -> UnknownServer:
    other = loaded.servers.get(server_id)
    remedy: Remedy | None = None
    hint = suggestion(server_id, loaded.servers) or "run `fairlead list` to see the configured servers"
    if other and other.transport == "extension" and other.definition.source.path == target.path:
        hint = f"it comes from `extensions` in that file: take {other.target} out of the list there"
    elif other and other.source in ("user", "project"):
        hint, remedy = f"it is in the {other.source} file", Remedy(input="scope", value=other.source)
    elif other and other.is_built_in:
        hint = f"it is built in: run `{command_line('disable', server_id)}` to be without it"
    return UnknownServer(
        f"there is no server `{server_id}` in {target.path}", hint=hint, field="id", remedy=remedy
    )
