"""Zed: the context servers in `settings.json`. Nothing is expanded."""

from typing import Any

from fairlead.config.dialects.dialect import Dialect, Imported, Location, Note
from fairlead.config.dialects.entries import Field, Format, noted, noted_if, read_servers, section, silently
from fairlead.config.dialects.kinds import FLAG, SECONDS, table, text, texts
from fairlead.config.dialects.places import config_home, distinct, project, user
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import Place
from fairlead.config.shapes import as_object

_EXTENSION = "are those of an extension of Zed, which brings the server; left out"

FORMAT = Format(
    title="Zed",
    fields=(
        Field("command", "command", text(LITERAL)),
        Field("args", "args", texts(LITERAL)),
        Field("env", "env", table(LITERAL)),
        Field("url", "url", text(LITERAL)),
        Field("headers", "headers", table(LITERAL)),
        Field("timeout", "request_timeout_ms", SECONDS),
        Field("enabled", "enabled", FLAG),
        Field("oauth.client_id", "oauth.client_id", text(LITERAL)),
        Field("oauth.client_secret", "oauth.client_secret", text(LITERAL)),
        # The older layout, where the command was an object.
        Field("command.path", "command", text(LITERAL)),
        Field("command.args", "args", texts(LITERAL)),
        Field("command.env", "env", table(LITERAL)),
        Field("command.timeout", "request_timeout_ms", SECONDS),
    ),
    reading={
        "source": silently,
        "settings": noted("is for an extension of Zed; ignored"),
        "remote": noted_if(True, "runs it on the remote machine there; it runs on this one here"),
    },
)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers; those that an extension of the editor brings are noted."""
    servers: dict[str, Any] = {}
    notes: list[Note] = []
    for name, raw in section(data, "context_servers").items():
        if _from_extension(as_object(raw)):
            notes.append(Note(server_id=name, field="settings", message=_EXTENSION))
        else:
            servers[name] = raw
    imported = read_servers(servers, FORMAT)
    imported.notes.extend(notes)
    return imported


def _from_extension(raw: dict[str, Any]) -> bool:
    return raw.get("source") == "extension" or (
        "settings" in raw and "command" not in raw and "url" not in raw
    )


def locations(place: Place) -> list[Location]:
    """The project's file, then the user's."""
    if place.platform == "darwin":
        folder = place.home / ".config" / "zed"
    else:
        folder = config_home(place) / ("Zed" if place.platform == "win32" else "zed")
    return distinct(project(place, ".zed/settings.json"), user(folder / "settings.json"))


ZED = Dialect(name="zed", title="Zed", syntax="jsonc", locations=locations, read=read)
