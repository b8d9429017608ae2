"""Cursor: `mcp.json`, with `${env:NAME}` and the editor's variables."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import Dialect, Entry, Exported, Imported, Location, Note
from fairlead.config.dialects.editors import note_variables, predefined
from fairlead.config.dialects.entries import (
    TRANSPORTS,
    Field,
    Format,
    disabled,
    note_other_keys,
    noted,
    read_servers,
    section,
    write_servers,
)
from fairlead.config.dialects.kinds import scopes, table, text, texts, word
from fairlead.config.dialects.places import distinct, project, user
from fairlead.config.dialects.references import Style, editor_style
from fairlead.config.paths import Place

_VARIABLES = ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")


def _format(style: Style) -> Format:
    return Format(
        title="Cursor",
        fields=(
            Field("type", "transport", word(TRANSPORTS | {"streamableHttp": "http"})),
            Field("command", "command", text(style)),
            Field("args", "args", texts(style)),
            Field("cwd", "cwd", text(style)),
            Field("env", "env", table(style)),
            Field("url", "url", text(style)),
            Field("headers", "headers", table(style)),
            Field("auth.CLIENT_ID", "oauth.client_id", text(style)),
            Field("auth.CLIENT_SECRET", "oauth.client_secret", text(style)),
            Field("auth.scopes", "oauth.scope", scopes(style)),
        ),
        reading={
            "envFile": noted("has no equivalent here; put its variables into `env`"),
            "disabled": disabled,
        },
        targets={"stdio": {"type": "stdio"}, "http": {}, "sse": {"type": "sse"}},
    )


def read(data: dict[str, Any], place: Place) -> Imported:
    """The servers, with the editor's variables as this place has them."""
    servers = section(data, "mcpServers")
    imported = read_servers(servers, _format(editor_style(lambda name: predefined(place, name))))
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    note_variables(servers, place, imported.notes)
    return imported


def write(entries: Mapping[str, Entry]) -> Exported:
    """The servers as `mcp.json` has them."""
    notes: list[Note] = []
    # Here a variable's value does not matter, only that the editor would put one in its place.
    form = _format(editor_style(lambda name: "" if name in _VARIABLES else None))
    return Exported(document={"mcpServers": write_servers(entries, form, notes)}, notes=notes)


def locations(place: Place) -> list[Location]:
    """The project's file, then the user's."""
    return distinct(project(place, ".cursor/mcp.json"), user(place.home / ".cursor" / "mcp.json"))


CURSOR = Dialect(name="cursor", title="Cursor", syntax="json", locations=locations, read=read, write=write)
