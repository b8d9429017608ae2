"""Move secrets in plain text out of a configuration file, into the keyring or a private file."""

from dataclasses import dataclass
from typing import Any

from fairlead.actions.config_edits import EditOutcome, settle, without_entry
from fairlead.actions.context import ActionContext
from fairlead.config.command_lines import command_line
from fairlead.config.document.edit import edit_file, set_value
from fairlead.config.edit_scope import EditTarget
from fairlead.config.load import LoadedServer
from fairlead.config.merge import FieldPath, LayerPart
from fairlead.config.secrets.redaction import literal_secrets
from fairlead.config.secrets.storage import StoredSecret, discard, stash_secrets
from fairlead.config.untyped import as_object, value_at
from fairlead.errors import ConfigUnwritable


@dataclass(frozen=True, kw_only=True, slots=True)
class StashedEntry:
    """Outcome of moving a server's secrets out of one file."""

    target: EditTarget
    stashed: list[StoredSecret]
    """The secrets that were moved, each with its reference."""
    left: list[str]
    """Fields with a secret next to a reference, which stay unchanged."""
    edit: EditOutcome


def stash_server(context: ActionContext, server_id: str) -> list[StashedEntry]:
    """Move the secrets that a server has in plain text in the user's own files, leaving references.

    Args:
        context: Who moves them.
        server_id: The server.

    Returns:
        What became of each file; empty where none has such a secret.

    Raises:
        UnknownServer: There is no such server.
        ConfigUnwritable: The file is in a format without references, or is a project's: a reference to this
            machine's keyring would be of no use to others.
    """
    server = context.loaded.server(server_id)
    parts = [part for part in server.definition.parts if [*literal_secrets(as_object(part.entry))]]
    return [_stash_part(context, server, part) for part in parts if part.layer.path is not None]


def _stash_part(context: ActionContext, server: LoadedServer, part: LayerPart) -> StashedEntry:
    target = _target(server, part)
    entry = as_object(part.entry)
    wanted, stashed = stash_secrets(server.server_id, entry, context.env, file=target.path)
    moved = {secret.field for secret in stashed}
    fields = [(path, ".".join(map(str, path))) for path in literal_secrets(entry)]

    def change(text: str) -> str:
        if moved and not part.layer.has_references:
            # `mcp.servers` has none, and `servers` of the same file has.
            return set_value(without_entry(text, server.server_id), ("servers", server.server_id), wanted)
        for path, name in fields:
            if name in moved:
                text = _set(text, part, path, wanted)
        return text

    try:
        edit_file(target.path, change)
    except BaseException:
        discard(stashed)
        raise
    edit = settle(context, target, [server.server_id], approved=())
    names = sorted(moved)
    edit.notices.extend(context.record("edit", server.server_id, file=str(target.path), fields=names))
    left = [name for _, name in fields if name not in moved]
    return StashedEntry(target=target, stashed=stashed, left=left, edit=edit)


def _set(text: str, part: LayerPart, path: FieldPath, wanted: dict[str, Any]) -> str:
    """Text with one field as it is wanted; a list is written whole."""
    names = tuple(step for step in path if isinstance(step, str))
    written = part.layer.original_path((*part.prefix, *names))
    return set_value(text, [str(step) for step in written], value_at(wanted, names))


def _target(server: LoadedServer, part: LayerPart) -> EditTarget:
    layer = part.layer
    assert layer.path is not None, "only files have entries to edit"
    if layer.name == "project":
        raise ConfigUnwritable(
            f"`{server.server_id}` is described by {layer.label}, which is the project's",
            hint="write a reference to a variable there, such as `${NAME}`: each user sets their own",
        )
    if layer.is_foreign and not layer.has_references:
        raise ConfigUnwritable(
            f"`{server.server_id}` is described by {layer.label}, whose format has no references",
            hint=f"run `{command_line('import', str(layer.path))}` to take it over",
        )
    return EditTarget(scope="user" if layer.name == "user" else "file", path=layer.path)
