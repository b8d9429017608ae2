"""The servers that are there with no configuration at all: the lowest layer, under the user's own."""

from pathlib import Path
from typing import Any

from fairlead.config.paths import Place

LABEL = "<built in>"
SWITCH = "FAIRLEAD_BUILTINS"
"""The variable that leaves them out when it says `off`, for programs that want only what they configure."""


def builtin_entries(place: Place) -> dict[str, Any]:
    """What the built-in servers' entries say. Any layer may lie over them: `{"repo": {"enabled": false}}`."""
    if place.env.get(SWITCH, "").lower() in ("off", "no", "false", "0"):
        return {}
    common = {"trust": "trusted", "approval": "auto"}
    return {
        "repo": {
            "builtin": "repo",
            **common,
            "enabled": is_fit_root(workspace(place), place.home),
            "description": "Search, read and list the files of this repository.",
        },
        "docs": {
            "builtin": "docs",
            **common,
            "description": "Read documentation pages of the domains you allowed.",
        },
    }


def workspace(place: Place) -> Path:
    """The folder people mean by \"here\": the top of the git repository around them, or where they are."""
    for folder in (place.cwd, *place.cwd.parents):
        if (folder / ".git").exists():
            return folder
    return place.cwd


def is_fit_root(folder: Path, home: Path) -> bool:
    """May everything below a folder be read? Not all of a home, and nothing that has a home in it."""
    folder, home = folder.resolve(), home.resolve()
    return folder != home and folder not in home.parents
