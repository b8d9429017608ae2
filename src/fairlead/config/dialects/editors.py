"""What the editors built on VS Code have in common: the variables between `${` and `}`."""

import re
from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import Note
from fairlead.config.dialects.ids import server_ids
from fairlead.config.dialects.references import Piece, variable
from fairlead.config.paths import Place
from fairlead.config.secrets import strings

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def predefined(place: Place, name: str) -> Piece | None:
    """What a variable that every file has stands for; None for one we do not know."""
    windows = place.platform == "win32"
    match name:
        case "workspaceFolder" | "workspaceRoot":
            return str(place.cwd)
        case "workspaceFolderBasename":
            return place.cwd.name
        case "userHome":
            return variable("USERPROFILE" if windows else "HOME")
        case "pathSeparator" | "/":
            return "\\" if windows else "/"
        case _:
            return None


def note_variables(servers: Mapping[str, Any], place: Place, notes: list[Note]) -> None:
    """Note which variables were fixed, as they cannot be said here, and which are not known and stay text."""
    ids = server_ids(servers, [])
    for server, entry in servers.items():
        names = dict.fromkeys(name for _, text in strings(entry) for name in _VARIABLE.findall(text))
        notes.extend(
            Note(server_id=ids[server], field=f"${{{name}}}", message=message)
            for name in names
            if (message := _remark(name, place))
        )


def _remark(name: str, place: Place) -> str | None:
    if name.startswith("workspace") and predefined(place, name) is not None:
        return f"became `{predefined(place, name)}`; it does not follow the folder you open"
    if name.startswith(("env:", "input:")) or predefined(place, name) is not None:
        return None
    return "is no variable that is known here; it stays as text"
