"""Switch servers on and off in the file that has the say about them."""

from collections.abc import Mapping
from pathlib import Path

from fairlead.config.edit import edit_file, set_value
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.merge import Part
from fairlead.config.paths import user_file
from fairlead.config.scopes import EMPTY_FILE
from fairlead.errors import ConfigUnwritable


def write_enabled(loaded: LoadedConfig, server_id: str, env: Mapping[str, str], *, on: bool) -> None:
    """Set `enabled` of a server where that counts: no entry that lies over it says otherwise."""
    file, path = _place(loaded, loaded.server(server_id), env)
    edit_file(file, lambda text: set_value(text, (*path, "enabled"), on), create=EMPTY_FILE)


def _place(
    loaded: LoadedConfig, server: LoadedServer, env: Mapping[str, str]
) -> tuple[Path, tuple[str, ...]]:
    """The topmost entry about a server; for what is built in, the user's file or what stands in for it."""
    top: Part = server.definition.parts[-1]
    if top.layer.name == "builtin":
        given = next((layer.path for layer in loaded.layers if layer.name == "file"), None)
        return given or user_file(env), ("servers", server.server_id)
    if top.layer.path is None or top.layer.dialect is not None:
        reason = "which Fairlead reads but does not edit" if top.layer.path else "which is no file"
        raise ConfigUnwritable(f"`{server.server_id}` is described by {top.layer.label}, {reason}")
    return top.layer.path, tuple(map(str, top.prefix))
