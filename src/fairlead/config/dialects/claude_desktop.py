"""Claude Desktop: `claude_desktop_config.json`, which starts local processes and expands nothing."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import Dialect, Entry, Exported, Imported, Location, Note
from fairlead.config.dialects.entries import Field, Format, disabled, read_servers, section, write_servers
from fairlead.config.dialects.kinds import table, text, texts, word
from fairlead.config.dialects.places import application_data, user
from fairlead.config.dialects.references import LITERAL
from fairlead.config.paths import Place

FORMAT = Format(
    title="Claude Desktop",
    fields=(
        Field("command", "command", text(LITERAL)),
        Field("args", "args", texts(LITERAL)),
        Field("env", "env", table(LITERAL)),
    ),
    reading={
        "type": Field("type", "transport", word({"stdio": "stdio"})).read,
        "disabled": disabled,
    },
    targets={"stdio": {}},
)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers; the application's other settings are none of our business."""
    return read_servers(section(data, "mcpServers"), FORMAT)


def write(entries: Mapping[str, Entry]) -> Exported:
    """The local servers. Those at a URL are added in the application's own settings, not in its file."""
    notes: list[Note] = []
    return Exported(document={"mcpServers": write_servers(entries, FORMAT, notes)}, notes=notes)


def locations(place: Place) -> list[Location]:
    """The one file."""
    return user(application_data(place) / "Claude" / "claude_desktop_config.json")


CLAUDE_DESKTOP = Dialect(
    name="claude-desktop", title="Claude Desktop", syntax="json", locations=locations, read=read, write=write
)
