"""Choice of the configuration file, and of the entry, that an edit goes to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.merge import LayerPart
from fairlead.config.paths import FILE_NAME, MachinePaths, user_file
from fairlead.config.sources import Layer, LayerName, find_project_file
from fairlead.errors import ConfigError, ConfigUnwritable

EditScope = Literal["project", "user", "file"]

_SCOPES: dict[LayerName, EditScope] = {"project": "project", "user": "user", "file": "file"}

EMPTY_FILE = '{\n  "version": 1,\n  "servers": {}\n}\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class EditTarget:
    """File that edits go to, and its name for users."""

    scope: EditScope
    path: Path


def edit_target(
    scope: Literal["project", "user"],
    place: MachinePaths,
    explicit: Path | None = None,
    *,
    take_over: bool = False,
) -> EditTarget:
    """File of a scope. A file given by path replaces both scopes, as it does for reading.

    A project in another agent's format is not edited; importing it starts a Fairlead file beside it, which is
    read in its place from then on.

    Raises:
        ConfigUnwritable: The project's file is in another format.
    """
    if explicit is not None:
        return EditTarget(scope="file", path=explicit)
    if scope == "user":
        return EditTarget(scope="user", path=user_file(place.env))
    found = find_project_file(place)
    if found is None:
        return EditTarget(scope="project", path=place.cwd / FILE_NAME)
    if found.dialect is not None and take_over:
        return EditTarget(scope="project", path=found.folder / FILE_NAME)
    if found.dialect is not None:
        raise ConfigError(
            f"this project's servers are in {found.path}, which Fairlead reads but does not edit",
            hint=f"run `{command_line('import', str(found.path))}` to take them over into a {FILE_NAME} "
            "beside it",
        )
    return EditTarget(scope="project", path=found.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEntry:
    """Place of a server's entry."""

    target: EditTarget
    path: tuple[str, ...]
    part: LayerPart


def editable_file(server: LoadedServer, layer: Layer, *, hint: str) -> EditTarget:
    """The file of a layer that describes a server.

    Raises:
        ConfigUnwritable: It is not a file that Fairlead edits. `hint` says what to do then.
    """
    if layer.path is None or layer.dialect is not None:
        reason = "which Fairlead reads but does not edit" if layer.path else "which is not a file"
        raise ConfigUnwritable(f"`{server.server_id}` is described by {layer.label}, {reason}", hint=hint)
    return EditTarget(scope=_SCOPES.get(layer.name, "file"), path=layer.path)


def entry_to_edit(server: LoadedServer, fields: Sequence[str]) -> ServerEntry:
    """Entry that decides about fields: of the highest layer that has one, else the one with the target.

    An edit of a lower layer would have no effect.

    Raises:
        ConfigUnwritable: That entry is not in a file that Fairlead edits.
    """
    parts = server.definition.parts
    said = (part for part in reversed(parts) if any(part.setting((field,)) for field in fields))
    part = next(said, parts[0])
    written = " and ".join(f"`{field}`" for field in fields)
    hint = f"write {written} there by hand, or describe it in a {FILE_NAME}"
    target = editable_file(server, part.layer, hint=hint)
    return ServerEntry(target=target, path=tuple(map(str, part.prefix)), part=part)


def entry_to_switch(loaded: LoadedConfig, server: LoadedServer) -> ServerEntry:
    """Entry that decides whether a server is enabled, for every surface.

    A built-in server has none in a file: one is added to the user's file, or to the file given in its place.

    Raises:
        ConfigUnwritable: That entry is not in a file that Fairlead edits.
    """
    top = server.definition.parts[-1]
    if top.layer.name != "builtin":
        return entry_to_edit(server, ("enabled",))
    given = next((layer.path for layer in loaded.layers if layer.name == "file"), None)
    target = EditTarget(scope="file" if given else "user", path=given or user_file(server.env))
    return ServerEntry(target=target, path=("servers", server.server_id), part=top)
