"""Zed: the context servers in `settings.json`, without references."""

from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    ImportedDocument,
    Location,
    config_home,
    distinct,
    project,
    user,
)
from fairlead.config.dialects.fields import (
    FLAG,
    SECONDS,
    FieldMapping,
    Format,
    read_redundant,
    read_servers,
    report_if_equal,
    report_ignored,
    section,
    table,
    text,
    texts,
)
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import as_object

_EXTENSION = "are those of an extension of Zed, which brings the server; left out"

FORMAT = Format(
    title="Zed",
    fields=(
        FieldMapping("command", "command", text(LITERAL)),
        FieldMapping("args", "args", texts(LITERAL)),
        FieldMapping("env", "env", table(LITERAL)),
        FieldMapping("url", "url", text(LITERAL)),
        FieldMapping("headers", "headers", table(LITERAL)),
        FieldMapping("timeout", "request_timeout_ms", SECONDS),
        FieldMapping("enabled", "enabled", FLAG),
        FieldMapping("oauth.client_id", "oauth.client_id", text(LITERAL)),
        FieldMapping("oauth.client_secret", "oauth.client_secret", text(LITERAL)),
        # The older layout, where the command was an object.
        FieldMapping("command.path", "command", text(LITERAL)),
        FieldMapping("command.args", "args", texts(LITERAL)),
        FieldMapping("command.env", "env", table(LITERAL)),
        FieldMapping("command.timeout", "request_timeout_ms", SECONDS),
    ),
    reading={
        "source": read_redundant,
        "settings": report_ignored("is for an extension of Zed; ignored"),
        "remote": report_if_equal(True, "runs it on the remote machine there; it runs on this one here"),
    },
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers; those that an extension of the editor brings are noted."""
    servers: dict[str, Any] = {}
    notes: list[ConversionNote] = []
    for name, raw in section(data, "context_servers").items():
        if _from_extension(as_object(raw)):
            notes.append(ConversionNote(server_id=name, field="settings", message=_EXTENSION))
        else:
            servers[name] = raw
    imported = read_servers(servers, FORMAT)
    imported.notes.extend(notes)
    return imported


def _from_extension(raw: dict[str, Any]) -> bool:
    return raw.get("source") == "extension" or (
        "settings" in raw and "command" not in raw and "url" not in raw
    )


def locations(place: MachinePaths) -> list[Location]:
    """The project's file, then the user's."""
    if place.platform == "darwin":
        folder = place.home / ".config" / "zed"
    else:
        folder = config_home(place) / ("Zed" if place.platform == "win32" else "zed")
    return distinct(project(place, ".zed/settings.json"), user(folder / "settings.json"))


ZED = ConfigDialect(name="zed", title="Zed", syntax="jsonc", locations=locations, read=read)
