"""What every foreign format has in common: where its files are, how it reads, how it writes.

Where programs keep their files, by the conventions of each platform. Nothing here looks at a disk.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fairlead.config.paths import MachinePaths

Syntax = Literal["json", "jsonc", "toml", "yaml"]
Scope = Literal["user", "project"]
Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A file an agent keeps its servers in. It need not exist."""

    path: Path
    scope: Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionNote:
    """Something the other format says that ours cannot, or the reverse. Shown, never dropped in silence."""

    server_id: str | None
    """None where it is about the whole document."""
    field: str
    """A dotted path in the words of the side it was read from; empty where it is about the whole server."""
    message: str
    """The rest of a sentence that begins with the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedDocument:
    """Servers (and bundles) in Fairlead's own words, before validation, with what did not fit."""

    servers: dict[str, Entry] = field(default_factory=dict[str, Entry])
    bundles: dict[str, Entry] = field(default_factory=dict[str, Entry])
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedDocument:
    """The document to write, in the other format's words, with what did not fit."""

    document: dict[str, Any]
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDialect:
    """One foreign format."""

    name: str
    """What `--from` and `--to` take: `claude`, `vscode`, …"""
    title: str
    """What people call it: `Claude Code`, `VS Code`, …"""
    syntax: Syntax
    locations: Callable[[MachinePaths], list[Location]]
    """Where its files are, the ones that win first."""
    read: Callable[[dict[str, Any], MachinePaths], ImportedDocument]
    write: Callable[[Mapping[str, Entry]], ExportedDocument] | None = None
    """Takes entries in Fairlead's own words; None where the format is only read."""


def user(*paths: Path) -> list[Location]:
    """Files of the user."""
    return _locations(paths, "user")


def project(place: MachinePaths, *names: str) -> list[Location]:
    """Files of the project, for programs that look in the current folder alone."""
    return _locations((place.cwd / name for name in names), "project")


def upward(place: MachinePaths, *names: str) -> list[Location]:
    """Files of the project, for programs that look in the current folder and above; nearest first."""
    folders = (place.cwd, *place.cwd.parents)
    return _locations((folder / name for folder in folders for name in names), "project")


def distinct(*groups: list[Location]) -> list[Location]:
    """All locations in order. A file that is the user's own is not the project's too."""
    everything = [location for group in groups for location in group]
    own = {location.path for location in everything if location.scope == "user"}
    return [location for location in everything if location.scope == "user" or location.path not in own]


def config_home(place: MachinePaths) -> Path:
    """The folder for configuration of programs that follow XDG on every Unix."""
    if place.platform == "win32":
        return _roaming(place)
    configured = place.env.get("XDG_CONFIG_HOME", "")
    # The specification wants relative paths ignored.
    return Path(configured) if Path(configured).is_absolute() else place.home / ".config"


def application_data(place: MachinePaths) -> Path:
    """The folder for data of desktop applications."""
    if place.platform == "darwin":
        return place.home / "Library" / "Application Support"
    return config_home(place)


def named(place: MachinePaths, variable: str) -> list[Path]:
    """The path in that environment variable, if it is set."""
    configured = place.env.get(variable)
    return [place.cwd / configured] if configured else []


def moved(place: MachinePaths, variable: str, default: Path) -> Path:
    """The path in that environment variable, else the default."""
    return next(iter(named(place, variable)), default)


def _roaming(place: MachinePaths) -> Path:
    configured = place.env.get("APPDATA")
    return Path(configured) if configured else place.home / "AppData" / "Roaming"


def _locations(paths: Iterable[Path], scope: Scope) -> list[Location]:
    return [Location(path=path, scope=scope) for path in paths]
