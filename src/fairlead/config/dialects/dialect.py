"""Types of a dialect, and the paths of programs' files by each platform's conventions.

Nothing here reads the disk.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fairlead.config.paths import MachinePaths
from fairlead.errors import ConfigError

Syntax = Literal["json", "jsonc", "toml", "yaml"]
Scope = Literal["user", "project"]
Entry = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A file in which an agent keeps its servers. It need not exist."""

    path: Path
    scope: Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionNote:
    """A setting without an equivalent in the other format. Always reported, never dropped silently."""

    server_id: str | None
    """None where it concerns the whole document."""
    field: str
    """Dotted path in the source format; empty where it concerns the whole server."""
    message: str
    """Predicate of a sentence whose subject is the field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportedDocument:
    """Servers (and bundles) in Fairlead's own format, before validation, with notes."""

    servers: dict[str, Entry] = field(default_factory=dict[str, Entry])
    bundles: dict[str, Entry] = field(default_factory=dict[str, Entry])
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportedDocument:
    """Document in the other format, with notes."""

    document: dict[str, Any]
    """What is written."""
    notes: list[ConversionNote] = field(default_factory=list[ConversionNote])
    """What is not in it, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDialect:
    """One agent's configuration format."""

    name: str
    """Name for `--from` and `--to`: `claude`, `vscode`, …"""
    title: str
    """Display name: `Claude Code`, `VS Code`, …"""
    syntax: Syntax
    locations: Callable[[MachinePaths], list[Location]]
    """Its files, the ones that win first."""
    read: Callable[[dict[str, Any], MachinePaths], ImportedDocument]
    write: Callable[[Mapping[str, Entry]], ExportedDocument] | None = None
    """Takes entries in Fairlead's own format; None where the format is only read."""

    def require_writer(self) -> Callable[[Mapping[str, Entry]], ExportedDocument]:
        """The function that writes entries. Raises `ConfigError` where the format is only read."""
        if self.write is None:
            raise ConfigError(f"Fairlead reads the format of {self.title}, but does not write it")
        return self.write


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
    """Configuration folder of programs that follow XDG on every Unix."""
    if place.platform == "win32":
        return _roaming_folder(place)
    configured = place.env.get("XDG_CONFIG_HOME", "")
    # The specification requires relative paths to be ignored.
    return Path(configured) if Path(configured).is_absolute() else place.home / ".config"


def application_data(place: MachinePaths) -> Path:
    """Data folder of desktop applications."""
    if place.platform == "darwin":
        return place.home / "Library" / "Application Support"
    return config_home(place)


def paths_from_env(place: MachinePaths, variable: str) -> list[Path]:
    """Path in that environment variable, if it is set."""
    configured = place.env.get(variable)
    return [place.cwd / configured] if configured else []


def path_from_env(place: MachinePaths, variable: str, default: Path) -> Path:
    """Path in that environment variable, else the default."""
    return next(iter(paths_from_env(place, variable)), default)


def _roaming_folder(place: MachinePaths) -> Path:
    configured = place.env.get("APPDATA")
    return Path(configured) if configured else place.home / "AppData" / "Roaming"


def _locations(paths: Iterable[Path], scope: Scope) -> list[Location]:
    return [Location(path=path, scope=scope) for path in paths]
