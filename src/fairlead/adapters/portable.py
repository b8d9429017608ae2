"""Server entries that may leave for another host: as they are written, but without secrets in plain text."""

from collections.abc import Iterable
from typing import Any

from fairlead.config.dialects.dialect import Note
from fairlead.config.load import LoadedServer
from fairlead.config.redact import literal_secrets
from fairlead.config.shapes import as_object

_PLAIN = "left out: a secret in plain text would go with it; move it to `env` or a reference first"


def portable_entries(servers: Iterable[LoadedServer], notes: list[Note]) -> dict[str, dict[str, Any]]:
    """The entries of servers by id, references unexpanded. What cannot go is noted."""
    entries: dict[str, dict[str, Any]] = {}
    for server in servers:
        if server.config is None:
            notes.append(
                Note(server_id=server.server_id, field="", message="left out: its entry is not valid")
            )
        elif (entry := _without_plain_secrets(server, notes)) is not None:
            entries[server.server_id] = entry
    return entries


def _without_plain_secrets(server: LoadedServer, notes: list[Note]) -> dict[str, Any] | None:
    """The entry with a variable in the place of each secret in plain text; None where it can have none."""
    entry = {**server.entry}
    for path in literal_secrets(server.entry):
        field = ".".join(map(str, path))
        if path[0] not in ("env", "headers", "oauth"):
            notes.append(Note(server_id=server.server_id, field=field, message=_PLAIN))
            return None
        group, name = str(path[0]), str(path[1])
        variable = name if group == "env" else f"{server.server_id}_{name}".upper().replace("-", "_")
        entry[group] = {**as_object(entry[group]), name: f"${{{variable}}}"}
        message = f"a secret in plain text here; said as `${{{variable}}}`, so set that variable"
        notes.append(Note(server_id=server.server_id, field=field, message=message))
    return entry
