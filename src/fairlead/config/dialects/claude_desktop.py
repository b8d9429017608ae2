"""Claude Desktop: `claude_desktop_config.json`, with local processes only and no references."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ExportedDocument,
    ImportedDocument,
    Location,
    application_data,
    user,
)
from fairlead.config.dialects.fields import (
    FieldMapping,
    Format,
    disabled,
    read_servers,
    section,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import MachinePaths

FORMAT = Format(
    title="Claude Desktop",
    fields=(
        FieldMapping("command", "command", text(LITERAL)),
        FieldMapping("args", "args", texts(LITERAL)),
        FieldMapping("env", "env", table(LITERAL)),
    ),
    reading={
        "type": FieldMapping("type", "transport", word({"stdio": "stdio"})).read,
        "disabled": disabled,
    },
    targets={"stdio": {}},
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers; the application's other settings are ignored."""
    return read_servers(section(data, "mcpServers"), FORMAT)


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Local servers. Those at a URL are added in the application's own settings, not in its file."""
    notes: list[ConversionNote] = []
    return ExportedDocument(document={"mcpServers": write_servers(entries, FORMAT, notes)}, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """The one file."""
    return user(application_data(place) / "Claude" / "claude_desktop_config.json")


CLAUDE_DESKTOP = ConfigDialect(
    name="claude-desktop", title="Claude Desktop", syntax="json", locations=locations, read=read, write=write
)
