"""Choice of the configuration file, and of the entry, that an edit goes to."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedServer
from fairlead.config.merge import LayerPart
from fairlead.config.paths import FILE_NAME, MachinePaths, user_file
from fairlead.config.sources import Layer, LayerName, find_project_file
from fairlead.errors import ConfigError, ConfigUnwritable, Remedy, UnknownServer

EditScope = Literal["project", "user", "file"]

_SCOPES: dict[LayerName, EditScope] = {"project": "project", "user": "user", "file": "file"}
_RANK = {name: rank for rank, name in enumerate(get_args(LayerName))}
"""Layers from low to high."""

EMPTY_FILE = '{\n  "version": 1,\n  "servers": {}\n}\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class EditTarget:
    """File that edits go to, and its name for users."""

    scope: EditScope
    path: Path


def relative_to_file(typed: str, target: EditTarget) -> str:
    """A path as it is typed in the current folder, for a file: there it is relative to the file's folder."""
    if typed.startswith("~"):
        return typed
    place, folder = Path.cwd() / typed, target.path.absolute().parent
    folder = folder.parent if folder.name == ".fairlead" else folder
    normal = Path(os.path.normpath(place))
    return f"./{normal.relative_to(folder).as_posix()}" if normal.is_relative_to(folder) else str(normal)


def edit_target(
    scope: Literal["project", "user"],
    place: MachinePaths,
    explicit: Path | None = None,
    *,
    take_over: bool = False,
) -> EditTarget:
    """File of a scope. A file given by path replaces both scopes, as it does for reading.

    A project in another agent's format is not edited; importing it starts a Fairlead file next to it, which
    is read in its place from then on.

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
            "next to it",
        )
    return EditTarget(scope="project", path=found.path)


def chosen_target(scope: str | None, layers: Sequence[Layer], place: MachinePaths) -> EditTarget | None:
    """File of the scope that a user named; None where they named none, and `entry_to_edit` decides.

    Raises:
        ConfigError: There is no such scope, or a file given by path stands in for all scopes.
        ConfigUnwritable: The project's file is in another format.
    """
    if scope is None:
        return None
    given = next((layer.path for layer in layers if layer.name == "file"), None)
    if given is not None:
        raise no_scopes(given)
    if scope not in ("project", "user", "global"):
        raise ConfigError(f"there is no scope `{scope}`", hint="it is `project` or `user`")
    return edit_target("project" if scope == "project" else "user", place)


def no_scopes(given: Path) -> ConfigError:
    """Error of a scope that is named although a file given by path is read in the place of all."""
    return ConfigError(
        f"{given} stands in for your own file and the project's, so there are no scopes",
        hint="leave out `--scope`, or `--config` and FAIRLEAD_CONFIG_PATH",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEntry:
    """Place of a server's entry in a file."""

    target: EditTarget
    path: tuple[str, ...]
    part: LayerPart | None
    """What the file says of the server now; None where it has no such entry yet."""
    below: tuple[LayerPart, ...]
    """What lower layers say of the server."""


def editable_file(server: LoadedServer, layer: Layer, *, hint: str) -> EditTarget:
    """The file of a layer that describes a server.

    Raises:
        ConfigUnwritable: It is not a file that Fairlead edits. `hint` says what to do then.
    """
    return file_of_layer(layer, f"`{server.server_id}`", hint=hint)


def file_of_layer(layer: Layer, described: str, *, hint: str) -> EditTarget:
    """The file of a layer, for an edit of what it describes.

    Raises:
        ConfigUnwritable: It is not a file that Fairlead edits. `hint` says what to do then.
    """
    if layer.path is None or layer.is_foreign:
        reason = "which Fairlead reads but does not edit" if layer.path else "which is not a file"
        raise ConfigUnwritable(f"{described} is described by {layer.label}, {reason}", hint=hint)
    return EditTarget(scope=_SCOPES.get(layer.name, "file"), path=layer.path)


def entry_to_edit(server: LoadedServer, fields: Sequence[str], layers: Sequence[Layer] = ()) -> ServerEntry:
    """Entry that decides about fields, the same for every surface.

    That of the highest layer that has one of them, else the one that says what the server is: an edit of a
    lower layer would have no effect. What a built-in server says of itself is overridden in the user's file,
    or in the file given in its place.

    Args:
        server: The server.
        fields: The fields to edit.
        layers: The layers of the configuration, of which one may be a file given by path.

    Raises:
        ConfigUnwritable: That entry is not in a file that Fairlead edits.
    """
    parts = server.definition.parts
    setting_parts = (part for part in reversed(parts) if any(part.setting((field,)) for field in fields))
    part = next(setting_parts, parts[0])
    if part.layer.name == "builtin":
        given = next((layer.path for layer in layers if layer.name == "file"), None)
        scope: EditScope = "file" if given else "user"
        return entry_in(server, EditTarget(scope=scope, path=given or user_file(server.env)))
    written = " and ".join(f"`{field}`" for field in fields)
    hint = f"write {written} there by hand, or describe it in a {FILE_NAME}"
    target = editable_file(server, part.layer, hint=hint)
    below = parts[: parts.index(part)]
    return ServerEntry(target=target, path=_path_in_file(part), part=part, below=below)


def entry_in(server: LoadedServer, target: EditTarget) -> ServerEntry:
    """Entry of a server in a file of the user's choice; one is added where the file has none.

    Raises:
        UnknownServer: The file has none, and the server is defined in a file above, which would override it.
    """
    definition = server.definition
    present = (part for part in (*definition.parts, *definition.replaced) if part.layer.path == target.path)
    part = next(present, None)
    if part is None and server.source == "project" and target.scope == "user":
        raise UnknownServer(
            f"there is no server `{server.server_id}` in {target.path}",
            hint="it is in the project's file",
            remedy=Remedy(input="scope", value="project"),
        )
    rank = _RANK[target.scope]
    below = tuple(each for each in definition.parts if each is not part and _RANK[each.layer.name] < rank)
    path = _path_in_file(part) if part else ("servers", server.server_id)
    return ServerEntry(target=target, path=path, part=part, below=below)


def _path_in_file(part: LayerPart) -> tuple[str, ...]:
    return tuple(map(str, part.layer.original_path(part.prefix)))
