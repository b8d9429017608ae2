"""Codelia: the MCP section of `config.json`. Its fields are ours, and `${…}` is text there."""

from typing import Any

from fairlead.config.dialects.dialect import Dialect, Imported, Location
from fairlead.config.dialects.entries import Field, Format, note_other_keys, read_servers, section
from fairlead.config.dialects.kinds import FLAG, MILLISECONDS, table, text, texts, word
from fairlead.config.dialects.places import distinct, named, project, user
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import Place

_LOGIN = ("authorization_url", "token_url", "registration_url", "client_id", "client_secret", "scope")

FORMAT = Format(
    title="Codelia",
    fields=(
        Field("transport", "transport", word({"stdio": "stdio", "http": "http"})),
        Field("enabled", "enabled", FLAG),
        Field("command", "command", text(LITERAL)),
        Field("args", "args", texts(LITERAL)),
        Field("cwd", "cwd", text(LITERAL)),
        Field("env", "env", table(LITERAL)),
        Field("url", "url", text(LITERAL)),
        Field("headers", "headers", table(LITERAL)),
        Field("request_timeout_ms", "request_timeout_ms", MILLISECONDS),
        *(Field(f"oauth.{name}", f"oauth.{name}", text(LITERAL)) for name in _LOGIN),
    ),
    overlays=True,
)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers; the rest of the document is not about MCP."""
    imported = read_servers(section(data, "mcp", "servers"), FORMAT)
    note_other_keys(section(data, "mcp"), ("servers",), imported.notes)
    return imported


def locations(place: Place) -> list[Location]:
    """The file in the current folder, then the user's where the environment names one."""
    return distinct(project(place, ".codelia/config.json"), user(*named(place, "CODELIA_CONFIG_PATH")))


CODELIA = Dialect(name="codelia", title="Codelia", syntax="json", locations=locations, read=read)
