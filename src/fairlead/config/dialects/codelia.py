"""Codelia: the MCP section of `config.json`, with the same fields as ours and no references."""

from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ImportedDocument,
    Location,
    distinct,
    paths_from_env,
    project,
    user,
)
from fairlead.config.dialects.fields import (
    FLAG,
    MILLISECONDS,
    FieldMapping,
    Format,
    note_other_keys,
    read_servers,
    section,
    table,
    text,
    texts,
    word,
)
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import MachinePaths

_LOGIN = ("authorization_url", "token_url", "registration_url", "client_id", "client_secret", "scope")

FORMAT = Format(
    title="Codelia",
    fields=(
        FieldMapping("transport", "transport", word({"stdio": "stdio", "http": "http"})),
        FieldMapping("enabled", "enabled", FLAG),
        FieldMapping("command", "command", text(LITERAL)),
        FieldMapping("args", "args", texts(LITERAL)),
        FieldMapping("cwd", "cwd", text(LITERAL)),
        FieldMapping("env", "env", table(LITERAL)),
        FieldMapping("url", "url", text(LITERAL)),
        FieldMapping("headers", "headers", table(LITERAL)),
        FieldMapping("request_timeout_ms", "request_timeout_ms", MILLISECONDS),
        *(FieldMapping(f"oauth.{name}", f"oauth.{name}", text(LITERAL)) for name in _LOGIN),
    ),
    overlays=True,
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers; the rest of the document is not about MCP."""
    imported = read_servers(section(data, "mcp", "servers"), FORMAT, renames=False)
    note_other_keys(section(data, "mcp"), ("servers",), imported.notes)
    return imported


def locations(place: MachinePaths) -> list[Location]:
    """The file in the current folder, then the user's where the environment names one."""
    return distinct(
        project(place, ".codelia/config.json"), user(*paths_from_env(place, "CODELIA_CONFIG_PATH"))
    )


CODELIA = ConfigDialect(name="codelia", title="Codelia", syntax="json", locations=locations, read=read)
